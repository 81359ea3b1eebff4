"""A peer that ends in some way, for test_together.py and test_ends.py: MODE FOLDER [PEER]."""

import os
import sys
import threading
import time

import torch
from support import batch, loss_of, net

import waggle

mode, folder, *peers = sys.argv[1:]
if mode.startswith("daemon"):  # waits for a second peer; "daemons": another one steps on
    def run(name, min_peers):
        model = net()
        swarm = waggle.join("tests", listen="127.0.0.1:0", data_dir=f"{folder}/{name}")
        inner = torch.optim.SGD(model.parameters(), 0.01)
        opts[name] = waggle.Optimizer(inner, swarm, model, target_batch_size=4, samples=4, min_peers=min_peers)
        while True:
            opts[name].zero_grad()
            loss_of(model, 0).backward()
            opts[name].step()
            time.sleep(0.001)

    opts = {}
    threading.Thread(target=run, args=("waits", 2), daemon=True).start()
    while not (opts and opts["waits"].swarm.status().waiting_for):
        time.sleep(0.01)
    if mode == "daemons":
        threading.Thread(target=run, args=("steps", 1), daemon=True).start()
        while not ("steps" in opts and opts["steps"].last):
            time.sleep(0.01)
    print("the program ends", flush=True)
    sys.exit()
model = net()
swarm = waggle.join("tests", initial_peers=peers, listen="127.0.0.1:0", data_dir=folder)
more = {"min_peers": 2} if mode in ("waits", "counts") else {}
opt = waggle.Optimizer(torch.optim.SGD(model.parameters(), 0.01), swarm, model, target_batch_size=4, samples=4, **more)
print("address", swarm.address, flush=True)


def step(i):
    opt.zero_grad()
    loss_of(model, i).backward()
    opt.step()


if mode == "waits":  # for a second peer, until Ctrl-C
    print("waiting", flush=True)
    try:
        step(0)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        raise
elif mode == "counts":  # beside the wait, which nothing else ends
    def count():
        counted = 0
        while counted < 3_000_000:
            counted += 1
        print("counted", flush=True)
        os.kill(os.getpid(), 2)

    threading.Thread(target=count).start()
    try:
        step(0)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
elif mode == "workers":
    class Data(torch.utils.data.Dataset):
        def __len__(self):
            return 10_000_000

        def __getitem__(self, i):
            if i == 0:
                try:
                    swarm.status()
                except waggle.Error as e:
                    open(folder + "/refused", "w").write(f"{e.code}: {e}")
            time.sleep(0.001)
            return batch(i % 10)[0]

    for i, _ in enumerate(torch.utils.data.DataLoader(Data(), batch_size=4, num_workers=2)):
        step(i)
        if i == 3:
            print("pids", *[c.pid for c in __import__("multiprocessing").active_children()], flush=True)
elif mode == "children":  # in each of the first steps, of which the last one's goes on
    i = 0
    while True:
        step(i)
        if i < 50:
            os.system(f"ls /proc/$$/fd >> {folder}/inherited")
        if i == 50:  # none later: one that is not yet the shell has the port, also when its parent was killed
            os.system("sleep 600 & echo child $!")
        i += 1
elif mode == "exits":  # without leaving
    for i in range(5):
        step(i)
    print("exits", flush=True)
