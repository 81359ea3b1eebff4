#!/usr/bin/python3
"""Opens the page of a peer in Debian's Chromium: with live peers that are killed and frozen, and with a made-up stream.

  page_test.py --waggle build/bin/waggle [--no-trainer] [--kills N] [--screenshots DIR]
"""
import argparse
import http.server
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

CHROMIUM, DRIVER = "/usr/bin/chromium", "/usr/bin/chromedriver"
try:
    from selenium import webdriver
    from selenium.webdriver import ActionChains
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service
    from selenium.webdriver.common.keys import Keys
except ImportError:
    webdriver = None
if webdriver is None or not os.path.exists(CHROMIUM) or not os.path.exists(DRIVER):
    print("skipped: the page is tested with Debian's chromium, chromium-driver and python3-selenium (scripts/setup.sh)")
    sys.exit(77)

from live_test import ROOT, get, start_peers, wait_for  # noqa: E402

LIVE = ROOT / "dashboards" / "live"
IDS = [f"{n}{n}" * 32 for n in "abcdef0123456789"]
EVIL = "<img src=x onerror=alert(1)><script>alert(2)</script>\x1b[31m\u202e"


class Stub:
    """A peer that is made up: serves the files, and frames that a test sends."""

    def __init__(self):
        self.snapshot = {}
        self.curves = course()
        self.clients = []
        self.lock = threading.Condition()
        self.open = True
        self.readers = 0
        stub = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, *_):
                pass

            def do_GET(self):
                if self.path == "/api/v1/events":
                    return stub.stream(self)
                if self.path.startswith("/api/v1/curves"):
                    self.send_response(200)
                    self.end_headers()
                    return self.wfile.write(json.dumps(stub.curves).encode())
                name = "index.html" if self.path == "/" else self.path[len("/live/"):]
                kind = {"html": "text/html", "js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
                body = (LIVE / name).read_bytes()
                self.send_response(200)
                self.send_header("Content-Type", kind[name.rsplit(".", 1)[1]] + "; charset=utf-8")
                self.send_header("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'")
                self.end_headers()
                self.wfile.write(body)

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def stream(self, handler):
        if not self.open:
            handler.send_response(429)
            handler.end_headers()
            handler.wfile.write(b'{"error":"this peer has sixteen readers already"}')
            return
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream")
        handler.end_headers()
        mine = [("snapshot", self.snapshot)]
        with self.lock:
            self.clients.append(mine)
        self.readers += 1
        try:
            while self.open:
                with self.lock:
                    self.lock.wait_for(lambda: mine or not self.open, timeout=0.5)
                    todo, mine[:] = mine[:], []
                for kind, data in todo or [("vitals", self.vitals())]:
                    handler.wfile.write(f"event: {kind}\ndata: {json.dumps(data)}\n\n".encode())
                handler.wfile.flush()
        except OSError:
            pass
        finally:
            self.readers -= 1

    def vitals(self):
        return {"t": now(), "status": self.snapshot["status"], "peers": self.snapshot["peers"]}

    def send(self, kind, data):
        with self.lock:
            for each in self.clients:
                each.append((kind, data))
            self.lock.notify_all()

    def event(self, kind, /, **data):
        self.send("event", {"seq": next(seq), "t": now(), "peer": IDS[0], "type": kind, **data})

    def set(self, /, **changes):
        """What the stub says of itself, from here on, to those who are connected and to those who come."""
        self.snapshot = {**picture(), **changes}
        self.send("snapshot", self.snapshot)

    def refuse(self, refuse):
        with self.lock:
            self.open = not refuse
            self.clients.clear()
            self.lock.notify_all()


seq = iter(range(1, 10 ** 9))


def now():
    return int(time.time() * 1000)


def a_round(number, began=None, late=None, peers=4, **more):
    members = [{"peer": p, "self": i == 0, "contributed": True, "reduces": True, "first_ms": 1 + i, "last_ms": 38 if p == late else 4 + i,
                "result_first_ms": 39, "result_last_ms": 41 + i / 10, "bytes_in": 1000, "bytes_out": 1000} for i, p in enumerate(IDS[:peers])]
    return {"type": "round", "round": f"{number:016x}", "kind": "gradients", "epoch": number, "outcome": "complete", "t": now(),
            "began": began or now() - 50, "duration_ms": 42, "search_ms": 1, "agreement_ms": 2, "recovery_ms": 0, "members": members, **more}


# Those of every peer, which come with its snapshot.
TYPES = {name: {"group": group, "glyph": glyph, "problem": problem == "true", "sentence": sentence} for name, group, glyph, problem, sentence
         in re.findall(r'\{"(\w+)", "(\w+)", "(.)", (true|false),\s+(?:"(.*)"|\{\})[,}]', (ROOT / "runtime" / "watch" / "events.cpp").read_text())}


def picture(peers=4):
    began = now() - 64_000
    return {"v": 1, "now": now(), "types": TYPES, "self": {"peer": IDS[0], "run": "made-up", "role": "trainer", "version": "0.1.0"},
            "status": {"phase": "training", "epoch": 412, "global_epoch": 412, "loss": 2.5, "first_loss": 6.9, "target_batch_size": 256, "samples_per_second": 300,
                       "histories": 1, "rounds": {"complete": 64, "shrunk": 0, "failed": 0}},
            "peers": {"peers": [{"id": p, "epoch": 412, "samples_per_second": 300, "samples_toward_epoch": 16, "self": p == IDS[0], "connected": p != IDS[0],
                                 "role": "trainer", "state": "training", "loss": 2.5 + i / 10, "rtt_ms": 0.4, "link": "tcp"} for i, p in enumerate(IDS[:peers])],
                      "left": []},
            "rounds": [a_round(n + 1, began + 1000 * n) for n in range(64)],
            "events": [{"seq": 0, "t": began, "type": "start", "version": "0.1.0", "role": "trainer"}]}


def course(points=400):
    """What a peer has kept of 16,000 epochs of half a second; the clock began two hours ago."""
    epochs = [0, *(40 * n for n in range(1, points + 1))]
    losses = [2 + 5 * 0.985 ** n for n in range(points + 1)]
    held_out = [x + 0.2 + 0.002 * max(0, n - 250) if n % 10 == 9 else None for n, x in enumerate(losses)]
    least = min((x, e) for x, e in zip(held_out, epochs) if x is not None)
    return {"epoch": epochs, "samples": [256 * e for e in epochs], "t": [now() - 8_000_000 + 500 * e for e in epochs], "loss": losses, "eval_loss": held_out,
            "eval_accuracy": [None] * len(epochs), "learning_rate": [0.001] * len(epochs), "samples_per_second": [512.5] * len(epochs),
            "peers": [4] * len(epochs), "best": {"eval_loss": {"epoch": least[1], "value": least[0]}, "loss": {"epoch": epochs[-1], "value": losses[-1]}}}


class Page:
    """Chromium on one page."""

    def __init__(self):
        options = Options()
        self.profile = tempfile.TemporaryDirectory(prefix="waggle-page-")
        for flag in ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
                     "--disable-component-update", "--disable-sync", "--window-size=1320,1000", f"--user-data-dir={self.profile.name}"]:
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=Service(DRIVER))
        self.driver.execute_cdp_cmd("Network.enable", {})

    def close(self):
        self.driver.quit()
        self.profile.cleanup()

    def open(self, url):
        self.peers = [url]
        self.driver.get(url)
        self.wait("the page shows the run", lambda: self.js("return !!document.querySelector('#sentence')"))

    def js(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def wait(self, what, check):
        return wait_for(what, check)

    def text(self, selector):
        return self.js("return document.querySelector(arguments[0])?.textContent ?? ''", selector).replace("\n", " ")

    def count(self, selector):
        return self.js("return document.querySelectorAll(arguments[0]).length", selector)

    def says(self, *words):
        self.wait(f"the sentence says {words}: {self.text('#sentence')}", lambda: all(w in self.text("#sentence") for w in words))

    def press(self, key):
        ActionChains(self.driver).send_keys(key).perform()  # to whatever has the focus, drawn anew or not

    def size(self, width, height=900):
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False})

    def dark(self, on):
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": "dark" if on else "light"}]})

    def complaints(self):
        """What the console has said since the last call."""
        return [line["message"] for line in self.driver.get_log("browser") if line["level"] in ("SEVERE", "WARNING")]

    def quiet(self):
        """No error in the console, and no request elsewhere."""
        said = self.complaints()
        assert not said, f"the console says {said}"
        for line in self.driver.get_log("performance"):
            message = json.loads(line["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                url = message["params"]["request"]["url"]
                assert url.startswith((*self.peers, "data:", "chrome:", "about:")), f"a request elsewhere: {url}"


# -- a made-up stream ---------------------------------------------------------------------------------


def says_how_the_run_is(page, stub):
    page.says("4 peers train together.", "Epoch 412, 1.2k samples/s.")
    slow = picture()
    slow["peers"]["peers"][2]["slow"] = {"cause": "passes", "text": "its passes take 10 times as long"}
    found = {"matter": "passes", "level": "warning", "says": "peer cccccccc is slow", "cure": "look at its processor",
             "seen": "peer cccccccc is slow: its passes take 10 times as long"}
    stub.set(peers=slow["peers"], status={**picture()["status"], "notices": [found]})
    page.says("Peer cccccccc is slow: look at its processor.", "its passes take 10 times as long")
    assert page.text("#sentence h1") == "▲Peer cccccccc is slow: look at its processor."
    page.wait("its row says why", lambda: "its passes take 10 times as long" in page.text("#peers tr.why"))
    stub.set(status={**picture()["status"], "notices": [{"matter": "histories", "level": "bad", "says": "the run is split into 2 histories", "cure": None}, found]})
    page.says("The run is split into 2 histories.", "Peer cccccccc is slow")
    assert page.count("#sentence.bad") == 1
    stub.set(status={"phase": "joining", "waiting_for": "a member of the group"}, peers={"peers": [], "left": []}, rounds=[])
    page.says("This peer is joining the run, waiting for a member of the group.")
    node = picture()
    node["peers"]["peers"].append({"id": IDS[9], "self": True, "connected": False, "role": "node"})
    stub.set(self={**node["self"], "peer": IDS[9], "role": "node"}, status={"phase": "node", "global_epoch": 412, "loss": None}, peers=node["peers"])
    page.says("4 peers train together.", "Epoch 412")
    assert "Loss of the others" in page.text("#overview") and page.text("[data-tile=loss]") == "2.650", page.text("#overview")
    stub.set(self={**node["self"], "peer": IDS[9], "role": "node"}, status={"phase": "node"}, peers={"peers": [], "left": []}, rounds=[])
    page.says("No peer trains yet; this node waits for the first.")
    stub.set()


def shows_events_as_they_come(page, stub):
    stub.event("peer_left", other=IDS[3], reason="silent for 1.1 s", after_s=12)
    page.wait("the peer is in the list of those who left", lambda: page.count(f"[data-left='{IDS[3]}']") == 1)
    assert "silent for 1.1 s" in page.text(f"[data-left='{IDS[3]}']")
    stub.event("peer_left", other=IDS[2], reason="silent for 1.2 s", after_s=12)
    page.says("Peers cccccccc and dddddddd left", "Silent for 1.2 s.")
    again = picture()
    again["peers"]["peers"][3]["left"] = {"t": again["now"] - 5000, "reason": "the connection was closed", "code": "peer_lost", "lost": True, "times": 3}
    again["peers"]["left"] = [{"peer": IDS[9], "t": again["now"] - 1_900_000, "reason": "it leaves", "lost": False, "times": 1, "addresses": []}]
    stub.set(peers=again["peers"])
    page.wait("it is back", lambda: page.count(f"#peers tr[data-peer='{IDS[3]}']") == 1)
    said = page.text("#peers tr.why")
    assert said.startswith("left 3 times, last ") and said.endswith(", the connection was closed; it is back"), said
    page.wait("a leave that was ordered half an hour ago", lambda: "left as ordered" in page.text(f"[data-left='{IDS[9]}']"))
    page.wait("nothing is wrong any more", lambda: page.count("#sentence.good") == 1)
    stub.set()
    for number in range(100, 104):
        stub.send("event", a_round(number, late=IDS[1]))
    page.wait("the latest round is shown", lambda: page.count(f"[data-round='{103:016x}']") == 1)
    assert page.count(f".member.late[data-member='{IDS[1]}']") == 1, "the slowest member stands out"
    for kind, event, said in (("peer_left", {"other": IDS[0], "reason": "silent"}, "✕peer leftThis peer left: silent"),
                              ("state_sent", {"other": IDS[1], "bytes": 2e6, "duration_s": 2.0}, "State sent to peer bbbbbbbb: 2.0\u202fMB in 2.0\u202fs"),
                              ("slow", {"other": IDS[1], "text": "not any more"}, "Peer bbbbbbbb is no longer slow"),
                              ("refused", {"count": 5, "reason": "malformed"}, "Refused 5 inputs: malformed"),
                              ("refused", {"count": "{reason}", "reason": "[{reason}]"}, "Refused {reason}: [{reason}]"),
                              ("clock", {"text": "it is ahead"}, "!clockIt is ahead")):
        stub.event(kind, **event)
        page.wait(f"an event: {said}", lambda said=said: said in page.text("#events .log li"))
    stub.send("gap", {"missed": 17})
    stub.set()
    page.wait("what was left out is counted", lambda: "17 events were left out" in page.text("#events"))


def shows_where_time_goes_and_what_differs(page, stub):
    now_ = picture()
    for n, p in enumerate(now_["peers"]["peers"]):
        p.update(time={"pass": 0.6 - n / 10, "round": 0.3 + n / 10, "agreement": 0.05, "idle": 0.1}, machine={"memory": 0.95 if n == 1 else 0.4, "load": 0.7},
                 settings={"version": "0.1.0", **({"threads": "1"} if n == 2 else {})}, addresses=[f"10.0.0.{n}:7700"])
    now_["peers"]["peers"][1]["addresses"] = ["127.0.0.1:7702"]
    now_["peers"]["peers"][2]["addresses"] = ["javascript:alert(1)//:80"]
    now_["rounds"] += [a_round(200 + n, now() + 1000 * n, agreement_ms=4, spans="-300s10p280u10r42") for n in range(2)]
    stub.set(**{k: now_[k] for k in ("peers", "rounds")})
    bars = lambda: page.js("return [...document.querySelectorAll('#peers .time')].map(x => x.getAttribute('aria-label'))")
    page.wait("a bar for each peer", lambda: len(bars()) == 4)
    assert bars()[0] == "Time of the last minute: pass 60\u202f%, round 25\u202f%, agreement 5\u202f%, idle 10\u202f%", bars()
    rows = page.js("return [...document.querySelectorAll('#peers tr.more')].map(x => x.textContent)")
    assert "memory 40\u202f%" in rows[0] and "load 0.7" in rows[0] and "≠" not in rows[0] + rows[1] + rows[3], rows
    assert "≠ threads 1, others default" in rows[2], rows
    assert "memory" in page.text("#peers tr.more .far")
    # An address of loopback is that of the machine that shows the page; what is no address is no link.
    links = page.js("return [...document.querySelectorAll('#peers a')].map(x => x.href)")
    assert links == ["http://127.0.0.1:7702/", "http://10.0.0.3:7700/"], links
    own = lambda: page.js("return document.querySelector('#rounds .own')?.ariaLabel")
    page.wait("the course of the epoch", lambda: own() == "This peer: pass 280\u202fms, update 10\u202fms, round 42\u202fms, search 10\u202fms")
    path = lambda name: page.js("return document.querySelector(`#rounds .own .a-${arguments[0]}`)?.getAttribute('d')", name)
    whole = path("round")
    assert path("pass").startswith("M29.2 ") and whole.count("M") == 1, path("pass")
    page.press("+")
    page.wait("the round alone", lambda: not path("pass") and path("round") != whole)
    page.press("-")
    page.press("-")
    page.wait("four epochs", lambda: (path("pass") or "").count("M") == 2)
    page.press("+")
    page.wait("one epoch", lambda: path("round") == whole)


def tabs_share_a_stream(page, stub):
    """Five tabs of a browser are one reader; each shows what comes, and the last one that is open goes on."""
    tabs = [page.driver.current_window_handle]
    for n in range(4):
        page.driver.switch_to.new_window("tab")
        tabs.append(page.driver.current_window_handle)
        page.open(stub.url)
    page.wait("one reader", lambda: stub.readers == 1)
    stub.set(status={**picture()["status"], "notices": [{"matter": "histories", "level": "bad", "says": "the run is split into 2 histories", "cure": None}]})
    for tab in tabs:
        page.driver.switch_to.window(tab)
        page.says("The run is split into 2 histories")
    for tab in tabs[:-1]:
        page.driver.switch_to.window(tab)
        page.driver.close()
    page.driver.switch_to.window(tabs[-1])
    stub.set()
    page.says("4 peers train together")
    page.wait("one reader", lambda: stub.readers == 1)


def shows_text_of_peers_as_text(page, stub):
    lying = picture()
    lying["peers"]["peers"][1].update({"time": {EVIL: 0.5, "pass": 1e9, "idle": EVIL}, "machine": EVIL, "settings": {EVIL: EVIL * 99, "version": {}}, "addresses": [EVIL, "a:1"]})
    lying["peers"]["peers"][2].update({"settings": {"version": "1"}, "addresses": ["//evil.example/x:80"]})
    lying["peers"]["peers"][1].update({"state": EVIL * 100, "role": EVIL, "link": EVIL, "loss": 1e300, "epoch": -4, "samples_per_second": "NaN",
                                       "rtt_ms": -1, "slow": {"cause": EVIL, "text": EVIL + "A" * 8192}})
    lying["peers"]["peers"] += [None, 7, {"id": EVIL}, {}]
    lying["peers"]["left"] = [{"peer": IDS[5], "t": 4102444800000, "reason": EVIL}, {"peer": 7}, None]
    lying["events"] += [{"seq": 1, "t": 0, "type": EVIL, "text": EVIL + "B" * 8192}, {"t": "x", "type": "stop"}, "x"]
    lying["rounds"].append(a_round(999, began=now(), outcome=EVIL, kind=EVIL, reason=EVIL, duration_ms=-5, spans="-1e9p1" + EVIL))
    lying["status"]["notices"] = [{"matter": EVIL, "level": EVIL, "says": EVIL, "seen": EVIL + "C" * 8192, "cure": EVIL, "since": EVIL}, None, 7, {"says": 7}]
    stub.set(**{k: lying[k] for k in ("peers", "events", "rounds", "status")})
    page.says("<img src=x onerror=alert(1)>")
    page.wait("who is slow", lambda: "slow: <img src=x onerror=alert(1)>" in page.text("#peers tr.why"))
    page.wait("the event is shown", lambda: "<script>alert(2)</script>" in page.text("#events .log"))
    fields = ("reason", "text", "cause", "outcome", "from", "to", "address", "link", "version", "actor", "role", "kind", "round", "spans", "epoch", "count")
    kinds = [*TYPES, EVIL]
    for n in range(1500):
        stub.event(kinds[n % len(kinds)], other=IDS[n % 4] if n % 3 else EVIL, members=[{"peer": EVIL}, {"peer": IDS[1], "last_ms": EVIL}, EVIL], **dict.fromkeys(fields, EVIL))
    stub.event("notice", text="the last of them")
    page.wait("the last event is shown", lambda: "The last of them" in page.text("#events .log"))
    assert page.count("main img, main script, main a") == 0, "markup of a peer became a part of the page"
    assert "\x1b" not in page.text("body") and "\u202e" not in page.text("body")
    assert page.js("return Math.max(...[...document.querySelectorAll('main *')].filter(x => x.childElementCount === 0).map(x => x.textContent.length))") < 600
    page.wait("what has no identity is no peer", lambda: page.count("#peers tbody tr[data-peer]") == 4)
    for word in ("NaN", "undefined", "null", "Infinity", "[object"):
        assert word not in page.js("return document.body.innerText"), word
    stub.set()
    page.says("4 peers train together.", "Epoch 412, 1.2k samples/s.")


def every_key_does_what_the_list_says(page, stub):
    page.js("document.activeElement.blur()")
    page.press("?")
    page.wait("the list of keys opens", lambda: page.js("return document.getElementById('help').open"))
    listed = page.js("return [...document.querySelectorAll('#help kbd')].map(x => x.textContent)")
    page.press("?")
    page.wait("the list closes", lambda: not page.js("return document.getElementById('help').open"))
    tried = {"?"}

    def key(name, what, check, send=None):
        page.press(send or name)
        tried.add(name)
        page.wait(f"{name}: {what}", check)

    for name, place in {"p": "peers", "o": "loss", "c": "curves", "r": "rounds", "l": "links", "e": "events"}.items():
        key(name, f"goes to {place}", lambda place=place: page.js("return document.activeElement.id") == f"{place}-title")
    shown = lambda: page.js("return parseInt(document.querySelector('[data-round]').dataset.round, 16)")
    key("←", "the round before", lambda: shown() == 63, Keys.ARROW_LEFT)
    key("→", "back", lambda: shown() == 64, Keys.ARROW_RIGHT)
    follows = lambda: page.js("return document.querySelector('#rounds .controls > button:nth-of-type(3)').ariaPressed") == "true"
    key("f", "stays", lambda: not follows())
    stub.send("event", a_round(65))
    page.wait("the new round is known", lambda: "65" in page.js("return document.querySelector('.strip title').textContent") or shown() == 64)
    key("f", "follows", lambda: follows() and shown() == 65)
    spans = lambda: page.js("return document.querySelector('#rounds .group [aria-pressed=true]').textContent")
    key("-", "four rounds", lambda: spans() == "4")
    key("+", "one round", lambda: spans() == "1")
    pressed = lambda n: page.js("return document.querySelectorAll('#events [data-group]')[arguments[0]].ariaPressed", n) == "true"
    for n in range(5):
        before = pressed(n)
        key(str(n + 1), "shows or hides a kind of event", lambda n=n, before=before: pressed(n) != before)
        page.press(str(n + 1))
    key("/", "the filter", lambda: page.js("return document.activeElement.id") == "filter")
    page.press("no such event")
    page.wait("nothing is left", lambda: "No event of this kind" in page.text("#events"))
    key("Esc", "clears it", lambda: page.count("#events .log li") > 0 and page.js("return document.getElementById('filter').value") == "", Keys.ESCAPE)
    assert set(listed) == tried, f"listed {listed}, tried {tried}"


def has_names_for_screen_readers(page, stub):
    nodes = page.driver.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    seen = {}
    for node in nodes:
        role = node.get("role", {}).get("value")
        if not node.get("ignored"):
            seen.setdefault(role, []).append(node.get("name", {}).get("value", ""))
    for role in ("button", "region", "heading", "searchbox", "image", "progressbar", "listitem", "columnheader", "rowheader"):
        assert seen.get(role), f"there is no {role}: {sorted(map(str, seen))}"
        if role not in ("listitem",):
            assert all(name.strip() for name in seen[role]), f"a {role} without a name: {seen[role]}"
    assert page.count("h1") == 1 and page.count("#announce[role=status]") == 1 and page.count("#banner[role=alert]") == 1


def fits_narrow_and_dark(page, stub):
    brightness = lambda: page.js("return getComputedStyle(document.body).backgroundColor.match(/\\d+/g).slice(0, 3).reduce((a, b) => a + +b, 0)")
    light = brightness()
    page.dark(True)
    page.wait("dark", lambda: brightness() < 150 < light)
    page.size(360)
    page.wait("nothing is cut at 360 pixels", lambda: page.js("""
      return document.documentElement.scrollWidth <= 360 && document.body.clientWidth <= 360
        && [...document.querySelectorAll('header, .panel, .tile, #sentence, button, input')].every(x => x.getBoundingClientRect().right <= 360.5)"""))
    page.wait("the losses of the peers are within the panel", lambda: page.js(
        "const [box, cell] = ['#peers .panel, #peers', '#peers tbody tr[data-peer] td:nth-of-type(4)'].map(x => document.querySelector(x).getBoundingClientRect().right); return cell <= box;"))
    page.size(1320)
    page.dark(False)
    page.wait("light", lambda: brightness() == light)


def says_at_once_that_the_connection_is_lost(page, stub):
    stub.refuse(True)
    page.wait("it is said", lambda: page.text("#banner") != "" and page.count("body.lost") == 1)
    page.wait("with the reason", lambda: "sixteen readers already" in page.text("#banner"))
    assert "grayscale" in page.js("return getComputedStyle(document.querySelector('main')).filter")
    assert page.text("#link").strip().endswith("not connected")
    stub.refuse(False)
    page.wait("it connects again", lambda: page.count("body.lost") == 0 and page.text("#banner") == "")
    said = page.complaints()
    assert all("429" in line or "INCOMPLETE_CHUNKED" in line for line in said), said


def shows_the_losses_of_a_recording(page, stub):
    """The module state.js alone: peers that end epochs at one time, or nearly, share a row, and the whole time is shown."""
    losses = [[1e12 + 60_000 * i + (n % 2), peer, n + i] for i in range(150) for n, peer in enumerate(IDS)]
    rows = page.driver.execute_async_script("""
      const [snapshot, done] = arguments;
      import('/live/state.js').then(m => {
        const s = m.createState();
        m.apply(s, 'snapshot', snapshot);
        done({times: s.loss.t.length, first: s.loss.t[0], of: [...s.loss.of.values()].map(x => [x[0], x[149], x.filter(y => y !== null).length])});
      }).catch(e => done({error: String(e)}));""", {**picture(), "now": 1e12 + 60_000 * 149, "status": {}, "loss": losses,
                                                    "replay": {"from": 1e12, "to": 1e12 + 60_000 * 150, "peers": IDS}})
    assert rows.get("times") == 150 and rows["first"] == 1e12, rows
    assert rows["of"] == [[n, n + 149, 150] for n in range(16)], rows


def shows_the_course_of_the_run(page, stub):
    """From the first epoch on, over three axes, with the best held-out value; what a peer sends is checked."""
    later = {**picture()["status"], "epoch": 16_100, "loss": 1.9}
    stub.set(status=later)
    label = lambda: page.js("return document.querySelector('#curves .chart').ariaLabel ?? ''")
    page.wait("the course is shown up to this epoch", lambda: label().startswith("Loss over epochs, epoch 0 to 16\u202f100: from 7.000 to 1.900, best "))
    best = stub.curves["best"]["eval_loss"]
    assert f"best held-out {best['value']:.3f} at epoch {best['epoch'] // 1000}\u202f{best['epoch'] % 1000:03}" in page.text("#curves .readout"), page.text("#curves .readout")
    click = lambda words: page.js("[...document.querySelectorAll('#curves button')].find(x => x.textContent === arguments[0]).click()", words)
    click("Samples")
    assert label().startswith("Loss over samples"), label()
    click("Time")
    click("Log scale")
    page.js("const e = document.querySelector('#curves input'); e.value = '0.9'; e.dispatchEvent(new Event('input'));")
    assert page.count("#curves .controls [aria-pressed=true]") == 2
    choose = lambda name: page.js("const e = document.querySelector('#curves select'); e.value = arguments[0]; e.dispatchEvent(new Event('change'));", name)
    for name, words in (("speed", "of all peers 1.2k"), ("rate", "rate 0.001"), ("peers", "peers 4"), ("accuracy", "--eval-data"), ("loss", "held-out")):
        choose(name)
        page.wait(words, lambda words=words: words in page.text("#curves .readout"))
    click("Epochs")
    click("Log scale")
    page.js("const e = document.querySelector('#curves input'); e.value = '0'; e.dispatchEvent(new Event('input'));")
    for bad in (None, 7, [], {"epoch": 7}, {"epoch": [EVIL, -1, 3, 2, 1e300], "samples": [1, 2, 3, 4], "t": "x", "loss": [EVIL] * 9, "best": {"loss": {"epoch": EVIL, "value": EVIL}}}):
        stub.curves = bad
        page.open(stub.url)
        page.says("4 peers train together")
        assert page.count("main img, main script, main a") == 0
    read = page.driver.execute_async_script("import('/live/curves.js').then(m => arguments[1](m.readCurves(arguments[0])))",
                                            {"epoch": [0, 5, 4, 6, 7], "samples": [0, 1, 2, 3, 4], "t": [1, 2, 3, 4, 5], "loss": [1, EVIL, 2, 3], "best": 7})
    assert read["columns"]["epoch"] == [0, 5, 6, 7] and read["columns"]["loss"] == [1, None, 3, None] and read["best"] == {}, read
    stub.curves = course()
    page.open(stub.url)


def an_older_list_brings_nobody_back(page, stub):
    """The module state.js alone: a list of peers that was made before one left comes after the event."""
    seen = page.driver.execute_async_script("""
      const [snapshot, other, done] = arguments;
      import('/live/state.js').then(m => {
        const s = m.createState(), seen = [], t = snapshot.now;
        const look = () => seen.push([s.peers.has(other), s.left.filter(x => x.peer === other).length]);
        const list = at => { m.apply(s, 'vitals', {t: at, status: snapshot.status, peers: snapshot.peers}); look(); };
        m.apply(s, 'snapshot', snapshot);
        look();
        m.apply(s, 'event', {type: 'peer_left', t, other, reason: 'silent'});
        look();
        list(t + 90);
        m.apply(s, 'event', {type: 'peer_joined', t: t + 100, other});
        look();
        list(t + 110);
        m.apply(s, 'event', {type: 'peer_left', t: t + 120, other, reason: 'silent'});
        list(t + 130);
        list(t + 2000);
        done(seen);
      }).catch(e => done({error: String(e)}));""", picture(), IDS[2])
    here, gone = [True, 0], [False, 1]
    assert seen == [here, gone, gone, here, here, gone, here], seen


def keeps_what_it_remembers_small(page, stub):
    """The module state.js alone: what it holds is bounded, whatever comes."""
    result = page.driver.execute_async_script("""
      const [snapshot, a_round, done] = arguments;
      import('/live/state.js').then(m => {
        const s = m.createState();
        let left = 0;
        m.apply(s, 'snapshot', snapshot);
        for (let i = 0; i < 5000; ++i) {
          m.apply(s, 'event', {...a_round, round: i.toString(16), began: a_round.began + 50 * i});
          m.apply(s, 'event', {type: ['epoch', 'notice', 'peer_left', 'no such'][i % 4], t: snapshot.now + i, seq: i + 10, other: i.toString(16).padStart(8, '0'), text: 'x'.repeat(9999)});
          if (i % 400 === 0) left = Math.max(left, s.left.length);
          if (i % 400 === 0 || i > 3000) m.apply(s, 'vitals', {t: snapshot.now + 1000 * i, status: snapshot.status, peers: snapshot.peers});
        }
        const seen = {rounds: s.rounds.length, samples: s.loss.t.length, series: s.loss.of.size, left,
          events: Math.max(...Object.values(s.events).map(x => x.length)), sorted: s.loss.t.every((t, i, a) => i === 0 || a[i - 1] < t)};
        for (const bad of [null, 7, 'x', [], {peers: 7}, {status: []}]) for (const kind of ['snapshot', 'vitals', 'event', 'gap', 'other']) m.apply(s, kind, bad);
        m.apply(s, 'snapshot', snapshot);
        done({...seen, sentence: m.headline(s).text});
      }).catch(e => done({error: String(e)}));""", picture(), a_round(1))
    assert result.get("rounds") == 64 and result["samples"] <= 1200 and result["series"] == 4 and 10 < result["left"] <= 64 and result["events"] <= 200 and result["sorted"], result
    assert result["sentence"] == "4 peers train together.", result


# -- a recording --------------------------------------------------------------------------------------


def replays(page, options, folders, rounds):
    """`waggle replay`: shows the rounds that the live page showed, at any time of the recording, by mouse and keys."""
    server = subprocess.Popen([options.waggle, "replay", *map(str, folders), "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True)
    try:
        url = re.search(r"http://\S+", server.stdout.readline()).group()
        page.open(url)
        for kind in ("browser", "performance"):
            page.driver.get_log(kind)  # of the pages before
        page.wait("it is a replay", lambda: page.text("#link").endswith("replay") and page.count("#time") == 1)
        lowest, highest = (int(page.js(f"return document.getElementById('time').{end}")) for end in ("min", "max"))
        now = lambda: int(page.js("return document.getElementById('time').value"))
        began = now()
        assert lowest <= began < lowest + 0.5 * (highest - lowest), "it begins at the start"
        page.wait("time goes on", lambda: now() > began)
        page.press("k")
        page.wait("it stands still", lambda: page.js("return document.querySelector('#replay button').ariaPressed") == "true")
        seek = lambda t: page.js("""const e = document.getElementById('time'); e.value = arguments[0];
          e.dispatchEvent(new Event('input')); e.dispatchEvent(new Event('change'));""", str(t))
        shown = lambda: page.js("return document.querySelector('[data-round]')?.dataset.round")
        seek(highest)
        at = lambda t: abs(now() - t) <= 100  # a step of the slider
        last = replayed(url, page.js("return document.querySelector('#replay select').value"), highest)["rounds"][-1]["round"]
        page.wait("the end is shown", lambda: at(highest) and shown() == last)
        page.js("document.activeElement.blur()")
        page.press(",")
        page.wait("ten seconds back", lambda: at(max(lowest, highest - 10_000)))
        page.press(".")
        page.wait("and on", lambda: at(highest) and shown() == last)
        page.press(",,")  # as a key that is held down: the second one comes before the page has moved
        page.wait("twenty seconds back", lambda: at(max(lowest, highest - 20_000)))
        answers_late(page)
        page.press(".")
        page.wait("it is asked", lambda: page.js("return window.asked") == 1)
        page.js("document.body.dispatchEvent(new KeyboardEvent('keydown', {key: ',', bubbles: true})); window.answer()")
        page.wait("the first answer has come", lambda: page.js("return window.asked") == 2)
        assert at(max(lowest, highest - 20_000)), "the answer to the key before has moved it"
        seek((lowest + highest) // 2)
        page.wait("the middle is shown", lambda: shown() not in (None, last))
        page.press(">")
        page.wait("faster, and not paused", lambda: "×10" in page.js("return [...document.querySelectorAll('#replay [role=group] [aria-pressed=true]')].map(x => x.textContent)")
                  and page.js("return document.querySelector('#replay button').ariaPressed") == "false")
        page.wait("it reaches its end", lambda: at(highest) and shown() == last)
        page.press("<")
        page.press("k")
        page.press("?")
        page.wait("the keys are listed", lambda: "pause the replay" in page.text("#help"))
        page.press("?")
        assert page.count("#peers tbody tr[data-peer]") > 0
        page.quiet()
        if rounds:
            events = replayed(url, rounds["peer"], highest)
            same = {r["round"]: r for r in events["rounds"]}
            both = [r for r in rounds["rounds"] if r["round"] in same]
            assert len(both) >= 3, "the rounds of the live page are not there"
            shift = both[0]["t"] - same[both[0]["round"]]["t"]  # of the clock that was corrected
            for live_ in both:
                again = {**same[live_["round"]], "seq": live_["seq"]}
                again.update(t=again["t"] + shift, began=again["began"] + shift)
                assert again == live_, f"live {live_}, replayed {again}"
        if options.screenshots:
            seek((lowest + highest) // 2)
            page.wait("the middle is shown", lambda: shown() not in (None, last))
            for name, width, dark in (("replay", 1320, False), ("replay_narrow_dark", 360, True)):
                page.size(width)
                page.dark(dark)
                page.driver.save_screenshot(str(options.screenshots / f"{name}.png"))
        page.size(360)
        page.wait("nothing is cut at 360 pixels", lambda: page.js("return document.documentElement.scrollWidth <= 360"))
    finally:
        server.send_signal(signal.SIGTERM)
        assert server.wait(timeout=15) == 0, "the replay did not end in order"


def answers_late(page):
    """Keeps the next answer until `window.answer()`, and counts what is asked."""
    page.js("""const ask = window.fetch, held = new Promise(done => { window.answer = done; });
      window.asked = 0;
      window.fetch = async (...what) => { ++window.asked; const got = await ask(...what); await held; return got; };""")


def replayed(url, peer, t):
    """The snapshot of that time."""
    with urllib.request.urlopen(f"{url}api/v1/events?at={t}&speed=0&peer={peer}", timeout=30) as stream:
        for line in stream:
            if line.startswith(b"data: "):
                return json.loads(line[6:])


# -- live peers ---------------------------------------------------------------------------------------


def live(page, options, folder):
    processes = []
    try:
        addresses = start_peers(options, folder, processes)
        ids = [json.loads(get(f"http://{a}/api/v1/status"))["peer"] for a in addresses]
        page.open(f"http://{addresses[0]}/")
        # Peers that only average report no progress: they are seen in rounds.
        row = "#rounds .member[data-member='{}']" if options.no_trainer else "#peers tr[data-peer='{}']"
        here = lambda: page.count(row.format(ids[2])) == 1 and page.count(f"[data-left='{ids[2]}']") == 0
        gone = lambda: page.count(row.format(ids[2])) == 0 and page.count(f"[data-left='{ids[2]}'] .reason") == 1
        page.wait("all three are shown", lambda: all(page.count(row.format(i)) == 1 for i in ids))
        page.wait("rounds are shown", lambda: page.count("#rounds .member") >= 2)
        same_rounds(page, addresses)
        times = []
        for n in range(options.kills):
            victim = processes[2]
            page.wait("the peer is there", here)
            for signal_, name in ((signal.SIGSTOP, "frozen"), (signal.SIGKILL, "killed")):
                began = time.monotonic()
                os.kill(victim.child.pid, signal_)
                page.wait(f"a {name} peer is shown as gone", gone)
                times.append((name, time.monotonic() - began))
                assert page.text(f"[data-left='{ids[2]}'] .reason") not in ("", "no reason known"), "there is no reason"
                page.wait("the sentence names it", lambda: ids[2][:8] in page.text("#sentence"))
                if options.screenshots and n == 0:
                    page.driver.save_screenshot(str(options.screenshots / f"{name}.png"))
                if signal_ == signal.SIGSTOP:
                    os.kill(victim.child.pid, signal.SIGCONT)
                    page.wait("it returns", here)
            victim.child.wait()
            if n + 1 < options.kills:
                processes[2] = victim.again()
                page.wait("it returns", here)
        page.quiet()
        rounds = {"peer": ids[1], **json.loads(get(f"http://{addresses[1]}/api/v1/rounds"))}
        for name in ("frozen", "killed"):
            mine = [t for what, t in times if what == name]
            print(f"  {name}: seen after {', '.join(f'{t:.2f}' for t in mine)} s; {sum(t <= 2 for t in mine)} of {len(mine)} within 2 s")
        os.kill(processes[0].child.pid, signal.SIGKILL)
        page.wait("its own peer is gone", lambda: page.count("body.lost") == 1 and page.text("#banner") != "")
        processes[1].child.send_signal(signal.SIGTERM)
        processes[1].child.wait()
        replays(page, options, [folder / f"peer{i}" for i in range(3)], rounds)
    finally:
        for process in processes:
            process.kill()


def same_rounds(page, addresses):
    """Two peers of one run: a round that both show has the same members on both pages."""
    collect = """
      window.seen = new Set();
      new MutationObserver(() => window.seen.add(document.querySelector('[data-round]').dataset.round + ' '
        + [...document.querySelectorAll('.member')].map(x => x.dataset.member).sort().join()))
        .observe(document.querySelector('#rounds'), {subtree: true, attributes: true, attributeFilter: ['data-round']});"""
    first = page.driver.current_window_handle
    page.js(collect)
    page.driver.switch_to.new_window("window")  # a tab in the background is drawn rarely
    page.peers.append(f"http://{addresses[1]}/")
    page.driver.get(page.peers[-1])
    page.wait("the other page shows rounds", lambda: page.count("#rounds .member") >= 2)
    page.js(collect)

    def both():
        seen = []
        for window in page.driver.window_handles:
            page.driver.switch_to.window(window)
            seen.append(set(page.js("return [...window.seen]")))
        # A member that was lost during a round may be missing on one page: none is lost here.
        ids = [{line.split()[0] for line in each} for each in seen]
        return len(seen[0] & seen[1]) >= 3 and len(ids[0] & ids[1]) == len(seen[0] & seen[1])
    page.wait("both show the same rounds", both)
    page.driver.close()
    page.driver.switch_to.window(first)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--waggle")
    parser.add_argument("--no-trainer", action="store_true")
    parser.add_argument("--kills", type=int, default=2)
    parser.add_argument("--screenshots", type=pathlib.Path, help="also write what the tests see")
    options = parser.parse_args()
    page = Page()
    try:
        stub = Stub()
        stub.snapshot = picture()
        page.open(stub.url)
        for check in (says_how_the_run_is, shows_events_as_they_come, shows_where_time_goes_and_what_differs,
                      tabs_share_a_stream, shows_text_of_peers_as_text, every_key_does_what_the_list_says,
                      has_names_for_screen_readers, fits_narrow_and_dark, shows_the_losses_of_a_recording, shows_the_course_of_the_run,
                      an_older_list_brings_nobody_back, keeps_what_it_remembers_small, says_at_once_that_the_connection_is_lost):
            began = time.monotonic()
            stub.set()
            check(page, stub)
            page.quiet()
            print(f"{check.__name__}: {time.monotonic() - began:.1f} s", flush=True)
            if options.screenshots:
                page.driver.save_screenshot(str(options.screenshots / f"{check.__name__}.png"))
        if options.waggle:
            with tempfile.TemporaryDirectory(prefix="waggle-page-") as folder:
                began = time.monotonic()
                live(page, options, pathlib.Path(folder))
                print(f"live: {time.monotonic() - began:.1f} s")
    finally:
        page.close()


if __name__ == "__main__":
    main()
