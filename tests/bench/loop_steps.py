"""What a step of a loop of one's own costs between two rounds, beside the plain loop: their steps take turns.

    PYTHONPATH=build/python python3 tests/bench/loop_steps.py [STRATEGY [WIDTH]]
"""

import statistics
import sys
import tempfile
import time
import warnings

import torch

import waggle

STEPS = 60


def main(strategy="diloco:steps=100000", width="700"):
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    width = int(width)
    random = torch.Generator().manual_seed(1)
    x, y = torch.randn(32, width, generator=random), torch.randn(32, width, generator=random)

    def loop():
        torch.manual_seed(1)
        layers = [torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.Tanh()) for _ in range(4)]
        net = torch.nn.Sequential(*layers)
        return net, torch.optim.AdamW(net.parameters(), 1e-3)

    def timed(net, optimizer, **more):
        begin = time.perf_counter()
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(net(x), y)
        loss.backward()
        optimizer.step(**more)
        return time.perf_counter() - begin

    rounds = {"target_batch_size": 10**9} if strategy == "local-updates" else {}
    (plain_net, plain), (net, inner) = loop(), loop()
    with tempfile.TemporaryDirectory() as folder:
        swarm = waggle.join("steps", listen="127.0.0.1:0", data_dir=folder, log_level="error")
        with waggle.Optimizer(inner, swarm, strategy=strategy, **rounds) as ours:
            timed(net, ours, samples=32, loss=1.0)
            pairs = [(timed(plain_net, plain), timed(net, ours, samples=32, loss=1.0)) for _ in range(STEPS)]
    of_plain, of_ours = map(statistics.median, zip(*pairs))
    ratio = statistics.median(b / a for a, b in pairs)
    values = sum(p.numel() for p in net.parameters())
    print(f"{strategy}, {values / 1e6:.1f} M values: plain {of_plain * 1e3:.2f} ms, ours {of_ours * 1e3:.2f} ms, "
          f"median of the ratios {ratio:.3f}")


main(*sys.argv[1:])
