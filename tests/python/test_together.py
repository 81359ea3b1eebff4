"""Python peers with others: real processes on the loopback interface."""

import json
import os
import pathlib
import urllib.request

import pytest
import torch
from support import GPU, ROOT, eventually, one_joins_later_and_one_is_killed, processes

HERE = pathlib.Path(__file__).parent
EPOCHS = 60


def status_of(address):
    try:
        with urllib.request.urlopen(f"http://{address}/api/v1/status", timeout=5) as answer:
            return json.load(answer)
    except OSError:
        return {}


def ending(process):
    assert process.ended() == 0, process.log
    return json.loads(process.line("STATUS "))


@pytest.mark.skipif("avx2" not in pathlib.Path("/proc/cpuinfo").read_text(), reason="this machine cannot be two processors")
@pytest.mark.parametrize("optimizer", ["adamw", "own"])
def test_one_on_an_older_processor_trains_with_another_and_neither_doubts_its_state(optimizer, tmp_path):
    with processes(tmp_path) as start:
        loops = []
        for i, capability in enumerate(["default", "avx2"]):
            where = loops[0].line("address ") if loops else ""
            loops.append(start.python(f"loop{i}", HERE / "loop.py", tmp_path / f"peer{i}", where, i, EPOCHS, optimizer, 2,
                                      ATEN_CPU_CAPABILITY=capability))
        ends = [ending(loop) for loop in loops]
        for end, loop in zip(ends, loops):
            assert end["epoch"] == EPOCHS
            assert loop.log.count("rounds updates differently") == 1
            assert "differ from ours" not in loop.log and "our parameters differ" not in loop.log


@pytest.mark.parametrize("optimizer, devices", [
    ("own", ["cpu"] * 4),
    *[pytest.param(optimizer, devices, marks=GPU.marks) for optimizer in ("own", "adamw")
      for devices in (["cuda"] * 4, ["cuda", "cpu", "cuda", "cpu"])],
])
def test_one_joins_later_and_one_is_killed(optimizer, devices, tmp_path):
    with processes(tmp_path) as start:
        ends = [ending(each) for each in one_joins_later_and_one_is_killed(
            tmp_path / "slow", lambda i, where, min_peers, slow: start.python(
                f"loop{i}", HERE / "loop.py", tmp_path / f"peer{i}", where, i, EPOCHS, optimizer, min_peers, slow, devices[i]))]
        if len(set(devices)) == 1:  # otherwise they round differently
            assert len({end["parameters"] for end in ends}) == 1
        assert ends[1]["rounds"] > 0


@pytest.mark.skipif(torch.__version__ < "2.4", reason="older versions have neither")
@pytest.mark.parametrize("kind", ["sgd fused", "sgd tensor"])
def test_switches_with_which_updates_have_the_same_bits_do_not_keep_peers_apart(kind, tmp_path):
    with processes(tmp_path) as start:
        first = start.python("first", HERE / "loop.py", tmp_path / "first", "", 1, EPOCHS, "sgd", 2)
        second = start.python("second", HERE / "loop.py", tmp_path / "second", first.line("address "), 2, EPOCHS, kind, 2)
        ends = [ending(each) for each in (first, second)]
        assert ends[0]["parameters"] == ends[1]["parameters"]
        assert "our parameters differ" not in first.log + second.log
        assert "this loop set the learning rate" not in first.log + second.log


def test_masters_with_others_of_float32_end_with_equal_parameters_though_one_joins_later(tmp_path):
    """What travels is float32. Modules in bfloat16 have the rounded values."""
    kinds = ["masters", "adamw", "masters", "masters"]
    with processes(tmp_path) as start:
        slow = tmp_path / "slow"  # until all have started
        slow.touch()

        def loop(i, where, min_peers):
            return start.python(f"loop{i}", HERE / "loop.py", tmp_path / f"peer{i}", where, i, EPOCHS, kinds[i], min_peers, slow)

        first = loop(0, "", 3)
        loops = [first, *(loop(i, first.line("address "), 3) for i in (1, 2))]
        loops[2].line("in step at epoch")
        loops.append(loop(3, first.line("address "), 1))
        loops[3].line("in step at epoch")
        slow.unlink()
        ends = [ending(each) for each in loops]
        assert len({end["parameters"] for end in ends}) == 1
        assert len({each.line("MODULE ") for each in loops}) == 1
        assert ends[3]["state_downloads"] >= 1 and ends[3]["samples_used"] > 0


def test_the_examples_run_and_differ_in_three_statements(tmp_path):
    def statements(name):
        text = (ROOT / "examples" / name).read_text().split('"""', 2)[2]
        lines = []
        for line in filter(None, map(str.rstrip, text.splitlines())):
            if lines and (lines[-1].count("(") > lines[-1].count(")")):
                lines[-1] += line.strip()
            else:
                lines.append(line)
        return lines

    plain, swarm = statements("plain.py"), statements("swarm.py")
    assert [line for line in plain if line not in swarm] == ["    optimizer.step()"]
    assert len([line for line in swarm if line not in plain and "import" not in line]) == 3
    with processes(tmp_path) as start:
        loops = [start.python("plain", ROOT / "examples/plain.py", "--steps", 150)]
        first = start.python("first", ROOT / "examples/swarm.py", "--listen", "127.0.0.1:0", "--steps", 400, "--data-dir",
                             tmp_path / "first", "--min-peers", 2)
        where = first.line("listening on ").split(";")[0]
        loops += [first, start.python("second", ROOT / "examples/swarm.py", "--listen", "127.0.0.1:0", "--steps", 400,
                                      "--data-dir", tmp_path / "second", "--peer", where, "--min-peers", 2)]
        for loop in loops:
            assert loop.ended() == 0 and "step 100: loss " in loop.log, loop.log


def test_ctrl_c_ends_a_wait_and_the_others_see_a_goodbye(tmp_path):
    with processes(tmp_path) as start:
        waits = start.python("waits", HERE / "ends.py", "waits", tmp_path / "waits")
        waits.line("waiting")
        eventually(lambda: status_of(waits.line("address ")))
        waits.kill(2)
        waits.line("interrupted")
        assert waits.ended() != 0
        assert "KeyboardInterrupt" in waits.log


def test_other_threads_run_while_step_waits(tmp_path):
    with processes(tmp_path) as start:
        counts = start.python("counts", HERE / "ends.py", "counts", tmp_path / "counts")
        counts.line("counted")
        counts.line("interrupted")
        assert counts.ended() == 0, counts.log


def test_workers_of_a_killed_loop_keep_neither_port_nor_folder(tmp_path):
    with processes(tmp_path) as start:
        loop = start.python("workers", HERE / "ends.py", "workers", tmp_path / "workers")
        where = loop.line("address ")
        workers = [int(pid) for pid in loop.line("pids ").split()]
        assert len(workers) == 2
        port = int(where.rsplit(":", 1)[1])
        holders = lambda: [pid for pid in workers if port_is_held(pid, port)]
        assert port_is_held(loop.process.pid, port) and not holders()
        assert "not_owner: this peer belongs to process" in (tmp_path / "workers/refused").read_text()
        for pid in workers:
            os.kill(pid, 19)  # they must not end first
        loop.kill()
        loop.ended()
        assert not holders()
        next_one = start.python("next", HERE / "ends.py", "exits", tmp_path / "workers")
        next_one.line("exits")
        assert next_one.ended() == 0, next_one.log
        for pid in workers:
            os.kill(pid, 9)


def test_children_of_a_killed_loop_keep_neither_port_nor_links(tmp_path):
    with processes(tmp_path) as start:
        loop = start.python("loop", HERE / "ends.py", "children", tmp_path / "loop")
        where = loop.line("address ")
        other = start.python("other", HERE / "ends.py", "children", tmp_path / "other", where)
        assert eventually(lambda: status_of(where).get("group_size") == 2)
        children = [int(each.line("child ")) for each in (loop, other)]
        try:
            for each in ("loop", "other"):
                kept = set((tmp_path / each / "inherited").read_text().split())
                assert kept - {"10"} == {"0", "1", "2"}  # at 10 the shell keeps its own output
            loop.kill()
            loop.ended()
            assert not any(port_is_held(pid, int(where.rsplit(":", 1)[1])) for pid in children)
            other.line("lost peer")  # its link has ended, too
            next_one = start.python("next", HERE / "ends.py", "exits", tmp_path / "loop")
            next_one.line("exits")
            assert next_one.ended() == 0, next_one.log
        finally:
            for pid in children:
                os.kill(pid, 9)


def port_is_held(pid, port):
    """Whether a process has a descriptor of a socket with this local port."""
    inodes = set()
    for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]:
        words = line.split()
        if int(words[1].split(":")[1], 16) == port:
            inodes.add(words[9])
    for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = os.readlink(fd)
        except OSError:
            continue
        if target.startswith("socket:[") and target[8:-1] in inodes:
            return True
    return False


def test_a_process_that_ends_without_leaving_says_goodbye(tmp_path):
    with processes(tmp_path) as start:
        first = start.python("first", HERE / "ends.py", "workers", tmp_path / "first")
        where = first.line("address ")
        second = start.python("second", HERE / "ends.py", "exits", tmp_path / "second", where)
        second.line("exits")
        assert second.ended() == 0
        first.line("the peer said goodbye")
        assert "loop ended at epoch" in second.log
