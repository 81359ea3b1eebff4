#!/usr/bin/env python3
"""Scrapes a live swarm with a real Prometheus and checks that every panel and every alert finds data.

The peers and Prometheus use free ports of 127.0.0.1 and a temporary folder, which is deleted at the end.
"""
import argparse
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
PATIENCE = 90  # seconds until a wait fails
OF_TRAINERS = re.compile(r"waggle_(training|checkpoint|state)_")


def get(url):
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read().decode()


def wait_for(what, check):
    """Calls `check` until its result is true. The failure message contains its last error."""
    until = time.monotonic() + PATIENCE
    complaint = ""
    while time.monotonic() < until:
        try:
            result = check()
            if result:
                return result
        except (OSError, ValueError, KeyError) as error:
            complaint = f": {error}"
        time.sleep(0.1)
    raise AssertionError(f"{what}: not within {PATIENCE} s{complaint}")


class Process:
    """A child process whose output goes to a file."""

    def __init__(self, folder, name, command):
        self.folder, self.name, self.command = folder, name, command
        self.log = folder / f"{name}.log"
        with open(self.log, "w") as log:
            environment = {k: v for k, v in os.environ.items() if not k.startswith("WAGGLE_")
                           and k not in ("INITIAL_PEERS", "PL_INITIAL_PEERS")}
            self.child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log, cwd=folder,
                                          env=environment)

    def address(self, pattern):
        def look():
            if self.child.poll() is not None:
                raise AssertionError(f"{self.name} ended with {self.child.returncode}:\n{self.log.read_text()}")
            found = re.search(pattern, self.log.read_text())
            return found and found.group(1)
        return wait_for(f"{self.name} listens", look)

    def again(self):
        """The same command once more, after the process has ended."""
        return Process(self.folder, self.name, self.command)

    def kill(self):
        if self.child.poll() is None:
            self.child.kill()
            self.child.wait()


def start_peers(options, folder, processes):
    if options.no_trainer:
        command = ["average", "--elements", "65536", "--matchmaking-time", "500ms"]
    else:
        command = ["train", "--model", "mlp", "--data", "synthetic", "--width", "32", "--layers", "1",
                   "--target-batch-size", "128", "--device", "cpu", "--threads", "1", "--step-interval", "20ms",
                   "--eval-data", "/usr/share/common-licenses/BSD", "--eval-every", "1s"]
    addresses = []
    for i in range(3):
        arguments = [str(pathlib.Path(options.waggle).resolve()), *command, "--run-id", "live", "--listen", "127.0.0.1:0", "--data-dir",
                     str(folder / f"peer{i}")]
        if addresses:
            arguments += ["--initial-peers", addresses[0]]
        peer = Process(folder, f"peer{i}", arguments)
        processes.append(peer)
        addresses.append(peer.address(r"listening on (\S+)"))
    for address in addresses:
        def busy(address=address):
            status = json.loads(get(f"http://{address}/api/v1/status"))
            rounds = status["rounds"]["complete"] + status["rounds"]["shrunk"]
            return rounds >= 2 and (options.no_trainer or status["epoch"] >= 2)
        wait_for(f"{address} averages", busy)
        assert get(f"http://{address}/healthz"), "healthz is empty"
        wait_for(f"{address} is ready", lambda address=address: get(f"http://{address}/readyz"))
    return addresses


def check_text(options, address):
    text = get(f"http://{address}/metrics")
    done = subprocess.run([options.promtool, "check", "metrics"], input=text, text=True, capture_output=True)
    assert done.returncode == 0, f"promtool check metrics: {done.stderr}"
    series = sum(1 for line in text.splitlines() if line and not line.startswith("#"))
    assert series <= 400, f"{series} series of one peer; the budget is 400"
    return series


class Prometheus:
    def __init__(self, options, folder, addresses, processes):
        config = folder / "prometheus.yml"
        config.write_text(json.dumps({  # JSON is YAML
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(ROOT / "dashboards" / "alerts.yml")],
            "scrape_configs": [{"job_name": "waggle", "honor_labels": True, "http_sd_configs": [
                {"url": f"http://{addresses[0]}/sd", "refresh_interval": "1s"}]}]}))
        server = Process(folder, "prometheus", [
            options.prometheus, f"--config.file={config}", f"--storage.tsdb.path={folder / 'tsdb'}",
            "--web.listen-address=127.0.0.1:0"])
        processes.append(server)
        self.base = "http://" + server.address(r'msg="Listening on" address=(\S+)')
        wait_for("prometheus is ready", self.ready)

    def ready(self):
        """Prometheus answers 503 until it has read its write-ahead log."""
        try:
            return get(f"{self.base}/-/ready")
        except urllib.error.HTTPError as error:
            if error.code != 503:
                raise
            return None

    def ask(self, path, **parameters):
        url = f"{self.base}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            return json.loads(get(url))["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{parameters}: {error.read().decode()}") from None

    def finds(self, query):
        return self.ask("query", query=query)["result"]


def panel_queries(run, board="swarm.json"):
    board = json.loads((ROOT / "dashboards" / board).read_text())
    for panel in board["panels"]:
        for target in panel.get("targets", []):
            query = target["expr"]
            for variable, value in (("$run", run), ("$instance", ".*"), ("$__rate_interval", "10s"),
                                    ("$__range", "1m")):
                query = query.replace(variable, value)
            assert "$" not in query, f"unknown variable in: {query}"
            yield f"panel '{panel['title']}'", query


def alert_selectors(prometheus):
    for group in prometheus.ask("rules")["groups"]:
        for rule in group["rules"]:
            assert rule["health"] == "ok", f"{rule['name']}: {rule.get('lastError', rule['health'])}"
            for selector in re.findall(r"\b(?:(?:waggle|process)_\w+|up)\b(?:\{[^}]*\})?", rule["query"]):
                yield f"alert {rule['name']}", selector


def check(options):
    processes = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        try:
            addresses = start_peers(options, folder, processes)
            peers = list(processes)
            series = max(check_text(options, address) for address in addresses)
            prometheus = Prometheus(options, folder, addresses, processes)
            wait_for("twelve scrapes of every peer", lambda: [
                int(found["value"][1]) for found in prometheus.finds('min(count_over_time((up{job="waggle"} == 1)[1m:1s]))')
                if int(found["value"][1]) >= 12])
            wait_for("the rules are evaluated", lambda: all(
                rule["health"] == "ok" for group in prometheus.ask("rules")["groups"] for rule in group["rules"]))

            empty, asked = [], 0
            run = json.loads(get(f"http://{addresses[0]}/api/v1/status"))["run_tag"]
            for where, query in [*panel_queries(run), *alert_selectors(prometheus)]:
                if options.no_trainer and OF_TRAINERS.search(query):
                    continue
                asked += 1
                if not prometheus.finds(query):
                    empty.append(f"{where} has no data: {query}")
            assert not empty, "\n".join(empty)
            for _, query in panel_queries(run, "peer.json"):  # what a healthy peer does not have is empty
                prometheus.finds(query)
            firing = [found["metric"]["alertname"] for found in prometheus.finds('ALERTS{alertstate="firing"}')]
            assert not firing, f"alerts of a healthy swarm: {firing}"
            slowest = prometheus.finds("max(scrape_duration_seconds)")[0]["value"][1]

            for peer in peers:
                peer.child.send_signal(signal.SIGTERM)
            for peer in peers:
                code = peer.child.wait(timeout=15)
                assert code == 0, f"{peer.name} ended with {code}:\n{peer.log.read_text()}"
            print(f"{asked} queries have data; {series} series a peer; slowest scrape {float(slowest) * 1000:.0f} ms")
        except BaseException:
            for process in processes:
                print(f"--- {process.name}\n{process.log.read_text()[-3000:]}", file=sys.stderr)
            raise
        finally:
            for process in processes:
                process.kill()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--waggle", required=True, help="the program")
    parser.add_argument("--prometheus", default="prometheus")
    parser.add_argument("--promtool", default="promtool")
    parser.add_argument("--no-trainer", action="store_true", help="the program was built without `train`: the peers only average")
    check(parser.parse_args())
