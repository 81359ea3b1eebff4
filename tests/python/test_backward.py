"""Gradients that peers receive while the backward pass computes others."""

import contextlib
import gc
import os
import queue
import threading
import time

import pytest
import torch
from support import batch, equal, join, loss_of, net

import waggle

HOOKS = hasattr(torch.Tensor, "register_post_accumulate_grad_hook")
needs_hooks = pytest.mark.skipif(not HOOKS, reason="this torch does not say when a gradient is complete")
BUCKETS = "data-parallel:buckets=1"
EPOCHS = 20


class Tied(torch.nn.Module):
    """A layer that is used twice, one that no pass uses, and running statistics."""

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(6, 6)
        self.norm = torch.nn.BatchNorm1d(6)
        self.unused = torch.nn.Linear(3, 3)
        self.last = torch.nn.Linear(6, 2)

    def forward(self, x):
        return self.last(self.norm(torch.tanh(self.first(torch.tanh(self.first(x))))))


def failing_loss(model, x, y):
    """Once the gradients of the last layer are there, and the time of a larger model's pass."""
    def fail(gradient):
        time.sleep(0.01)
        raise RuntimeError("out of memory")

    hidden = torch.tanh(model.first(x))
    hidden.register_hook(fail)
    return torch.nn.functional.mse_loss(model.last(hidden), y)


def peer(swarm, model, samples=4, **more):
    return waggle.Optimizer(torch.optim.SGD(model.parameters(), 0.1, momentum=0.9), swarm, model,
                            **{"strategy": BUCKETS, "samples": samples, **more})


def loop(folder, peers, rank, strategy, how, address, end, over):
    """Until the run is over. how: "changes" halves gradients that others may have until it is told so, "fails" in backward passes
    until others had a part of one; a few updates later they end the run, however many it took. "leaves": before a step."""
    torch.manual_seed(1)
    model = Tied()
    swarm = waggle.join("backward", initial_peers=peers, listen="127.0.0.1:0", data_dir=folder, log_level="warn")
    with swarm:
        opt = peer(swarm, model, strategy=strategy, epochs=0 if over else EPOCHS, min_peers=2)
        address.put(swarm.address)
        steps = 0
        while opt.last != "finished" and not (over and over.is_set()):
            opt.zero_grad()
            x, y = batch(2 * opt._model.updates() + rank)
            loss = torch.nn.functional.mse_loss(model(x), y)
            if how == "fails" and steps > 2:
                with pytest.raises(RuntimeError, match="out of memory"):
                    failing_loss(model, x, y).backward()
                opt.zero_grad()
            loss.backward()
            time.sleep(0.01)  # the backward pass of a larger model goes on
            if how == "leaves" and steps > 5:
                break
            if how == "changes" and steps > 2:
                model.last.weight.grad.data.mul_(0.5)  # of which autograd knows nothing
            seen = None
            try:
                opt.step(loss=loss)
            except ValueError as e:
                seen = str(e)
            steps += 1
            early = opt._loop._peer.samples_early
            if how == "fails" and steps > 3 and opt.last not in ("held", "stepped") and early > end["early"]:
                seen = opt.last
            end["early"] = early
            updates = opt._model.updates()
            end["after"][updates] = torch.cat([p.detach().flatten() for p in model.parameters()])
            if seen is not None:
                how, end["seen"], end["seen_at"] = "", seen, updates
            elif over and updates >= end.get("seen_at", updates) + 3:
                over.set()
        end["used"] = swarm.status().samples_used
    end["last"] = opt.last
    end["parameters"] = torch.cat([p.detach().flatten() for p in model.parameters()])


def ends(folder, strategy, how=""):
    """Of two peers, each in a thread of its own; "after" has the parameters by the number of updates."""
    folder.mkdir()
    address, both = queue.SimpleQueue(), ({"after": {}}, {"after": {}})
    over = threading.Event() if how in ("changes", "fails") else None
    threads, peers = [], []
    for rank, end in enumerate(both):
        threads.append(threading.Thread(target=loop, args=(folder / str(rank), peers, rank, strategy, how if rank == 1 else "",
                                                           address, end, over), daemon=True))
        threads[-1].start()
        peers = [address.get(timeout=120)]
    for thread in threads:
        thread.join(300)
    assert all("last" in end for end in both), both
    return both


def whole(folder, strategy):
    """The ends of a run in which both peers are in each update: while one loads the state, the other makes the first one alone."""
    for i in range(9):
        both = ends(folder.with_name(f"{folder.name}{i}"), strategy)
        assert torch.equal(both[0]["parameters"], both[1]["parameters"])
        if all(end["used"] == 4 * EPOCHS for end in both):
            return both
    raise AssertionError("one of the peers missed an update in each of nine runs")


def equal_after_each_update(one, other):
    common = one["after"].keys() & other["after"].keys()
    return max(common) >= other["seen_at"] and all(torch.equal(one["after"][n], other["after"][n]) for n in common)


@needs_hooks
def test_two_peers_end_with_the_bytes_that_they_have_without_buckets(tmp_path):
    plain, buckets = (whole(tmp_path / name, strategy) for name, strategy in (("plain", "data-parallel"), ("buckets", BUCKETS)))
    assert all(torch.equal(plain[0]["parameters"], end["parameters"]) for end in (*plain, *buckets))
    assert sum(end["early"] for end in plain) == 0
    assert sum(end["early"] for end in buckets) > 0


@needs_hooks
def test_a_pass_that_fails_when_the_other_peer_has_a_part_of_it_counts_nowhere(tmp_path):
    other, failing = ends(tmp_path / "run", BUCKETS, "fails")
    assert failing["seen"] in ("dropped", "synced")
    assert equal_after_each_update(other, failing)


@needs_hooks
def test_a_gradient_that_others_have_and_that_changes_is_refused_and_the_run_goes_on(tmp_path):
    other, changing = ends(tmp_path / "run", BUCKETS, "changes")
    assert equal_after_each_update(other, changing)
    assert "the gradient, or the number of its samples, changed" in changing["seen"]


@needs_hooks
def test_who_leaves_between_a_backward_pass_and_its_step_holds_nobody_up(tmp_path):
    other, left = ends(tmp_path / "run", BUCKETS, "leaves")
    assert other["last"] == "finished" and left["last"] != "finished"


@needs_hooks
def test_alone_is_the_plain_loop(tmp_path):
    model, plain = net(), net()
    inner = torch.optim.SGD(plain.parameters(), 0.1, momentum=0.9)
    with join(tmp_path) as swarm:
        opt = peer(swarm, model)
        for i in range(6):
            for each, optimizer in ((plain, inner), (model, opt)):
                optimizer.zero_grad()
                loss_of(each, i).backward()
                optimizer.step()
            assert equal(model, plain)
    assert model[0].weight._post_accumulate_grad_hooks
    loss_of(model, 0).backward()  # after it has left, the module is like any other
    assert not model[0].weight._post_accumulate_grad_hooks
    loss_of(model, 0).backward()


@needs_hooks
def test_what_is_kept_with_a_step_is_said_before_its_backward_pass(tmp_path):
    model = net()
    with join(tmp_path) as swarm:
        opt = peer(swarm, model)
        for i in range(3):
            opt.zero_grad()
            opt.keep(b"%d" % i)
            loss_of(model, i).backward()
            with pytest.raises(ValueError, match="call keep before backward"):
                opt.keep(b"late")
            opt.step()
        assert opt.kept() == b"2"


@needs_hooks
def test_another_thread_clears_gradients_and_an_optimizer_that_is_gone_leaves_no_hook(tmp_path):
    model = net()
    with join(tmp_path) as swarm:
        opt = peer(swarm, model)
        loss_of(model, 0).backward()
        thread = threading.Thread(target=opt.zero_grad)
        thread.start()
        thread.join()
        assert all(p.grad is None for p in model.parameters())
        with pytest.raises(ValueError, match="changed after its backward pass"):
            opt.step()
        loss_of(model, 0).backward()
        if (child := os.fork()) == 0:
            with contextlib.suppress(BaseException):
                opt.zero_grad()
                os._exit(0)
            os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        opt.step()
    backward = opt._backward
    hooked = model[0].weight
    assert hooked._post_accumulate_grad_hooks
    del backward, opt
    gc.collect()
    assert not hooked._post_accumulate_grad_hooks


@needs_hooks
def test_a_gradient_is_of_one_backward_pass_and_stays_as_it_is(tmp_path):
    model = net()
    with join(tmp_path) as swarm:
        opt = peer(swarm, model)

        def begin(i):
            opt.zero_grad()
            loss_of(model, i).backward()

        begin(0)
        with pytest.raises(ValueError, match="got a second gradient before step"):
            loss_of(model, 1).backward()
        begin(1)
        opt.step()
        begin(2)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        with pytest.raises(ValueError, match="0.weight changed after its backward pass.*max_gradient_norm"):
            opt.step()
        begin(3)
        with pytest.raises(ValueError, match="over 3 samples, and peers have weighed its gradient as over 4"):
            opt.step(samples=3)
        begin(4)
        model[0].weight.grad = None
        with pytest.raises(ValueError, match="changed after"):
            opt.step()
        begin(5)
        opt.step()
        assert opt.last == "stepped"
        assert swarm.status().samples_used == 8


@needs_hooks
def test_a_backward_pass_that_fails_is_begun_again_after_zero_grad(tmp_path):
    model, plain = net(), net()
    inner = torch.optim.SGD(plain.parameters(), 0.1, momentum=0.9)
    with join(tmp_path) as swarm:
        opt = peer(swarm, model)

        def fail(gradient):
            raise RuntimeError("out of memory")

        for i in range(3):
            opt.zero_grad()
            hidden = model[0](batch(i)[0])
            if i == 1:
                hidden.register_hook(fail)
                with pytest.raises(RuntimeError, match="out of memory"):
                    torch.nn.functional.mse_loss(model[2](model[1](hidden)), batch(i)[1]).backward()
                opt.zero_grad()
            for each, optimizer in ((plain, inner), (model, opt)):
                optimizer.zero_grad()
                loss_of(each, i).backward()
                optimizer.step()
            assert equal(model, plain)


@needs_hooks
@pytest.mark.parametrize("how, why", [(dict(samples=None), "pass samples to the constructor"),
                                      (dict(loss_scale="dynamic"), "leave out loss_scale"),
                                      (dict(offload_optimizer=True), "leave out offload_optimizer"),
                                      (dict(sum_on_device=True), "leave out sum_on_device"),
                                      (dict(reuse_grad_buffers=True), "reuse_grad_buffers")])
def test_what_keeps_or_changes_gradients_elsewhere_is_refused(how, why, tmp_path):
    with join(tmp_path) as swarm, pytest.raises(ValueError, match=why):
        peer(swarm, net(), **how)


@pytest.mark.skipif(HOOKS, reason="this torch says when a gradient is complete")
def test_an_older_torch_is_refused(tmp_path):
    with join(tmp_path) as swarm, pytest.raises(ValueError, match="install 2.1 or later, or leave out buckets=1"):
        peer(swarm, net())


class Arrays(waggle.LoopModel):
    def steps(self):
        return 0


def test_a_loop_over_arrays_is_refused(tmp_path):
    with join(tmp_path) as swarm, pytest.raises(ValueError, match="buckets=1"):
        waggle.Loop(swarm, Arrays(), [("x", [2])], strategy=BUCKETS)
