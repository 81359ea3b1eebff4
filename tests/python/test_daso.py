"""DASO in loops: processes of examples/daso.py, and what a loop without a loss is told."""

import re
import urllib.request

import pytest
import torch
from support import ROOT, batch, eventually, join, net, processes
from test_together import status_of

import waggle


def islands(start, tmp_path, strategy, names, peers=()):
    loops = []
    for seed, name in enumerate(names):
        known = [word for peer in peers for word in ("--peer", peer)]
        loops.append(start.python(name, ROOT / "examples/daso.py", "--listen", "127.0.0.1:0", "--data-dir", tmp_path / name,
                                  "--run", "islands", "--strategy", strategy, "--seed", seed, "--min-peers",
                                  len(names), *known))
        peers = peers or [loops[0].line("listening on ").split(";")[0]]
    return loops, peers


def test_a_run_ends_with_its_last_epoch_though_a_process_is_killed(tmp_path):
    with processes(tmp_path) as start:
        (first, second, doomed), _ = islands(start, tmp_path, "daso:epochs=8,batches=12,warmup=2,cooldown=2",
                                             ["first", "second", "doomed"])
        doomed.line(": skips ")
        doomed.kill()
        ends = []
        for loop in (first, second):
            assert loop.ended() == 0, loop.log
            ends.append(loop.line("ended with parameters "))
            for what in ("daso: warm-up from epoch ", "daso: cycling from epoch ",
                         "daso: cool-down from epoch 7 of 8 on, a round after each batch", "daso: its 8 epochs are over"):
                assert what in loop.log, loop.log
        assert ends[0] == ends[1]


def test_a_joiner_stands_where_the_run_does_in_status_and_metric(tmp_path):
    with processes(tmp_path) as start:
        (first,), peers = islands(start, tmp_path, "daso:epochs=3,batches=8,warmup=1,cooldown=1,endless=1", ["first"])
        first.line("cool-down, epoch 3 of 0")
        (joiner,), _ = islands(start, tmp_path, "daso:epochs=3,batches=8,warmup=1,cooldown=1,endless=1", ["joiner"], peers)
        joiner.line("cool-down, epoch ")
        status = eventually(lambda: (s := status_of(peers[0])).get("group_size") == 2 and s)
        assert status["strategy"]["phase"] == "cool-down" and status["strategy"]["skips"] == 0, status

        def shown():
            with urllib.request.urlopen(f"http://{peers[0]}/metrics", timeout=60) as answer:
                return re.search(r'waggle_training_strategy_phase{[^}]*phase="cool-down"[^}]*} 1\n', answer.read().decode())
        assert eventually(shown)
        assert "daso: cool-down from epoch" in [line for line in first.log.splitlines() if "daso: " in line][-1]
        assert status["strategy"]["epoch"] >= 3 and status["strategy"]["epochs"] == 0


def test_a_loop_without_a_loss_is_told_so_once_at_its_second_step(tmp_path):
    lines = []
    swarm = join(tmp_path, log=lambda level, text: lines.append(text), log_level="warn")
    model = net()
    with swarm:
        optimizer = waggle.Optimizer(torch.optim.SGD(model.parameters(), 0.1), swarm, model,
                                     strategy="daso:epochs=2,batches=8,warmup=1,cooldown=1")
        for i in range(4):
            optimizer.zero_grad()
            x, y = batch(i)
            torch.nn.functional.mse_loss(model(x), y).backward()
            optimizer.step(samples=4)
        status = swarm.status()
        assert status.strategy.name == "warm-up" and status.strategy.epochs == 2 and status.mean_age == 0
    said = [line for line in lines if "gives no loss" in line]
    assert len(said) == 1 and "pass the mean loss" in said[0], lines


def test_a_run_of_one_ends_by_itself(tmp_path):
    model = net()
    with join(tmp_path) as swarm:
        optimizer = waggle.Optimizer(torch.optim.SGD(model.parameters(), 0.1), swarm, model,
                                     strategy="daso:epochs=2,batches=8,warmup=1,cooldown=1")
        steps = 0
        while optimizer.last != "finished":
            optimizer.zero_grad()
            x, y = batch(steps)
            loss = torch.nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step(samples=4, loss=loss)
            steps += 1
        status = swarm.status()
        assert status.finished and status.strategy.epoch == 2 and status.strategy.loss > 0
        assert steps == pytest.approx(16, abs=1)
