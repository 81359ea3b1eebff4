"""A step of a loop in Python beside the plain loop, in ms: step.py DEVICE [linear] [small] [resnet]

linear: 24 layers of 2048 x 2048. small: 100 of 64 x 64. resnet: torchvision's resnet50. AdamW, float32."""

import statistics
import sys
import tempfile
import time

import torch

import waggle

DEVICE = sys.argv[1]


def wait():
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def model_and_batch(name):
    torch.manual_seed(1)
    if name == "resnet":
        import torchvision

        return torchvision.models.resnet50().to(DEVICE), torch.randn(64, 3, 224, 224, device=DEVICE)
    layers, width, batch = (24, 2048, 2048) if name == "linear" else (100, 64, 64)
    model = torch.nn.Sequential(*[layer for _ in range(layers) for layer in (torch.nn.Linear(width, width), torch.nn.ReLU())])
    return model.to(DEVICE), torch.randn(batch, width, device=DEVICE)


def measure(name, target_steps, **options):
    """target_steps: passes for an update; 0: the plain loop, which steps after each."""
    model, batch = model_and_batch(name)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-5)
    if target_steps:
        swarm = waggle.join("bench", listen="127.0.0.1:0", log_level="error", resume=False,
                            data_dir=tempfile.mkdtemp() + "/peer")
        optimizer = waggle.Optimizer(optimizer, swarm, model, samples=len(batch),
                                     target_batch_size=len(batch) * target_steps, **options)
    whole, step = [], []
    for i in range(48):
        wait()
        begin = time.perf_counter()
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        wait()
        passed = time.perf_counter()
        optimizer.step()
        wait()
        if i >= 16:
            whole.append(1e3 * (time.perf_counter() - begin))
            step.append(1e3 * (time.perf_counter() - passed))
    what = f"update every {target_steps}" if target_steps else "plain loop"
    print(f"{name}, {what}, {options}: mean {statistics.mean(whole):.1f}, median {statistics.median(whole):.1f}, of it step "
          f"{statistics.median(step):.1f}", flush=True)
    if target_steps:
        optimizer.leave(in_a_hurry=True)


for each in sys.argv[2:] or ["linear", "small", "resnet"]:
    measure(each, 0)
    for often in (1000, 16):
        measure(each, often)
        measure(each, often, reuse_grad_buffers=True)
