"""How a peer ends, what becomes of its samples, and where its files and its log go."""

import gc
import json
import logging
import pathlib
import shutil
import signal
import subprocess
import threading
from datetime import timedelta

import pytest
import torch
from support import PROGRAM, eventually, join, loss_of, net, processes

import waggle

HERE = pathlib.Path(__file__).parent


def optimizer(swarm, model, **more):
    return waggle.Optimizer(torch.optim.SGD(model.parameters(), 0.1), swarm, model, samples=4, **more)


def train(model, opt, i):
    opt.zero_grad()
    loss_of(model, i).backward()
    opt.step()


def in_thread(call):
    """Calls it in another thread, which has to end it."""
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()


@pytest.mark.parametrize("how", ["leave", "timer", "with", "garbage"])
def test_any_thread_may_leave(how, tmp_path):
    model = net()
    swarm = join(tmp_path)
    opt = optimizer(swarm, model, target_batch_size=4)
    for i in range(3):
        train(model, opt, i)
    if how == "leave":
        in_thread(opt.leave)
    elif how == "timer":
        timer = threading.Timer(0, swarm.leave)
        timer.start()
        timer.join(60)
        assert not timer.is_alive()
    elif how == "with":
        def body():
            with opt:
                pass

        in_thread(body)
    else:
        held = [opt, swarm]
        opt = swarm = None
        in_thread(lambda: (held.clear(), gc.collect()))
    if how != "garbage":
        assert swarm.status().samples_used == 12
        with pytest.raises(waggle.Error, match="has left the run"):
            opt.step()
    join(tmp_path).leave()  # the folder is free


def test_a_leave_ends_the_wait_of_another_thread(tmp_path):
    left = []
    peer = []

    def loop():
        model = net()
        peer.append(optimizer(join(tmp_path), model, target_batch_size=4, min_peers=2))
        try:
            train(model, peer[0], 0)
        except waggle.Error as e:
            left.append(e.code)

    thread = threading.Thread(target=loop, daemon=True)
    thread.start()
    assert eventually(lambda: peer and peer[0].swarm.status().waiting_for)
    peer[0].leave()
    thread.join(60)
    assert left == ["shutting_down"]
    status = peer[0].swarm.status()
    assert (status.samples_offered, status.samples_dropped, status.samples_pending) == (4, 4, 0)


@pytest.mark.parametrize("mode", ["daemon", "daemons"])
def test_a_program_ends_though_daemon_threads_wait_in_a_peer(mode, tmp_path):
    with processes(tmp_path) as start:
        program = start.python(mode, HERE / "ends.py", mode, tmp_path / "peer")
        program.line("the program ends")
        assert program.ended() == 0, program.log
        assert "loop ended at epoch" in program.log
        assert "Traceback" not in program.log and "terminate" not in program.log, program.log


def balanced(status):
    assert status.samples_offered == status.samples_used + status.samples_dropped + status.samples_pending, status
    return status


@pytest.mark.parametrize("in_a_hurry", [False, True])
@pytest.mark.parametrize("strategy, used", [("collaborative", 12), ("local-updates", 20), ("diloco:steps=3", 12),
                                            ("decentralized-sgd", 20), ("data-parallel", 20)])
def test_each_sample_is_used_dropped_or_pending(strategy, used, in_a_hurry, tmp_path):
    def run(folder, steps, **more):
        model = net()
        target = {"target_batch_size": 12} if strategy in ("collaborative", "local-updates") else {}
        opt = optimizer(join(tmp_path / folder, **more), model, strategy=strategy, **target)
        opt.kept()
        for i in range(steps):
            train(model, opt, i)
            balanced(opt.swarm.status())
        opt.leave(in_a_hurry=in_a_hurry)
        return balanced(opt.swarm.status())

    first = run("kept", 5)
    assert (first.samples_offered, first.samples_used) == (20, used)
    assert first.samples_pending == 20 - used or in_a_hurry  # the copy may take too long for that
    second = run("kept", 5)
    assert second.samples_offered == 20 + first.samples_pending and second.samples_used >= first.samples_pending
    without = run("thrown away", 5, resume=False)
    assert (without.samples_used, without.samples_dropped, without.samples_pending) == (used, 20 - used, 0)


def test_a_folder_stays_where_it_was_when_the_process_goes_elsewhere(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    for epochs in (1, 2):
        monkeypatch.chdir(tmp_path / "here")
        model = net()
        swarm = waggle.join("tests", listen="127.0.0.1:0", log_level="error", data_dir="peer")
        monkeypatch.chdir(tmp_path / "there")
        with optimizer(swarm, model, target_batch_size=4) as opt:
            opt.kept()
            train(model, opt, 0)
            assert swarm.epoch == epochs
    assert swarm.data_dir == str(tmp_path / "here/peer")
    assert waggle.load_checkpoint(tmp_path / "here/peer").epoch == 2
    assert not list((tmp_path / "there").iterdir())


def test_without_a_folder_each_run_begins_anew_and_what_resumes_says_so(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = []

    def epochs_of(run, **more):
        model = net()
        with waggle.join(run, listen="127.0.0.1:0", log_level="warn", log=lambda *line: lines.append(line),
                         **more) as swarm:
            opt = optimizer(swarm, model, target_batch_size=4)
            opt.kept()
            train(model, opt, 0)
            return swarm.epoch, swarm.data_dir

    epoch, birds = epochs_of("birds")
    assert epoch == 1 and pathlib.Path(birds).parent == tmp_path / ".waggle"
    assert epochs_of("bees")[0] == 1 and not lines
    assert epochs_of("birds") == (2, birds)
    assert [level for level, _ in lines] == ["warn"]
    assert "resumed from the checkpoint of epoch 1 (" in lines[0][1] and "to begin anew, remove" in lines[0][1]
    lines.clear()
    assert epochs_of("bees", data_dir=birds)[0] == 3
    assert "resumed from the checkpoint of epoch 2 of another run" in lines[0][1]


def test_a_damaged_checkpoint_is_said_and_the_one_before_is_read(tmp_path):
    model = net()
    for i in range(2):
        with optimizer(join(tmp_path, log_level="error"), model, target_batch_size=4) as opt:
            opt.kept()
            train(model, opt, i)
    older, newest = sorted((tmp_path / "peer/checkpoints").glob("*.wgl"))
    assert waggle.load_checkpoint(tmp_path / "peer").epoch == 2
    newest.write_bytes(newest.read_bytes()[:-1])
    with pytest.warns(UserWarning, match=f"{newest.name}: it is cut off.*: the checkpoint before it is read"):
        assert waggle.load_checkpoint(tmp_path / "peer").epoch == 1
    exported = subprocess.run([PROGRAM, "export", "--data-dir", tmp_path, tmp_path / "out"], capture_output=True,
                              text=True)
    assert exported.stdout == f"epoch 1 is in {tmp_path / 'out'}\n", exported.stderr
    assert newest.name in exported.stderr and "the checkpoint before it is used" in exported.stderr
    with pytest.raises(waggle.Error, match="cut off"):
        waggle.load_checkpoint(newest)
    older.write_bytes(b"")
    with pytest.warns(UserWarning), pytest.raises(waggle.Error, match=newest.name):
        waggle.load_checkpoint(tmp_path / "peer")


def run_one_step(folder, **more):
    model = net()
    with optimizer(join(folder, log_level="info", **more), model, target_batch_size=4) as opt:
        train(model, opt, 0)


def test_a_logger_gets_the_lines_and_standard_error_none(tmp_path, caplog, capfd):
    with caplog.at_level(logging.INFO):
        run_one_step(tmp_path, log=logging.getLogger("birds"))
    ours = [record for record in caplog.records if record.name == "birds"]
    assert [record.levelno for record in ours if "listening on 127.0.0.1:" in record.getMessage()] == [logging.INFO]
    assert "this peer's loop ended at epoch 1" in ours[-1].getMessage()
    assert {record.threadName for record in ours} == {"waggle-log"}
    assert capfd.readouterr().err == ""


def test_a_function_gets_them_also_if_it_fails_or_leaves(tmp_path, capfd):
    lines = []

    def take(level, text):
        lines.append((level, text))
        raise KeyError(text)

    run_one_step(tmp_path, log=take)
    assert ("info", "trainer is training at epoch 0") in lines and len(lines) > 5
    assert capfd.readouterr().err.count("Traceback") == len(lines)

    model = net()
    swarm = join(tmp_path, log_level="info",
                 log=lambda level, text: swarm.leave() if "trainer is training" in text else None)
    opt = optimizer(swarm, model, target_batch_size=4, min_peers=2)
    with pytest.raises(waggle.Error, match="has left"):
        for i in range(1000):
            train(model, opt, i)


def test_a_log_that_is_none_is_refused(tmp_path):
    with pytest.raises(TypeError, match="log is of type str, and must be a logging.Logger, or a function"):
        join(tmp_path, log="peer.log")


def test_a_notice_ends_the_loop_when_its_samples_are_in_an_update(tmp_path):
    model = net()
    swarm = join(tmp_path)
    opt = optimizer(swarm, model, target_batch_size=8)
    for i in range(6):
        train(model, opt, i)
    in_thread(lambda: swarm.notice(5))
    for i in range(1000):  # it ends long before
        train(model, opt, i)
        if opt.last == "finished":
            break
    assert opt.last == "finished" and swarm.finished
    opt.leave()
    status = swarm.status()
    assert status.samples_dropped == 0 and status.samples_pending < 8, status
    assert status.samples_offered == status.samples_used + status.samples_pending, status
    swarm.notice(5)  # does nothing any more


def test_a_signal_is_a_notice_once(tmp_path):
    before = signal.getsignal(signal.SIGUSR1)
    seen = []
    signal.signal(signal.SIGUSR1, lambda *_: seen.append(1))
    try:
        waggle.leave_on_notice(signal.SIGUSR1, within=timedelta(seconds=5))
        model = net()
        opt = optimizer(join(tmp_path), model, target_batch_size=4)
        train(model, opt, 0)
        signal.raise_signal(signal.SIGUSR1)
        for i in range(1000):
            train(model, opt, i)
            if opt.last == "finished":
                break
        assert opt.last == "finished" and not seen
        signal.raise_signal(signal.SIGUSR1)
        assert seen
        opt.leave()
        waggle.leave_on_notice(signal.SIGUSR1, within=5)
        signal.raise_signal(signal.SIGUSR1)  # no peer is left that could wait for anything
        assert len(seen) == 2
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_peers_that_are_taken_away_one_after_another_lose_no_sample(tmp_path):
    with processes(tmp_path) as start:
        peers = []

        def add(number):
            where = ["--peer", peers[0].line("address ")] if peers else []
            peers.append(start.python(f"peer{number}", HERE / "ranks_loop.py", tmp_path / f"peer{number}", "--strategy", "diloco:steps=500",
                                      "--epochs", 0, "--seed", number, "--leave-within", 300, *where))
            peers[-1].line("stepped 20 ")

        for number in range(3):
            add(number)
        for number in range(3, 6):  # the first, which began the run, too
            doomed = peers.pop(0)
            doomed.kill(signal.SIGTERM)
            assert doomed.ended() == 0, doomed.log
            status = json.loads(doomed.line("STATUS ")[1:])
            assert status["samples_pending"] == 0 and status["samples_dropped"] <= 8, status  # of a newcomer's first gradient
            assert status["samples_offered"] == status["samples_used"] + status["samples_dropped"], status
            shutil.rmtree(tmp_path / f"peer{number - 3}")
            add(number)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_peer_that_is_to_leave_within_a_time_takes_signals_for_notices(number, tmp_path):
    before = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGUSR1)}
    try:
        swarm = join(tmp_path, leave_within=timedelta(seconds=60))
        model = net()
        opt = optimizer(swarm, model, target_batch_size=8)
        train(model, opt, 0)
        signal.raise_signal(number)
        for i in range(1000):
            train(model, opt, i)
            if opt.last == "finished":
                break
        assert opt.last == "finished"
        opt.leave()
        assert signal.getsignal(number) == before[number]
        errors = []
        in_thread(lambda: errors.append(pytest.raises(ValueError, join, tmp_path, leave_within=5)))
        assert "leave_within makes signals a notice, which only the main thread may do" in str(errors[0].value)
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


@pytest.mark.parametrize("within, error", [(0, ValueError), (-1, ValueError), (86400, ValueError), (float("nan"), ValueError),
                                           (float("inf"), ValueError), ("25s", TypeError), (True, TypeError)])
def test_a_notice_of_no_time_or_of_a_day_is_refused(within, error, tmp_path):
    before = signal.getsignal(signal.SIGTERM)
    for give in (join(tmp_path).notice, lambda within: waggle.leave_on_notice(within=within),
                 lambda within: join(tmp_path / "other", leave_within=within)):
        with pytest.raises(error, match="1 s, which a goodbye takes, to 3600 s|must be finite" if error is ValueError else "within"):
            give(within)
    assert signal.getsignal(signal.SIGTERM) is before
