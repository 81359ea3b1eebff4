"""What is refused, and with which sentence."""

import copy
import os
import pickle
import subprocess
import sys
import threading
import time

import pytest
import torch
from support import join, loss_of, net

import waggle
from waggle._frozen import frozen_tensors
from waggle._rounding import rounding_of


def sgd(model, **more):
    return torch.optim.SGD(model.parameters(), 0.1, **more)


@pytest.mark.parametrize("given, kind, sentence", [
    (dict(initial_pears=[]), TypeError, "takes no initial_pears; the nearest is initial_peers"),
    (dict(target_batch_size=3), TypeError, "pass it to waggle.Optimizer"),
    (dict(listen=7700), TypeError, "listen is of type int, and must be a text"),
    (dict(initial_peers=["nowhere"]), ValueError, "initial_peers: 'nowhere'"),
    (dict(log_level="loud"), ValueError, "log_level: 'loud'"),
    (dict(join_timeout=-1), ValueError, "join_timeout is -1"),
    (dict(client_mode=True), ValueError, "client_mode needs initial_peers"),
    (dict(batch_size=3), TypeError, "takes no batch_size; the nearest is target_batch_size of waggle.Optimizer"),
    (dict(peers=[]), TypeError, "takes no peers; the nearest is min_peers of waggle.Optimizer"),
    (dict(initial_peers=[7700]), TypeError, "initial_peers has 7700, which is of type int, and must be a text HOST:PORT"),
    (dict(data_dir=os.fsdecode(b"/tmp/\xff")), ValueError, r"data_dir is '/tmp/.udcff', and must be valid UTF-8"),
    (dict(listen="\udcff:0"), ValueError, r"listen is '.udcff:0', and must be valid UTF-8"),
    (dict(data_dir="a\0b"), ValueError, "data_dir .* must not contain a zero byte"),
])
def test_join(given, kind, sentence, tmp_path):
    with pytest.raises(kind, match=sentence):
        join(tmp_path, **given)


def test_a_name_of_a_run_and_a_folder_in_use(tmp_path):
    with pytest.raises(ValueError, match="run: 'a b' must have 1 to 64 letters"):
        waggle.join("a b", data_dir=tmp_path)
    first = join(tmp_path)
    with pytest.raises(ValueError, match="another peer uses data_dir"):
        join(tmp_path)
    assert first.address is None and first.join_line is None and first.epoch == 0
    with pytest.raises(TypeError, match="cannot be copied"):
        pickle.dumps(first)


@pytest.mark.parametrize("given, kind, sentence", [
    (dict(target_batch=3), TypeError, "takes no target_batch; the nearest is target_batch_size$"),
    (dict(target_batch_size=True), TypeError, "target_batch_size is of type bool, and must be a whole number"),
    (dict(averaging_timeout=float("inf")), ValueError, "averaging_timeout is inf, and must be finite"),
    (dict(batch_size=3), TypeError, "takes no batch_size; the nearest is target_batch_size$"),
    (dict(initial_pears=[]), TypeError, "takes no initial_pears; the nearest is initial_peers of waggle.join"),
    (dict(learning_rate=0.1), TypeError, "in the constructor of the torch optimizer, or pass lr for a rate of the run"),
    (dict(statistics=[]), TypeError, "takes no statistics; the nearest is average_opt_statistics"),
    (dict(strategy=None), TypeError, "strategy is None, and must be a text"),
    (dict(strategy=3), TypeError, "strategy is of type int, and must be a text"),
    (dict(samples=2**64), ValueError, "samples is 18446744073709551616, and must be a whole number from 1 to 2.63 - 1"),
    (dict(samples="4"), TypeError, "samples is of type str, and must be a whole number"),
    (dict(strategy="diloco", target_batch_size=256), ValueError, "target_batch_size belongs to the other strategies"),
    (dict(strategy="decentralized", target_batch_size=256), ValueError, "target_batch_size belongs to the other"),
    (dict(min_peers=2, target_batch_size=1), ValueError, "does not hold one sample of each of the min_peers 2"),
    (dict(model="\udcff"), ValueError, "model is '.udcff', and must be valid UTF-8"),
    (dict(target_batch_size="many"), TypeError, "target_batch_size is of type str"),
    (dict(target_batch_size=0), ValueError, "target_batch_size"),
    (dict(strategy="colaborative"), ValueError, "strategy: 'colaborative' .*the nearest is collaborative"),
    (dict(listen="127.0.0.1:0"), TypeError, "pass it to waggle.join"),
    (dict(weight_decay=0.1), TypeError, "in the constructor of the torch optimizer"),
    (dict(micro_batch=2), TypeError, "pass the number of samples to step"),
    (dict(warmup_epochs=2), ValueError, "warmup_epochs needs lr"),
    (dict(codec="float17"), ValueError, "codec: 'float17'"),
    (dict(alpha=0.5), ValueError, "alpha belongs to strategies that average parameters"),
    (dict(strategy="decentralized", averaging_steps_period=0), ValueError, "averaging_steps_period"),
    (dict(strategy="decentralized", averaging_time_period=-1), ValueError, "averaging_time_period"),
    (dict(auxiliary="yes"), TypeError, "auxiliary is of type str, and must be True or False"),
    (dict(extra_tensors=torch.zeros(2)), TypeError, "extra_tensors is of type Tensor, and must be a list of tensors, or tensors by name"),
    (dict(extra_tensors=[3]), TypeError, "extra_tensors: extra.0 is of type int, and must be a dense tensor"),
    (dict(extra_tensors={"x": torch.full((2,), float("inf"))}), ValueError, "extra_tensors: x has values that are not finite"),
    (dict(extra_tensors={"0.weight": torch.zeros(2)}), ValueError, "two tensors have the name 0.weight"),
    (dict(reuse_grad_buffers=True, delay_grad_averaging=True), ValueError,
     "reuse_grad_buffers and delay_grad_averaging exclude each other"),
])
def test_options(given, kind, sentence, tmp_path):
    model = net()
    with pytest.raises(kind, match=sentence):
        waggle.Optimizer(sgd(model), join(tmp_path), model, **given)


def test_optimizers_and_parameters(tmp_path):
    model = net()
    swarm = join(tmp_path)

    def refused(kind, sentence, optimizer, module=model):
        with pytest.raises(kind, match=sentence):
            waggle.Optimizer(optimizer, swarm, module)

    refused(ValueError, "LBFGS is not supported", torch.optim.LBFGS(model.parameters()))
    refused(ValueError, "SparseAdam is not supported", torch.optim.SparseAdam(list(model.parameters())))
    refused(TypeError, "must be an optimizer of torch", model)
    refused(ValueError, "0.weight is of type torch.float16", sgd(half := net().half()), half)
    refused(ValueError, "2.weight is trainable, but the optimizer does not have it", sgd(model[0]))
    refused(ValueError, "the module does not have", sgd(model), model[0])

    class Words(torch.optim.SGD):
        def step(self, closure=None):
            super().step()
            for p in self.param_groups[0]["params"]:
                self.state[p]["words"] = ["one"]

    refused(TypeError, "keeps words, which is of type list", Words(model.parameters(), 0.1))
    opt = waggle.Optimizer(sgd(model), swarm, model)  # the swarm can still be used
    with pytest.raises(ValueError, match="already has an optimizer"):
        waggle.Optimizer(sgd(model), swarm, model)
    opt.leave()


def test_tensors_without_values_of_their_own(tmp_path):
    def refused(sentence, module):
        with pytest.raises(ValueError, match=sentence):
            waggle.Optimizer(sgd(module), join(tmp_path), module)

    meta = r"is on the device meta and has no values: give the module memory by to_empty\(device=…\), and its values"
    refused("parameter 0.weight " + meta, net().to("meta"))
    frozen, norm = net(), net(norm=True)
    frozen[0] = frozen[0].requires_grad_(False).to("meta")
    refused("parameter 0.weight " + meta, frozen)
    norm[1].running_mean = norm[1].running_mean.to("meta")
    refused("buffer 1.running_mean " + meta, norm)
    refused("parameter 0.weight has no shape yet: pass a batch through the module", torch.nn.Sequential(torch.nn.LazyLinear(3)))
    sharded = net()
    sharded[0].weight.device_mesh = torch.zeros(2)  # as that of a DTensor, for which torch needs a process group
    sharded[0].weight.device_mesh.size = lambda: 2
    refused("parameter 0.weight is a DTensor of 2 ranks: each has a part of it", sharded)


class Made(torch.Tensor):
    """As quantized tensors are: made of two others."""

    @staticmethod
    def __new__(cls, values, scale):
        return torch.Tensor._make_wrapper_subclass(cls, values.shape, dtype=torch.float32)

    def __init__(self, values, scale):
        self.values, self.scale = values, scale

    def __tensor_flatten__(self):
        return ["values", "scale"], None

    @classmethod
    def __torch_dispatch__(cls, function, types, arguments=(), named=None):
        made = arguments[0]
        return function(*arguments, **(named or {})) if not isinstance(made, Made) else Made(made.values, made.scale)


def test_tensors_that_are_made_of_others_can_be_frozen_only(tmp_path):
    def model(seed, scale=1.0):
        made = net(seed)
        made[0].weight = torch.nn.Parameter(Made(torch.ones(5, 6), torch.tensor(scale)), requires_grad=False)
        return made

    refused = model(1)
    refused[0].weight.requires_grad_()
    with pytest.raises(ValueError, match="parameter 0.weight is a Made, which is made of other tensors"):
        waggle.Optimizer(sgd(refused), join(tmp_path), refused)
    digests = [dict(frozen_tensors(each)) for each in (model(1), model(2), model(1, 2.0))]
    assert list(digests[0]) == ["0.weight"] and digests[0] == digests[1] != digests[2]


def test_without_a_module_names_are_numbers(tmp_path):
    model = net()
    with pytest.warns(UserWarning, match="parameters are called 0, 1"):
        with waggle.Optimizer(sgd(model), join(tmp_path), target_batch_size=4, samples=4) as opt:
            loss_of(model, 0).backward()
            opt.step()
            assert opt.last == "stepped"


def test_steps(tmp_path):
    model = net()
    opt = waggle.Optimizer(sgd(model), join(tmp_path), model, target_batch_size=4)
    loss_of(model, 0).backward()
    before = copy.deepcopy(model.state_dict())
    for samples, kind, sentence in ((None, ValueError, "samples is missing"), (0, ValueError, "samples is 0, and must be"),
                                    (2**64, ValueError, "must be a whole number from 1 to 2.63 - 1"),
                                    (5, ValueError, "over 5 samples, more than target_batch_size, 4"),
                                    (2.5, TypeError, "must be a whole number")):
        with pytest.raises(kind, match=sentence):
            opt.step(samples=samples)
    for wrong, sentence in ((lambda: opt.step(4), r"closure is of type int, and must be callable: .* step\(samples=4\)"),
                            (lambda: opt.step(samples=4, loss="x"), "loss is 'x', and must be a number"),
                            (lambda: opt.keep("text"), "keep takes bytes, and this is of type str")):
        with pytest.raises(TypeError, match=sentence):
            wrong()
    for how in (copy.deepcopy, copy.copy, pickle.dumps):
        with pytest.raises(TypeError, match="use state_dict"):
            how(opt)
    with pytest.raises(waggle.Error, match="cannot be added") as refused:
        opt.add_param_group({"params": [torch.zeros(1, requires_grad=True)]})
    assert refused.value.code == "schema_mismatch"
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    opt.step(samples=4)
    assert opt.last == "stepped"

    model.register_parameter("extra", torch.nn.Parameter(torch.zeros(1)))
    with pytest.raises(waggle.Error, match="parameter extra was added"):
        opt.step(samples=4)
    del model._parameters["extra"]
    opt.param_groups[0]["momentum"] = 0.5
    with pytest.raises(waggle.Error, match="momentum of the optimizer's parameter group 0 changed from 0 to 0.5"):
        opt.step(samples=4)
    opt.param_groups[0]["momentum"] = 0
    model.double()
    with pytest.raises(waggle.Error, match="parameter 0.weight became torch.float64"):
        opt.step(samples=4)
    model.float()
    errors = []

    def elsewhere():
        try:
            opt.step(samples=4)
        except waggle.Error as e:
            errors.append(e)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert errors[0].code == "not_owner" and "thread that constructed it" in str(errors[0])
    model[0].bias.grad.fill_(float("nan"))
    opt.step(samples=4)
    assert opt.last == "dropped"
    opt.zero_grad()
    loss_of(model, 1).backward()
    opt.step(samples=4)
    assert opt.last == "stepped"
    opt.leave()
    opt.leave()
    with pytest.raises(waggle.Error, match="has left the run") as left:
        opt.step(samples=4)
    assert left.value.code == "shutting_down"


def test_a_forked_child_has_dead_handles(tmp_path):
    model = net()
    opt = waggle.Optimizer(sgd(model), join(tmp_path), model, target_batch_size=4, samples=4)
    loss_of(model, 0).backward()
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        try:
            opt.step()
        except waggle.Error as e:
            os.write(write, e.code.encode())
        os._exit(0)
    os.close(write)
    assert os.read(read, 100) == b"not_owner"
    os.waitpid(child, 0)
    os.close(read)
    opt.step()
    assert opt.last == "stepped"
    opt.leave()


def test_another_optimizer_is_refused_with_both_values(tmp_path):
    one, other = net(), net()
    first = waggle.Optimizer(torch.optim.NAdam(one.parameters(), 0.1), join(tmp_path / "1"), one, target_batch_size=4)
    second = waggle.Optimizer(torch.optim.NAdam(other.parameters(), 0.1, eps=1e-3),
                              join(tmp_path / "2", initial_peers=[first.swarm.address]), other, target_batch_size=4)
    loss_of(other, 0).backward()
    with pytest.raises(waggle.Error, match="refused by all initial peers: optimizer is NAdam.*eps=0.001.* here and "
                                           "NAdam.*eps=1e-08.*; start it with the run's options$") as refused:
        second.step(samples=4)
    assert refused.value.code == "agreement_mismatch"
    first.leave(in_a_hurry=True)
    second.leave(in_a_hurry=True)


def test_a_name_of_a_run_that_nobody_has_is_in_the_last_error(tmp_path):
    one, other = net(), net()
    first = waggle.Optimizer(sgd(one), join(tmp_path / "1"), one, target_batch_size=4)
    second = waggle.Optimizer(sgd(other), waggle.join("test", initial_peers=[first.swarm.address], data_dir=tmp_path / "2",
                                                      listen="127.0.0.1:0", join_timeout=0.05), other, target_batch_size=4)
    loss_of(other, 0).backward()
    with pytest.raises(waggle.Error, match="no peer of a run named test has answered .* its name is another, .* Correct the "
                                           "name, start another peer .*initial_peers"):
        second.step(samples=4)
    first.leave(in_a_hurry=True)
    second.leave(in_a_hurry=True)


def test_an_exception_in_the_body_leaves_in_a_hurry(tmp_path):
    model = net()
    begin = None
    with pytest.raises(KeyError):
        with join(tmp_path) as swarm:
            opt = waggle.Optimizer(sgd(model), swarm, model, target_batch_size=4, samples=4)
            loss_of(model, 0).backward()
            opt.step()
            raise KeyError("the user's")
    with pytest.raises(waggle.Error, match="has left"):
        opt.step()


def test_two_loops_of_one_thread_do_not_wait_forever(tmp_path):
    """Those of a GAN, say, each for a second peer."""
    def loop_of(run):
        model = net()
        swarm = waggle.join(run, listen="127.0.0.1:0", data_dir=tmp_path / run, join_timeout=0.05)
        return model, waggle.Optimizer(sgd(model), swarm, model, target_batch_size=4, min_peers=2)

    (model, opt), (_, other) = loop_of("generator"), loop_of("discriminator")
    with opt, other:
        loss_of(model, 0).backward()
        with pytest.raises(waggle.Error, match="1 other loop of this thread cannot step") as e:
            opt.step(samples=4)
        assert e.value.code == "timeout" and "lower min_peers" in str(e.value)


def without(folder, *packages):
    """Python started in the folder finds these as if they were not installed."""
    for package in packages:
        (folder / f"{package}.py").write_text(f"raise ModuleNotFoundError(name={package!r})\n")


@pytest.mark.parametrize("missing, statement, sentence", [
    (["torch"], "import waggle; waggle.Optimizer", "waggle.Optimizer needs PyTorch, which {} does not find: {} -m pip install torch=="),
    (["torch"], "from waggle import Optimizer", "waggle.Optimizer needs PyTorch"),
    (["torch"], "import waggle.lightning", "waggle.lightning needs PyTorch"),
    (["torch"], "import waggle; waggle.Checkpoint(0, 0, {}, {}, {}, {}).state_dict()", "state_dict of a checkpoint needs PyTorch"),
    (["lightning", "pytorch_lightning"], "import waggle.lightning", "waggle.lightning needs Lightning, which {} does not find: {} -m pip install lightning"),
])
def test_a_missing_package_is_named_with_the_command_that_installs_it(missing, statement, sentence, tmp_path):
    without(tmp_path, *missing)
    ran = subprocess.run([sys.executable, "-c", statement], cwd=tmp_path, capture_output=True, text=True)
    assert ran.stderr.splitlines()[-1].startswith("ImportError: " + sentence.format(sys.executable, sys.executable)), ran.stderr


def test_the_launcher_without_torch_is_bad_usage(tmp_path):
    without(tmp_path, "torch")
    (tmp_path / "s.py").write_text("")
    ran = subprocess.run([sys.executable, "-m", "waggle", "s.py"], cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode == 2
    assert ran.stderr.startswith("waggle: python3 -m waggle needs PyTorch, which ") and ran.stderr.count("\n") == 1


TRAINS = ("m = torch.nn.Linear(2, 2); o = torch.optim.SGD(m.parameters(), 0.1)\nfor _ in range(2):\n"
          "    m(torch.ones(256, 2)).sum().backward(); o.step()")


@pytest.mark.parametrize("version, change, code, sentence", [
    ("1.9.0", "del torch.optim.lr_scheduler.ReduceLROnPlateau", 2, "waggle: PyTorch 1.9.0 is older than what waggle is tested "
     "with, which is 1.13 to 2.13, and lacks something ("),
    ("3.1.0a0", "del torch.nn.parameter.is_lazy", 2, "waggle: PyTorch 3.1.0a0 is newer than what waggle is tested with, which "
     "is 1.13 to 2.13: module 'torch.nn.parameter' has no"),
    ("2.14.0", "", 0, "PyTorch 2.14.0 is newer than what waggle is tested with, which is 1.13 to 2.13\n"),
    ("1.12.1", "", 0, "PyTorch 1.12.1 is older than what waggle is tested with, which is 1.13 to 2.13\n"),
    ("2.5.1+cu121", "", 0, None),
])
def test_an_untested_version_is_warned_of_once_and_refused_where_it_lacks_something(version, change, code, sentence, tmp_path):
    (tmp_path / "s.py").write_text("import torch, waggle\nwaggle.Optimizer; waggle.Optimizer\n" + TRAINS)
    start = (f"import runpy, sys, torch\ntorch.__version__ = {version!r}\n{change}\n"
             f"sys.argv[1:] = ['--listen', '127.0.0.1:0', '--data-dir', 'd', 's.py']\nrunpy.run_module('waggle', run_name='__main__')")
    ran = subprocess.run([sys.executable, "-c", start], cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode == code, ran.stderr
    assert ran.stderr.count("waggle:0: UserWarning: PyTorch") == (sentence is not None and "1.9" not in sentence), ran.stderr
    assert (sentence or "") in ran.stderr, ran.stderr


SWITCHES = [("NAdam", "foreach")] + ([("AdamW", "fused")] if torch.__version__ >= "2.4" else [])


@pytest.mark.parametrize("kind, switch", SWITCHES)
def test_a_switch_with_which_updates_round_otherwise(kind, switch, tmp_path):
    one, other = net(), net()
    make = getattr(torch.optim, kind)
    plain, switched = make(one.parameters(), 0.1), make(other.parameters(), 0.1, **{switch: True})
    known = kind == "AdamW"  # to C++
    if rounding_of(plain, list(one.parameters()), known) == rounding_of(switched, list(other.parameters()), known):
        pytest.skip("on this processor the trial of the peers finds no difference")
    first = waggle.Optimizer(plain, join(tmp_path / "1"), one, target_batch_size=4)
    second = waggle.Optimizer(switched, join(tmp_path / "2", initial_peers=[first.swarm.address]), other, target_batch_size=4)
    loss_of(other, 0).backward()
    with pytest.raises(waggle.Error, match=f"rounding is that of PyTorch . with {switch}=True here and that of PyTorch . there; "
                                           "start it with the run's options$") as refused:
        second.step(samples=4)
    assert refused.value.code == "agreement_mismatch"
    first.leave(in_a_hurry=True)
    second.leave(in_a_hurry=True)


def test_an_auxiliary_has_no_samples(tmp_path):
    model = net()
    with waggle.Optimizer(sgd(model), join(tmp_path), model, auxiliary=True) as opt:
        for given in (dict(samples=4), dict(loss=1.0), dict(closure=lambda: 1.0)):
            with pytest.raises(ValueError, match=r"an auxiliary computes nothing, and helps the others until the run is over: call step\(\)"):
                opt.step(**given)
