"""Models and data of `waggle train`, and what comes out of it."""

import gzip
import json
import re
import struct
import subprocess

import pytest
import torch
from support import PROGRAM

import waggle


def write_images(folder, half, count, seed):
    """Images (IDX, packed) of 8 x 8 values: noise, and a bright column or row for each label."""
    random = torch.Generator().manual_seed(seed)
    labels = torch.randint(10, (count,), generator=random)
    images = torch.randint(60, (count, 8, 8), generator=random)
    for image, label in zip(images, labels):
        (image[:, label] if label < 8 else image[label - 8]).add_(120)
    for name, magic, values in (("images-idx3", 0x803, images), ("labels-idx1", 0x801, labels)):
        sizes = struct.pack(f">{values.dim() + 1}I", magic, *values.shape)
        with gzip.open(folder / f"{half}-{name}-ubyte.gz", "wb") as file:
            file.write(sizes + bytes(values.flatten().tolist()))
    return images.unsqueeze(1) / torch.tensor(255.0), labels


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = torch.nn.Linear(64, 16)
        self.norm = torch.nn.BatchNorm1d(16)
        self.head = torch.nn.Linear(16, 10)

    def forward(self, images):
        return self.head(torch.relu(self.norm(self.hidden(images.flatten(1)))))


def accuracy(net, images, labels):
    net.eval()
    with torch.no_grad():
        return (net(images).argmax(1) == labels).float().mean().item()


def run(*words):
    return subprocess.run([str(PROGRAM), *map(str, words)], capture_output=True, text=True, timeout=120)


def test_a_module_is_trained_exported_and_read_back(tmp_path):
    torch.manual_seed(1)
    write_images(tmp_path, "train", 400, 1)
    images, labels = write_images(tmp_path, "t10k", 300, 2)
    torch.jit.script(Net()).save(tmp_path / "net.pt")
    peer = tmp_path / "peer"
    trained = run("train", "--listen", "127.0.0.1:0", "--data-dir", peer, "--model", tmp_path / "net.pt", "--data", tmp_path,
                  "--eval-data", tmp_path, "--eval-every", "0ms", "--target-batch-size", 40, "--micro-batch", 20, "--epochs", 120,
                  "--lr", 0.01, "--linger", "1s", "--log-level", "warn")
    assert trained.returncode == 0, trained.stderr
    told = re.search(r"accuracy (0\.\d+|1\.\d+) at epoch 120", trained.stderr)
    assert told, trained.stderr
    assert float(told[1]) > 0.9

    out = tmp_path / "trained.pt"
    exported = run("export", "--data-dir", peer, "--format", "torchscript", "--model", tmp_path / "net.pt", out)
    assert exported.returncode == 0, exported.stderr
    assert exported.stdout == f"epoch 120 is in {out}\n"
    read = torch.jit.load(str(out))
    assert f"{accuracy(read, images, labels):.4f}" == told[1]

    state = waggle.load_checkpoint(peer)
    assert (state.epoch, state.optimizer_steps) == (120, 120)
    assert set(state.buffers) == {"norm.running_mean", "norm.running_var"}
    assert "exp_avg/head.weight" in state.statistics and state.parameters["head.weight"].shape == (10, 16)
    net = Net()
    net.load_state_dict(state.state_dict(), strict=False)
    for name, value in read.state_dict().items():
        if not name.endswith("num_batches_tracked"):
            assert torch.equal(net.state_dict()[name], value), name
    assert accuracy(net, images, labels) == accuracy(read, images, labels)

    out = tmp_path / "model.safetensors"
    assert run("export", "--data-dir", peer, out).returncode == 0
    content = out.read_bytes()
    length = struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8:8 + length])
    assert length % 8 == 0 and header.pop("__metadata__")["epoch"] == "120"
    assert list(header) == sorted({**state.parameters, **state.buffers})
    begin = 0
    for name, tensor in header.items():
        first, last = tensor["data_offsets"]
        values = torch.frombuffer(bytearray(content[8 + length + first:8 + length + last]), dtype=torch.float32)
        assert first == begin and tensor["dtype"] == "F32"
        assert torch.equal(values.reshape(tensor["shape"]), read.state_dict()[name]), name
        begin = last
    assert len(content) == 8 + length + begin

    # Another model, or a damaged checkpoint: nothing is written.
    class Other(Net):
        def __init__(self):
            super().__init__()
            self.head = torch.nn.Linear(16, 11)

    torch.jit.script(Other()).save(tmp_path / "other.pt")
    out = tmp_path / "nothing"
    other = run("export", "--data-dir", peer, "--format", "torchscript", "--model", tmp_path / "other.pt", out)
    assert other.returncode == 2 and "its head.bias is 10, and that of the module 11" in other.stderr, other.stderr
    assert run("export", "--data-dir", peer, "--format", "torchscript", out).returncode == 2
    newest = max((peer / "checkpoints").glob("*.wgl"), key=lambda f: int(f.name.split("-")[1]))
    damaged = bytearray(newest.read_bytes())
    damaged[-5] ^= 1
    newest.write_bytes(damaged)
    for more in ([], ["--format", "torchscript", "--model", tmp_path / "net.pt"]):
        refused = run("export", "--data-dir", peer, *more, out)
        assert refused.returncode == 2 and newest.name in refused.stderr, refused.stderr
    assert not out.exists()
    with pytest.raises(waggle.Error, match="has changed since it was written") as error:
        waggle.load_checkpoint(peer)
    assert error.value.code == "hash_mismatch"
    with pytest.raises(waggle.Error, match="no checkpoint of this version"):
        waggle.load_checkpoint(tmp_path / "model.safetensors")


def test_a_module_that_cannot_be_trained_is_refused_before_the_peer_listens(tmp_path):
    write_images(tmp_path, "train", 40, 1)
    torch.jit.freeze(torch.jit.script(Net().eval())).save(tmp_path / "frozen.pt")
    torch.jit.script(Net().half()).save(tmp_path / "half.pt")
    for name, sentence in (("frozen", "as after torch.jit.freeze"), ("half", "training needs float32")):
        refused = run("train", "--listen", "127.0.0.1:0", "--data-dir", tmp_path / "peer", "--data", tmp_path, "--model",
                      tmp_path / f"{name}.pt")
        assert refused.returncode == 2 and sentence in refused.stderr, refused.stderr
        assert "listen" not in refused.stdout + refused.stderr
