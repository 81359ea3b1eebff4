"""Ranks of a group of torch.distributed, which are one peer together."""

import contextlib
import json
import pathlib
import re
import signal
import sys
import urllib.request

import pytest
import torch
from support import ROOT, eventually, join, loss_of, net, processes

import waggle

HERE = pathlib.Path(__file__).parent
pytestmark = pytest.mark.skipif(torch.__version__.startswith(("1.", "2.0.")), reason="group needs torch 2.1 or later")
KINDS = ["plain", "ddp", "fsdp"]


class Island:
    """Its ranks, as torchrun starts them, without its own process."""

    def __init__(self, start, folder, name, *arguments, ranks=2):
        # At a file, because another process may take a port that was free.
        self.ranks = [start.python(f"{name}.{rank}", HERE / "ranks_loop.py", folder / name, "--ranks-meet",
                                   f"file://{folder}/{name}.ranks", *arguments, RANK=str(rank), WORLD_SIZE=str(ranks))
                      for rank in range(ranks)]

    def address(self):
        return self.ranks[0].line("address ")

    def ending(self):
        """The status, and the values of parameters and of statistics, which all ranks have."""
        for each in self.ranks:
            assert each.ended() == 0, each.log
        endings = [each.line("VALUES ")[1:] for each in self.ranks]
        assert endings == endings[:1] * len(endings)
        assert [json.loads(each.line("STATUS ")[1:]) for each in self.ranks][0]["finished"]
        return json.loads(self.ranks[0].line("STATUS ")[1:]), *json.loads(endings[0])

    def extras(self):
        """The extra tensors of each rank, which an update makes equal."""
        return {each.line("EXTRA ") for each in self.ranks}


def torchrun(start, name, *command, **environment):
    return start(name, sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 2, *command, **environment)


def single(start, folder, name, *arguments):
    island = Island.__new__(Island)
    island.ranks = [start.python(name, HERE / "ranks_loop.py", folder / name, *arguments)]
    return island


def close(ours, theirs):
    return all(abs(a - b) <= 1e-6 * max(1, abs(b)) for mine, other in zip(ours, theirs, strict=True)
               for a, b in zip(mine, other, strict=True))


def test_an_island_alone_is_one_process_with_its_batch(tmp_path):
    with processes(tmp_path) as start:
        one = single(start, tmp_path, "one", "--samples", 16, "--target", 32)
        islands = [Island(start, tmp_path, kind, "--kind", kind, "--target", 32, "--uneven", 3, "--loss-scale", 1024) for kind in KINDS]
        _, parameters, statistics = one.ending()
        for island in islands:
            status, ours, kept = island.ending()
            assert close(ours, parameters) and close(kept, statistics)
            assert len(island.extras()) == 1
            assert status["samples_used"] == 20 * 32


@pytest.mark.parametrize("strategy", ["collaborative", "diloco:steps=5"])
def test_a_loss_that_is_no_number_on_one_rank_drops_the_step_of_all(strategy, tmp_path):
    with processes(tmp_path) as start:
        target = ["--target", 16] if strategy == "collaborative" else []
        island = Island(start, tmp_path, "island", "--strategy", strategy, "--epochs", 4, "--how", "nan", "--fail-on", 1, *target)
        assert island.ending()[0]["samples_dropped"] == 16
        for each in island.ranks:
            assert each.line("stepped 4 ") == "dropped"


@pytest.mark.parametrize("strategy", ["collaborative", "diloco:steps=5"])
def test_islands_of_each_kind_and_a_process_are_equal_peers_whoever_joins_later(strategy, tmp_path):
    slow = tmp_path / "slow"
    slow.touch()
    of_run = ["--strategy", strategy, "--epochs", 60, "--slow", slow, *(["--target", 64] if strategy == "collaborative" else [])]
    with processes(tmp_path) as start:
        first = Island(start, tmp_path, "first", "--kind", "fsdp", *of_run)
        where = first.address()
        first.ranks[1].line("stepped 6")
        others = [Island(start, tmp_path, "second", "--kind", "ddp", "--peer", where, "--seed", 2, *of_run)]
        donor = others[0].address()
        others[0].ranks[1].line("stepped 1")
        others.append(single(start, tmp_path, "third", "--peer", donor, "--seed", 3, *of_run))
        others[1].ranks[0].line("stepped 1")
        slow.unlink()
        _, parameters, statistics = first.ending()
        for each in others:
            status, ours, kept = each.ending()
            assert status["state_downloads"] > 0
            assert ours == parameters
            assert kept == statistics or strategy != "collaborative"  # with diloco, each peer has its own


@pytest.mark.parametrize("doomed", [0, 1])
def test_a_killed_rank_ends_its_island_and_no_other_peer(doomed, tmp_path):
    of_run = ["--epochs", 60, "--target", 32]
    slow = tmp_path / "slow"
    slow.touch()
    with processes(tmp_path) as start:
        other = single(start, tmp_path, "other", "--slow", slow, *of_run)
        island = Island(start, tmp_path, "island", "--kind", "fsdp", "--peer", other.address(), "--slow", slow, *of_run)
        for rank in island.ranks:
            rank.line("stepped 3")
        island.ranks[doomed].kill()
        left = island.ranks[1 - doomed]
        assert left.ended() == 1, left.log
        assert f"has ended or does not answer, so rank {1 - doomed} ends, too" in left.log or "/gloo/" in left.log, left.log
        if doomed == 1:
            assert "this peer is stopping" in left.log  # it says goodbye
        slow.unlink()
        other.ending()


@pytest.mark.parametrize("how, sentence", [
    ("raise", "of the group.* has ended or does not answer, so rank 0 ends, too|/gloo/.*Connection (closed|reset) by peer"),  # in a call, or in a pass
    ("kept", "rank 1 of the group calls kept, and rank 0 calls step: all ranks make the same calls in the same order"),
    ("samples", "rank 1: samples is 0, and must be a whole number from 1"),
    ("module", r"rank 1 has 0.weight \[7, 6\]"),
    ("batch", "rank 1 has 7 samples and rank 0 8, and the mean that DistributedDataParallel and fully_shard make"),
])
def test_what_one_rank_does_alone_ends_all(how, sentence, tmp_path):
    with processes(tmp_path) as start:
        island = Island(start, tmp_path, "island", "--kind", "plain" if how in ("module", "kept") else "ddp", "--target", 64,
                        "--fail-on", 1, "--how", how)
        for rank in island.ranks:
            assert rank.ended() == 1, rank.log
        assert re.search(sentence, island.ranks[0].log), island.ranks[0].log


@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_deals_its_blocks_to_the_ranks_in_turn(kind, tmp_path):
    blocks = 23
    with processes(tmp_path) as start:
        island = Island(start, tmp_path, "island", "--kind", kind, "--blocks", blocks, "--target", 20, "--epochs", 0)
        status, *_ = island.ending()
        assert status["passes"][0][1:] == [blocks, 0, 0]  # once, twice, never
        dealt = [json.loads(each.line("DEALT ")) for each in island.ranks]
        assert all(dealt) and {*dealt[0], *dealt[1]} == {4 * i + n for i in range(blocks) for n in range(i % 4)}
        assert len(dealt[0]) + len(dealt[1]) <= len({*dealt[0], *dealt[1]}) + 3  # the last block, which both ranks get


def test_a_stream_is_not_cut_into_batches_where_ranks_wait_in_each_pass(tmp_path):
    with processes(tmp_path) as start:
        island = Island(start, tmp_path, "island", "--kind", "ddp", "--blocks", 9, "--target", 20, "--epochs", 0, "--fail-on", 0, "--how", "batches")
        assert island.ranks[0].ended() == 1
        assert "give waggle.Optimizer the plain module, or compute each block in one pass" in island.ranks[0].log


@pytest.mark.parametrize("to", [0, 1])
def test_a_notice_of_any_rank_is_one_of_all(to, tmp_path):
    with processes(tmp_path) as start:
        island = Island(start, tmp_path, "island", "--kind", "ddp", "--epochs", 0, "--target", 32, "--leave-within", 60)
        for rank in island.ranks:
            rank.line("stepped 3")
        island.ranks[to].kill(signal.SIGTERM)
        status, *_ = island.ending()
        assert status["samples_offered"] == status["samples_used"] + status["samples_pending"], status
        assert status["samples_pending"] < 32
        assert "this peer's machine will be taken away within 60 s" in island.ranks[0].log


def test_a_notice_of_a_rank_that_does_not_lead_ends_a_wait(tmp_path):
    with processes(tmp_path) as start:
        island = Island(start, tmp_path, "island", "--min-peers", 2, "--target", 32, "--leave-within", 60)
        island.ranks[0].line("for 10 s now waiting")  # so all are in the step
        island.ranks[1].kill(signal.SIGTERM)
        island.ending()


@pytest.mark.parametrize("kind", KINDS)
def test_the_status_names_the_ranks_and_how_long_each_works(kind, tmp_path):
    slow = tmp_path / "slow"
    slow.touch()
    with processes(tmp_path) as start:
        island = Island(start, tmp_path, "island", "--kind", kind, "--target", 32, "--fail-on", 1, "--lag", 0.2, "--slow", slow)
        address = island.address()

        def ranks():
            with urllib.request.urlopen(f"http://{address}/api/v1/status") as answer:
                each = json.load(answer)["ranks"]["each"]
            return each and each[1]["seconds"] >= 0.2 and each[0]["pass_seconds"] >= 0.2 and each
        assert [(rank["rank"], rank["device"]) for rank in eventually(ranks)] == [(0, "cpu"), (1, "cpu")]
        slow.unlink()
        island.ending()


def test_a_wait_may_be_longer_than_the_timeout_of_the_group(tmp_path):
    of_run = ["--target", 32, "--min-peers", 2, "--epochs", 5]
    with processes(tmp_path) as start:
        island = Island(start, tmp_path, "island", "--timeout", 8, *of_run)
        where = island.address()
        island.ranks[0].line("for 10 s now waiting")
        other = single(start, tmp_path, "other", "--peer", where, *of_run)
        assert other.ending()[1:] == island.ending()[1:]


def test_samples_are_dealt_to_all_ranks_and_enter_one_update_a_pass(tmp_path):
    with processes(tmp_path) as start:
        island = Island(start, tmp_path, "island", "--kind", "fsdp", "--target", 32, "--shards", 403, "--epochs", 0)
        status, *_ = island.ending()
        assert status["passes"][0] == [1, 403, 0, 0]
        assert status["samples_used"] == 403
        dealt = [set(json.loads(rank.line("DEALT "))) for rank in island.ranks]
        assert dealt[0] | dealt[1] == set(range(403)) and len(dealt[0] & dealt[1]) <= 1


def test_the_example_runs_and_joins_a_process(tmp_path):
    of_run = ["--steps", 150, "--min-peers", 2, "--listen", "127.0.0.1:0"]
    with processes(tmp_path) as start:
        one = start.python("one", ROOT / "examples/swarm.py", "--data-dir", tmp_path / "one", *of_run)
        ranks = torchrun(start, "ranks", ROOT / "examples/ranks.py", "--data-dir", tmp_path / "ranks", "--peer",
                         one.line("listening on ").split(";")[0], *of_run)
        for each in (one, ranks):
            assert each.ended() == 0 and "step 100: loss " in each.log, each.log


SCRIPT = """
import os, torch
from support import loss_of, net

model = net(seed=int(os.environ["RANK"]))
optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
for i in range(6):
    optimizer.zero_grad()
    loss_of(model, 2 * i + int(os.environ["RANK"])).backward()
    optimizer.step()
values = [p.tolist() for p in model.parameters()]
os.write(1, f"values{os.environ['RANK']} {values}\\n".encode())  # at once: the ranks share the file
"""


def test_the_ranks_of_a_launched_script_are_one_peer(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    with processes(tmp_path) as start:
        script = torchrun(start, "script", "-m", "waggle", "--listen", "127.0.0.1:0", "--data-dir", tmp_path / "peer",
                          "--target-batch-size", 8, tmp_path / "script.py", PYTHONPATH=":".join([str(HERE), *sys.path]))
        assert script.ended() == 0, script.log
        assert "batches of 4 samples on each rank, which are one peer" in script.log
        assert script.log.count("listening on") == 1 and "ended at epoch 6" in script.log
        assert script.line("values0 ") == script.line("values1 ")


LIGHTNING = """
import os, sys, lightning, torch
from support import batch, net
from waggle.lightning import SwarmStrategy

rank = int(os.environ.get("RANK", 0))

class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = net(seed=rank)

    def training_step(self, both, i):
        return torch.nn.functional.mse_loss(self.net(both[0]), both[1])

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), 1e-2)

module = Module()
strategy = SwarmStrategy(8, "tests", listen="127.0.0.1:0", data_dir=sys.argv[1])
trainer = lightning.Trainer(strategy=strategy, accelerator="cpu", devices=int(sys.argv[2]), max_epochs=1, logger=False,
                            enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
trainer.fit(module, torch.utils.data.DataLoader([batch(2 * i + rank) for i in range(6)], batch_size=None))
os.write(1, f"values{rank} {[p.tolist() for p in module.parameters()]}\\n".encode())
"""


def test_the_ranks_of_lightning_are_one_peer(tmp_path):
    pytest.importorskip("lightning", minversion="2.0")
    (tmp_path / "script.py").write_text(LIGHTNING)
    path = {"PYTHONPATH": ":".join([str(HERE), *sys.path])}
    with processes(tmp_path) as start:
        ranks = torchrun(start, "ranks", tmp_path / "script.py", tmp_path / "peer", 1, **path)
        alone = start.python("alone", tmp_path / "script.py", tmp_path / "alone", 2, **path)
        assert ranks.ended() == 0, ranks.log
        assert ranks.log.count("listening on") == 1 and "ended at epoch 6" in ranks.log, ranks.log
        assert ranks.line("values0 ") == ranks.line("values1 ")
        assert alone.ended() == 1
        assert "pass devices=1 and start the script by torchrun --nproc-per-node 2, whose ranks are one peer" in alone.log


@contextlib.contextmanager
def group_of_one(folder):
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=0, world_size=1)
    try:
        yield torch.distributed.group.WORLD
    finally:
        torch.distributed.destroy_process_group()


@pytest.mark.parametrize("kind", ["plain", "fsdp"])
def test_a_group_of_one_rank_is_the_plain_loop(kind, tmp_path):
    ours, plain = net(norm=True), net(norm=True)
    inner = torch.optim.AdamW(plain.parameters(), 1e-2)
    with group_of_one(tmp_path) as group:
        if kind == "fsdp":
            torch.distributed.fsdp.fully_shard(ours)
        with waggle.Optimizer(torch.optim.AdamW(ours.parameters(), 1e-2), join(tmp_path, group=group), ours, target_batch_size=4,
                              samples=4) as opt:
            for i in range(6):
                for model, optimizer in ((ours, opt), (plain, inner)):
                    optimizer.zero_grad()
                    loss_of(model, i).backward()
                    optimizer.step()
                assert opt.last == "stepped" and opt.swarm.epoch == i + 1
        whole = [getattr(p, "full_tensor", lambda p=p: p)() for p in ours.parameters()]
        assert all(map(torch.equal, whole, plain.parameters())) and all(map(torch.equal, ours.buffers(), plain.buffers()))


def test_refusals(tmp_path):
    dist = torch.distributed
    with pytest.raises(ValueError, match="not initialized: call init_process_group before waggle.join"):
        join(tmp_path, group=dist.group.WORLD)
    with group_of_one(tmp_path):
        with pytest.raises(TypeError, match="group is of type str, and must be a group of torch.distributed"):
            join(tmp_path, group="WORLD")
        with pytest.raises(ValueError, match="WORLD|HOST:PORT"):
            join(tmp_path, listen="nowhere", group=dist.group.WORLD)
        from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor, init_device_mesh

        mesh = init_device_mesh("cpu", (1,))

        def refused(placement, sentence, **more):
            model = torch.nn.Linear(3, 2)
            model.weight = torch.nn.Parameter(distribute_tensor(model.weight.detach(), mesh, [placement]))
            assert isinstance(model.weight, DTensor)
            swarm = join(tmp_path, **more)
            with pytest.raises(ValueError, match=sentence):
                waggle.Optimizer(torch.optim.SGD(model.parameters(), 0.1), swarm, model, target_batch_size=4)
            swarm.leave(in_a_hurry=True)

        of_all = {"group": dist.group.WORLD}
        refused(Shard(1), r"parameter weight is a DTensor with the placement .*tensor parallel modules cannot", **of_all)
        refused(Replicate(), r"parameter weight is a DTensor with the placement", **of_all)
        refused(Shard(0), r"waggle.join\(…, group=torch.distributed.group.WORLD\)")
        half = net().bfloat16()
        with join(tmp_path, **of_all) as swarm, pytest.raises(ValueError, match="masters=True does not go together with group yet"):
            waggle.Optimizer(torch.optim.SGD(half.parameters(), 0.1), swarm, half, masters=True)
        for sentence, more in [("offload_optimizer and delay_optimizer_step do not go together with group", dict(offload_optimizer=True)),
                               ("offload_optimizer and delay_optimizer_step do not go together with group", dict(delay_optimizer_step=True)),
                               ("auxiliary does not go together with group: start one process that helps", dict(auxiliary=True))]:
            model = net()
            with join(tmp_path, **of_all) as swarm, pytest.raises(ValueError, match=sentence):
                waggle.Optimizer(torch.optim.SGD(model.parameters(), 0.1), swarm, model, **more)
        with join(tmp_path, **of_all) as swarm, pytest.raises(TypeError, match="waggle.Loop trains whole arrays of one process"):
            waggle.Loop(swarm, waggle.LoopModel(), [("w", [2])], target_batch_size=4)
