"""Adapters of peft, as in examples/lora.py."""

import pytest
import torch
from support import ROOT, equal, join, processes

import waggle


@pytest.fixture(autouse=True)
def peft():
    pytest.importorskip("transformers")
    return pytest.importorskip("peft")


def test_peers_exchange_adapters_and_refuse_another_base(tmp_path):
    with processes(tmp_path) as start:
        def loop(name, *more):
            return start.python(name, ROOT / "examples/lora.py", "--listen", "127.0.0.1:0", "--data-dir", tmp_path / name,
                                "--epochs", 12, "--min-peers", 2, *more, HF_HUB_OFFLINE="1")

        first = loop("first", "--save", tmp_path / "adapter")
        where = first.line("listening on ").split(";")[0]
        other = loop("other", "--peer", where, "--base-seed", 7)
        assert other.ended() != 0 and "frozen is" in other.log, other.log
        second = loop("second", "--peer", where, "--seed", 2)
        for each in (first, second):
            assert each.ended() == 0, each.log
        assert first.line("adapters ") == second.line("adapters ")
        losses = [line.split()[2] for line in first.log.splitlines() if line.startswith("held-out loss")]
        assert len(losses) == 2 and losses[0] == losses[1], first.log
        assert second.line("held-out loss ") == losses[0]


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.words = torch.nn.Embedding(8, 6)
        self.body = torch.nn.Linear(6, 6)
        self.head = torch.nn.Linear(6, 2)

    def forward(self, x):
        return self.head(self.body(self.words(x)))


def trained(tmp_path, peft, **more):
    """The model, and its adapter's configuration, after a run with the base of seed 1."""
    config = peft.LoraConfig(r=2, target_modules=["body", "words"], **more)
    model = peft.get_peft_model(base(), config)
    with adapted(tmp_path, model) as opt:
        for i in range(3):
            x = torch.randint(8, (4,), generator=torch.Generator().manual_seed(i))
            model(x).square().mean().backward()
            opt.step()
            opt.zero_grad()
    return model, config


def base(seed=1, dtype=torch.float32):
    torch.manual_seed(seed)
    return Net().to(dtype)


def adapted(tmp_path, model, **more):
    parameters = [p for p in model.parameters() if p.requires_grad]
    return waggle.Optimizer(torch.optim.SGD(parameters, 0.1), join(tmp_path), model, target_batch_size=4, samples=4, **more)


def test_an_adapter_is_saved_as_peft_does_it(tmp_path, peft):
    """With a layer that is trained as a whole, and the adapter of an embedding."""
    model, config = trained(tmp_path, peft, modules_to_save=["head"])
    waggle.load_checkpoint(tmp_path / "peer").save_adapter(tmp_path / "adapter", config)
    model.save_pretrained(tmp_path / "theirs")
    read = peft.PeftModel.from_pretrained(base(), tmp_path / "adapter")
    assert torch.equal(read(torch.arange(8)), model(torch.arange(8)))
    from safetensors.torch import load_file

    ours, theirs = (load_file(tmp_path / each / "adapter_model.safetensors") for each in ("adapter", "theirs"))
    assert ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)
    with pytest.raises(ValueError, match="the checkpoint has no adapter second: its tensors are"):
        waggle.load_checkpoint(tmp_path / "peer").save_adapter(tmp_path / "none", config, "second")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("more", [{}, {"modules_to_save": ["head"], "lora_alpha": 3, "use_rslora": True}, {"use_dora": True}])
def test_an_adapter_is_merged_as_peft_does_it(more, dtype, tmp_path, peft):
    config = peft.LoraConfig(r=2, target_modules=["body"], **more)
    model = peft.get_peft_model(base(dtype=dtype), config)
    half = dtype is torch.bfloat16
    with adapted(tmp_path, model, masters=half and "modules_to_save" in more) as opt:
        for i in range(3):
            with torch.autocast("cpu", torch.bfloat16, enabled=half):
                model(torch.arange(4) + i).square().mean().backward()
            opt.step()
            opt.zero_grad()
    checkpoint = waggle.load_checkpoint(tmp_path / "peer")
    merged, theirs = checkpoint.merge_adapter(base(dtype=dtype), config), model.merge_and_unload()
    assert type(merged) is Net and equal(merged, theirs)
    assert not equal(merged, base(dtype=dtype))
    with pytest.raises(ValueError, match="another base: its base_model.model.words.weight has other values than when"):
        checkpoint.merge_adapter(base(2, dtype), config)
