"""Peers without a model: waggle.node, waggle.Averager and waggle.DHT."""

import asyncio
import datetime
import os
import re
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import torch
from support import ROOT, reserved_port

import waggle


def node(*peers):
    made = waggle.node("tests", listen="127.0.0.1:0", initial_peers=[p.address for p in peers], log_level="error")
    made.wait_until_ready()
    return made


@pytest.fixture
def pair():
    with node() as a, node(a) as b:
        yield a, b


def both(calls):
    """Calls them in threads of their own; returns what they return."""
    out = [None] * len(calls)

    def run(i):
        try:
            out[i] = calls[i]()
        except Exception as e:
            out[i] = e

    threads = [threading.Thread(target=run, args=[i], daemon=True) for i in range(len(calls))]
    for each in threads:
        each.start()
    for each in threads:
        each.join(120)
        assert not each.is_alive()
    return out


def examples_of_the_readme(folder):
    """shell(number, port, more arguments) runs one, on another port than the printed one, which may be taken."""
    section = (ROOT / "trainer/python/README.md").read_text().partition("## A peer without a model")[2].partition("\n## ")[0]
    examples = re.findall("```sh\n(.*?)```", section, re.S)
    assert all(example.count("\n") <= 5 for example in examples)

    def shell(number, port, *arguments):
        text = re.sub(r":77\d\d", f":{port}", examples[number].rstrip()).replace("python3", sys.executable, 1)
        if arguments:
            text = text[:text.rindex("'") + 1] + " " + " ".join(arguments)
        return subprocess.Popen(["bash", "-c", text], text=True, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    return shell


def test_the_example_runs_between_two_processes(tmp_path):
    shell = examples_of_the_readme(tmp_path)
    with reserved_port() as port, shell(0, port) as first:
        assert first.stdout.read(len("Enter ends it")) == "Enter ends it"
        assert shell(1, port).communicate(timeout=60)[0] == "{'hello': 'world'}\n"
        first.communicate("\n", timeout=60)
    assert first.returncode == 0


def test_the_example_of_a_mean_runs_between_three_processes(tmp_path):
    shell = examples_of_the_readme(tmp_path)
    with reserved_port() as port:
        where = f"127.0.0.1:{port}"
        shells = [shell(2, port, *words) for words in (("1", where), ("2", "127.0.0.1:0", where), ("6", "127.0.0.1:0", where))]
        assert [each.communicate(timeout=120)[0] for each in shells] == ["[3. 3.]\n"] * 3


def test_arrays_of_each_type_are_averaged_in_place(pair):
    def arrays(x):
        return {"f": np.full(5, x, np.float32), "d": np.full((2, 2), x / 3), "h": torch.full((3,), x, dtype=torch.float16),
                "b": torch.full((3,), x, dtype=torch.bfloat16), "p": torch.nn.Parameter(torch.full((2,), float(x)))}

    given = [arrays(1), arrays(3)]
    averagers = [waggle.Averager(n, t, prefix="all", target_group_size=2, matchmaking_time=5) for n, t in zip(pair, given)]
    addresses = [t["p"].data_ptr() for t in given]
    for out in both([a.step for a in averagers]):
        assert set(out) == {n.id for n in pair}
    for t, address in zip(given, addresses):
        assert (t["f"] == 2).all() and (t["d"] == (1 / 3 + 1.0) / 2).all()
        assert (t["h"] == 2).all() and (t["b"] == 2).all() and (t["p"] == 2).all() and t["p"].data_ptr() == address
    with averagers[0].get_tensors() as tensors:
        assert tensors["f"] is given[0]["f"]
        with pytest.raises(RuntimeError, match="this thread holds the tensors"):
            averagers[0].step()
    averagers[0].group_bits = "01"
    assert averagers[0].group_bits == "01"
    with pytest.raises(ValueError, match="'?2'?"):
        averagers[0].group_bits = "12"
    averagers[0].shutdown()
    with pytest.raises(ValueError, match="no averager 'all'"):
        averagers[0].step()


def test_a_step_is_awaited_cancelled_and_scheduled(pair):
    given = [np.full(4, x, np.float32) for x in (1, 3)]
    averagers = [waggle.Averager(n, {"x": x}, prefix="steps", target_group_size=2) for n, x in zip(pair, given)]

    async def step_both():
        at = time.time() + 1
        steps = [a.step(wait=False, scheduled_time=at, gather=i) for i, a in enumerate(averagers)]
        values = await asyncio.gather(*steps)
        assert time.time() >= at
        return values

    for values in asyncio.run(step_both()):
        assert sorted(values.values()) == [0, 1]
    assert (given[0] == 2).all() and (given[1] == 2).all()
    step = averagers[0].step(wait=False)
    with pytest.raises(TimeoutError):
        step.result(0.05)
    with pytest.raises(waggle.Error, match="wait for it, or cancel it") as busy:
        averagers[0].step()
    assert busy.value.code == "overloaded"
    step.cancel()
    with pytest.raises(waggle.Error) as cancelled:
        step.result()
    assert cancelled.value.code == "cancelled" and step.stage == "done"


def test_what_cannot_be_is_refused_with_a_sentence(pair):
    x = np.zeros(4, np.float32)
    averager = waggle.Averager(pair[0], {"x": x}, prefix="refusals")

    def refused(kind, match, call):
        with pytest.raises(kind, match=match):
            call()

    refused(ValueError, "scheduled_time is in the past", lambda: averager.step(scheduled_time=time.time() - 5))
    refused(ValueError, "after the timeout of 5.0 s", lambda: averager.step(scheduled_time=time.time() + 50, timeout=5))
    refused(ValueError, "gather has 1102 bytes as JSON", lambda: averager.step(gather="x" * 1100))
    refused(TypeError, "nothing is pickled", lambda: averager.step(gather=object()))
    refused(TypeError, "the keys of JSON are texts", lambda: averager.step(gather={1: 2}))
    refused(ValueError, "finite numbers only", lambda: averager.step(gather=float("nan")))
    refused(ValueError, "needs wait=False", lambda: averager.step(require_trigger=True))
    x[1] = np.inf
    refused(waggle.Error, "", averager.step)
    x[1] = 0
    for wrong, kind, match in [({"a": [1.0]}, TypeError, "tensor 'a' is a list"), ({}, ValueError, "nothing to average"),
                               ({"a": np.zeros(3, int)}, TypeError, "is of int64"),
                               ({"a": np.zeros((3, 3), np.float32).T[:2]}, ValueError, "not contiguous"),
                               ({"a": np.frombuffer(b"1234", np.float32)}, ValueError, "read-only")]:
        refused(kind, match, lambda: waggle.Averager(pair[0], wrong, prefix="wrong"))
    refused(ValueError, "codec", lambda: waggle.Averager(pair[0], {"x": x}, prefix="wrong", codec="gzip"))
    refused(ValueError, "already", lambda: waggle.Averager(pair[0], {"x": x}, prefix="refusals"))
    refused(ValueError, "listen", lambda: waggle.node("tests", listen="nowhere"))
    refused(TypeError, "listen is of type int, and must be a text like", lambda: waggle.node("tests", listen=7700))
    for kind, match, options in [
            (TypeError, "target_group_size is of type float, and must be a whole number", dict(target_group_size=2.0)),
            (TypeError, "target_group_size is of type bool", dict(target_group_size=True)),
            (ValueError, "min_vector_size is -1, and must be a whole number from 0", dict(min_vector_size=-1)),
            (TypeError, "matchmaking_time is of type str, and must be a number of seconds", dict(matchmaking_time="1s")),
            (ValueError, "matchmaking_time is inf, and must be finite", dict(matchmaking_time=np.float32("inf"))),
            (TypeError, "alpha is of type str, and must be a number", dict(alpha="1")),
            (TypeError, "auxiliary is of type int, and must be True or False", dict(auxiliary=1)),
            (TypeError, "group_bits is of type int, and must be a text", dict(group_bits=1))]:
        refused(kind, match, lambda: waggle.Averager(pair[0], {"x": x}, **{"prefix": "wrong", **options}))
    refused(TypeError, "tensors is of type list, and must be a dictionary", lambda: waggle.Averager(pair[0], [x], prefix="wrong"))
    refused(TypeError, "node is of type NoneType: pass what waggle.node returns", lambda: waggle.DHT(None))
    for kind, match, options in [(TypeError, "weight is of type str", dict(weight="1")), (ValueError, "weight is nan", dict(weight=float("nan"))),
                                 (TypeError, "timeout is of type str", dict(timeout="3")), (TypeError, "gather|scheduled_time is", dict(scheduled_time="now")),
                                 (ValueError, "gather holds a text that is no valid UTF-8", dict(gather="\ud800"))]:
        refused(kind, match, lambda: averager.step(**options))
    waggle.Averager(pair[0], {"x": x}, prefix="numbers-of-numpy", target_group_size=np.int64(4), alpha=np.float32(0.5),
                    matchmaking_time=datetime.timedelta(seconds=1), auxiliary=np.bool_(False)).shutdown()
    moved = torch.zeros(3)
    of_torch = waggle.Averager(pair[0], {"t": moved}, prefix="moved")
    moved.resize_(1000)
    refused(waggle.Error, "'t' was moved", of_torch.step)
    dht = waggle.DHT(pair[0])
    refused(waggle.Error, "lifetime", lambda: dht.store("k", 1, ttl=-1))
    refused(TypeError, "bytes", lambda: dht.store("k", b"1", ttl=1))
    refused(TypeError, "ttl is of type NoneType, and must be a number of seconds", lambda: dht.store("k", 1, ttl=None))
    refused(TypeError, "key is of type int, and must be a text", lambda: dht.get(5))
    refused(TypeError, "subkey is of type int", lambda: dht.store("k", 1, ttl=1, subkey=5))
    refused(TypeError, "keys is of type str, and must be a list of texts", lambda: dht.get_many("ab"))
    pair[0].leave()
    refused(waggle.Error, "has left the run", averager.step)
    refused(waggle.Error, "has left the run", lambda: dht.get("k"))


def test_other_tensors_are_named(pair):
    steps = [waggle.Averager(n, {"x": np.zeros(3, t)}, prefix="differ", matchmaking_time=0.5)
             for n, t in zip(pair, (np.float32, np.float64))]
    for out in both([lambda a=a: a.step(timeout=6) for a in steps]):
        assert isinstance(out, waggle.Error) and out.code == "schema_mismatch"
        assert "tensor 0 is 'x' float" in str(out) and "here, and 'x' float" in str(out)


def test_values_of_the_dht(pair):
    dhts = [waggle.DHT(n) for n in pair]
    assert dhts[1].get("nothing") is None
    dhts[0].store("one", [1, {"a": None}], ttl=60)
    assert dhts[1].get("one") == [1, {"a": None}]
    for name, dht in zip("ab", dhts):
        dht.store("many", name, ttl=60, subkey=name)
    assert dhts[0].get("many") == {"a": "a", "b": "b"}
    keys = ["one", "many", "none"]
    assert dhts[1].get_many(keys) == {"one": [1, {"a": None}], "many": {"a": "a", "b": "b"}, "none": None}
    assert asyncio.run(asyncio.to_thread(dhts[1].get, "one")) == [1, {"a": None}]


def test_other_threads_run_while_a_step_waits(pair):
    averager = waggle.Averager(pair[0], {"x": np.zeros(3, np.float32)}, prefix="alone")
    step = averager.step(wait=False, timeout=1000)
    waiting = threading.Thread(target=lambda: pytest.raises(waggle.Error, step.result), daemon=True)
    waiting.start()
    assert step.stage == "looking for group"  # this thread has the GIL meanwhile
    step.cancel()
    waiting.join(60)
    assert not waiting.is_alive()


def test_a_forked_process_has_no_peer(pair):
    averager = waggle.Averager(pair[0], {"x": np.zeros(3, np.float32)}, prefix="fork")
    child = os.fork()
    if child == 0:
        try:
            averager.step()
        except waggle.Error as e:
            os._exit(0 if e.code == "not_owner" else 2)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0


def test_a_newcomer_loads_the_state_of_the_peer_with_the_highest_priority(pair):
    class Counted(waggle.Averager):
        def get_current_state(self):
            return {"epoch": 7}, {"w": np.full((2, 3), 7, np.float64), "none": np.zeros(0, np.float32)}

    w = {"w": torch.full((2,), 3, dtype=torch.bfloat16), "f": np.arange(3, dtype=np.float32)}
    first = waggle.Averager(pair[0], w, prefix="state", state_sharing_priority=1)
    with node(pair[0]) as third, node(pair[0]) as fourth:
        counted = Counted(third, w, prefix="state", state_sharing_priority=2.5)
        newcomer = waggle.Averager(fourth, w, prefix="state", allow_state_sharing=False)
        loaded = newcomer.load_state_from_peers(wait=False, timeout=60).result(90)
        while loaded[0] is None:  # the record of the other one came first
            loaded = newcomer.load_state_from_peers(timeout=60)
        assert loaded[0] == {"epoch": 7}
        assert loaded[1]["w"].dtype == torch.float64 and loaded[1]["w"].tolist() == [[7] * 3] * 2
        assert loaded[1]["none"].shape == (0,)
        counted.allow_state_sharing = False  # its donor refuses at once, whatever the records say
        metadata, tensors = newcomer.load_state_from_peers(timeout=60)
        assert metadata is None and tensors["w"].dtype == torch.bfloat16 and tensors["w"].tolist() == [3, 3]
        assert tensors["f"].tolist() == [0, 1, 2]
        with pytest.raises(waggle.Error) as large:
            newcomer.load_state_from_peers(timeout=60, bytes_max=10)
        assert large.value.code == "oversize"
        first.allow_state_sharing = False
        with pytest.raises(waggle.Error, match="share it with nobody now: 2") as refused:
            newcomer.load_state_from_peers(timeout=600)
        assert refused.value.code == "not_owner" and not first.allow_state_sharing
        first.state_sharing_priority, first.allow_state_sharing = 5, True
        loaded = None
        while loaded is None:
            try:
                loaded = newcomer.load_state_from_peers(timeout=60)
            except waggle.Error as error:  # its record is on its way
                assert error.code == "not_owner"
        assert loaded[1]["f"].tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match="state_sharing_priority"):
        first.state_sharing_priority = float("nan")
    with pytest.raises(ValueError, match="declare_state_period"):
        waggle.Averager(pair[1], w, prefix="often", declare_state_period=0.1)
