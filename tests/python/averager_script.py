"""One of the two peers of the README's example. Arguments: its name, and the address of the other one."""

import json
import sys

import numpy as np
import torch

import waggle

name, *initial_peers = sys.argv[1:]
w, h = torch.full((2, 3), 1.0 + 2 * len(initial_peers)), np.arange(4, dtype=np.float64) * (1 + len(initial_peers))
node = waggle.node("docs", listen="127.0.0.1:0", initial_peers=initial_peers)
print(node.address, flush=True)

averager = waggle.Averager(node, {"w": w, "h": h}, prefix="docs", target_group_size=2, matchmaking_time=3.0)
step = averager.step(gather={"name": name}, wait=False, require_trigger=True, timeout=60)
step.allow_allreduce()
values = step.result()
dht = waggle.DHT(node)
dht.store("key-" + name, {"x": 1}, ttl=60)
both = averager.step(gather=["stored"])  # a barrier
found = dht.get_many(["key-a", "key-b", "key-c"])
print(json.dumps({"values": sorted(v["name"] for v in values.values()), "me": values[node.id], "stage": step.stage,
                  "contributors": len(step.contributors), "w": w.tolist(), "h": h.tolist(), "found": found,
                  "both": sorted(map(str, both.values()))}), flush=True)
sys.stdin.read()  # the other one may still ask
