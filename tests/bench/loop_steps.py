"""What a peer alone costs a loop of PyTorch: the plain loop, one with a waggle.Optimizer, and the plain one launched by
python3 -m waggle take turns, each in a process of its own.

    PYTHONPATH=build/python python3 tests/bench/loop_steps.py [MODEL [STRATEGY [PASSES]]]

MODEL: gpt (0.8 M values), or the width of an mlp of 4 layers. An update each PASSES passes of 32 samples, as the plain
loop makes them; with diloco:steps=100000, which has no rounds then, each pass has one. The processor's time is that of all
threads of a process: beside other work on the machine it says more than the time that went by.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time

import torch

ROUNDS, BATCH = 30, 32


def network(name):
    torch.manual_seed(1)
    if name == "gpt":
        class Gpt(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.bytes = torch.nn.Embedding(256, 128)
                layer = torch.nn.TransformerEncoderLayer(128, 4, 512, dropout=0, batch_first=True)
                self.body = torch.nn.TransformerEncoder(layer, 4)
                self.head = torch.nn.Linear(128, 256)

            def forward(self, x):
                return self.head(self.body(self.bytes(x))).flatten(0, 1)

        text = torch.randint(256, (BATCH, 64))
        return Gpt(), text, text.flatten()
    layers = [torch.nn.Sequential(torch.nn.Linear(int(name), int(name)), torch.nn.Tanh()) for _ in range(4)]
    return torch.nn.Sequential(*layers), torch.randn(BATCH, int(name)), torch.randn(BATCH, int(name))


def child(kind, name, strategy, passes):
    """Answers each line of its input with the seconds that an update, or so many passes, took: those that went by, and
    those of the processor."""
    torch.set_num_threads(1)
    net, x, y = network(name)
    optimizer = torch.optim.AdamW(net.parameters(), 1e-3)
    if kind == "peer":
        import waggle

        swarm = waggle.join("steps", listen="127.0.0.1:0", data_dir=os.environ["PEER"], log_level="error")
        batch = {} if strategy.startswith("diloco") else {"target_batch_size": BATCH * passes}
        optimizer = waggle.Optimizer(optimizer, swarm, net, strategy=strategy, samples=BATCH, **batch)
    accumulates = kind == "plain" and not strategy.startswith("diloco")
    for _ in sys.stdin:
        begin = time.perf_counter(), time.process_time()
        for i in range(passes):
            loss = torch.nn.functional.cross_entropy(net(x), y) if name == "gpt" else torch.nn.functional.mse_loss(net(x), y)
            if accumulates:
                (loss / passes).backward()
                if i + 1 < passes:
                    continue
            else:
                loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        print(time.perf_counter() - begin[0], time.process_time() - begin[1], flush=True)


def main(name="gpt", strategy="collaborative", passes="8"):
    with tempfile.TemporaryDirectory() as folder:
        script = [__file__, "--child"]
        launched = ["-m", "waggle", "--run-id", "steps", "--listen", "127.0.0.1:0", "--log-level", "error", "--data-dir",
                    folder + "/launched", "--strategy", strategy]
        if not strategy.startswith("diloco"):
            launched += ["--target-batch-size", str(BATCH * int(passes))]
        loops = {kind: subprocess.Popen([sys.executable, *words, kind, name, strategy, passes], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True, env={**os.environ, "PEER": folder + "/peer"})
                 for kind, words in (("plain", script), ("peer", script), ("launched", launched + script))}

        def turn(kind):
            loops[kind].stdin.write("\n")
            loops[kind].stdin.flush()
            return [float(word) for word in loops[kind].stdout.readline().split()]

        kinds = list(loops)
        for kind in kinds * 2:  # the first one is without a state of the optimizer
            turn(kind)
        rounds = []
        for i in range(ROUNDS):
            rounds.append({kind: turn(kind) for kind in kinds[i % 3:] + kinds[:i % 3]})
        for kind in kinds:
            loops[kind].stdin.close()
            loops[kind].wait()
    print(f"{name}, {strategy}, {passes} passes: plain {statistics.median(r['plain'][0] for r in rounds) * 1e3:.1f} ms")
    for kind in kinds[1:]:
        for which, per in enumerate(("second", "second of the processor")):
            low, middle, high = statistics.quantiles(r["plain"][which] / r[kind][which] for r in rounds)
            print(f"{kind} reaches {middle:.3f} ({low:.3f} … {high:.3f}) of the plain loop's passes per {per}")


if sys.argv[1:2] == ["--child"]:
    child(*sys.argv[2:5], int(sys.argv[5]))
elif __name__ == "__main__":
    main(*sys.argv[1:])
