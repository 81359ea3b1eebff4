"""The snippets of the libraries' documents in their closest form, each a peer. Arguments: which, one or more in turn with ";"
between them; the folder of another process, whose peers these join, or nothing; a folder. Prints for each what it has at its end,
as JSON."""

import json
import os
import pathlib
import sys
from functools import partial

import numpy as np
import torch
from support import batch, eventually, net

import waggle

torch.set_num_threads(1)
# Of the snippet that runs.
number, peers, folder, peer = 0, "", pathlib.Path(), {}


def listens_at(address):
    (folder / "new").write_text(address or "")  # a client has none
    (folder / "new").rename(folder / "address")


def ended(**what):
    os.write(1, f"ENDED {number} {json.dumps(what)}\n".encode())  # at once: the log is in the same file


# hivemind.averaging.DecentralizedAverager
def averager():
    node = waggle.node("documents", **peer)
    listens_at(node.address)
    dht = waggle.DHT(node)
    averaged_tensors = {"w": torch.full((3,), 1.0 if peers else 3.0), "b": np.full(2, 2.0 if peers else 4.0)}
    averager = waggle.Averager(node, averaged_tensors, prefix="docs", target_group_size=2, min_group_size=2, group_bits="",
                               matchmaking_time=5.0, request_timeout=3.0, alpha=1.0, part_size_bytes=524288,
                               allreduce_timeout=30, sender_timeout=10, reducer_timeout=20, codec="none", min_vector_size=0,
                               auxiliary=False)
    with averager.get_tensors() as tensors:
        tensors["w"] += 1
    metadata = averager.step(gather=dict(my_batch_size=32))
    with averager.get_tensors() as tensors_after_averaging:
        first = tensors_after_averaging["w"].tolist()
    averager.group_bits = "01"
    bits = averager.group_bits
    control = averager.step(gather=[node.id], weight=1.0 if peers else 3.0, timeout=60, allow_retries=True, require_trigger=True,
                            wait=False)
    with averager.get_tensors() as tensors:
        tensors["b"][:] = 0.0 if peers else 4.0
    control.allow_allreduce()
    ids = control.result()
    dht.store("documents.progress", [1, 2.0, 3], ttl=60, subkey=node.id)
    averager.group_bits = ""  # each round has put them in another bucket
    averager.step(gather=None)  # both have stored
    progress = sorted(dht.get("documents.progress").values())
    averager.step(gather=None)  # both have read
    node.leave()
    ended(metadata=list(metadata.values()), first=first, b=averaged_tensors["b"].tolist(), bits=bits,
          group=sorted(v[0] for v in ids.values()) == sorted(ids), stage=control.stage, progress=progress)


def train(inner, follow=None, norm=False, size=4, extra=None, silent=False, half=False, **options):
    model = net(norm=norm)
    if half:  # of several parts
        model = torch.nn.Sequential(torch.nn.Linear(6, 1024), torch.nn.Tanh(), torch.nn.Linear(1024, 2))
    swarm = waggle.join("documents", **peer)
    if extra is not None:
        options["extra_tensors"] = [extra]
    opt = waggle.Optimizer(inner(model.parameters()), swarm, model, min_peers=2, **options)
    listens_at(swarm.address)
    if follow:
        opt.follow(follow(opt))
    i, means = 0, []
    while opt.last != "finished":
        if options.get("auxiliary"):
            opt.step()
            continue
        opt.zero_grad()
        if extra is not None:
            extra.fill_(2 if peers else 1)
        x, y = batch(i + (1000 if peers else 0), size)
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            loss = torch.nn.functional.mse_loss(model(x).float(), y)
        opt.scaled(loss).backward()
        opt.step(samples=size, loss=None if silent else loss)
        if extra is not None and opt.last == "stepped":
            means.append(extra[0].item())
        i += 1
    opt.leave()
    now = swarm.status()
    ended(epoch=now.epoch, parameters=now.parameters, rounds=now.rounds, used=now.samples_used, rate=opt.rate,
          phase=now.strategy and now.strategy.name, loss=now.strategy and now.strategy.loss, offered=now.samples_offered, means=means,
          values=[p.tolist() for p in model.parameters()])


# DecentralizedOptimizer(opt, dht, prefix=…, target_group_size=…, …), DecentralizedSGD, DecentralizedAdam
SGD = partial(torch.optim.SGD, lr=0.05, momentum=0.9, dampening=0, weight_decay=1e-4)
Adam = partial(torch.optim.Adam, lr=1e-2, betas=(0.9, 0.999), eps=1e-8, weight_decay=0, amsgrad=True)
DECENTRALIZED = dict(target_group_size=8, max_epoch_difference=3, averaging_steps_period=2, averaging_time_period=0.05,
                     report_expiration=30, averaging_timeout=60, epochs=6)
DECENTRALIZED_OF = {
    "optimizer": lambda: train(torch.optim.RMSprop, strategy="decentralized", average_gradients=True,
                               average_opt_statistics="square_avg", **DECENTRALIZED),
    "SGD": lambda: train(SGD, partial(torch.optim.lr_scheduler.StepLR, step_size=2), strategy="decentralized-sgd", **DECENTRALIZED),
    "Adam": lambda: train(Adam, strategy="decentralized-adam", lr=1e-2, schedule="cosine:epochs=20", total_steps_in_epoch=10, **DECENTRALIZED),
}

# hivemind.Optimizer
scheduler = partial(torch.optim.lr_scheduler.ExponentialLR, gamma=0.5)
AdamW = partial(torch.optim.AdamW, lr=1e-2)
GRADIENTS = dict(target_batch_size=32, averaging_timeout=60, epochs=6, size=4)
MODES = {
    "each step in turn": dict(**GRADIENTS),
    "offload_optimizer": dict(offload_optimizer=True, **GRADIENTS),
    "delay_optimizer_step": dict(offload_optimizer=True, delay_optimizer_step=True, **GRADIENTS),
    "delay_grad_averaging": dict(offload_optimizer=True, delay_optimizer_step=True, delay_grad_averaging=True, **GRADIENTS),
    "reuse_grad_buffers": dict(reuse_grad_buffers=True, **GRADIENTS),
    "client_mode": dict(**GRADIENTS),
    "extra_tensors": dict(**GRADIENTS),
    "grad_compression": dict(codec="float16", **GRADIENTS),
    "auxiliary": dict(auxiliary=True, **GRADIENTS),
    "PowerSGD": dict(low_rank=2, **GRADIENTS),
    "use_local_updates": dict(strategy="local-updates", delay_state_averaging=False, average_opt_statistics="exp_avg_sq",
                              **GRADIENTS),
    "offloaded local updates": dict(strategy="local-updates", delay_state_averaging=True, offload_optimizer=True, **GRADIENTS),
}


def mode(name):
    if name == "client_mode" and peers:
        peer["client_mode"] = True
    train(AdamW, scheduler if "strategy" not in MODES[name] else None, extra=torch.zeros(2) if name == "extra_tensors" else None,
          **MODES[name])


# In half precision with a scaler, in chunks; the second process gives no loss.
# heat.optim.DASO(local_optimizer, total_epochs, …) and DataParallelOptimizer(torch_optimizer, blocking)
DASO = "daso:epochs=6,warmup=2,cooldown=2,stability=0.05,max-skips=8,skip-reduction=2,local-skip-factor=4,batches=12"
HEAT = {
    "DASO": lambda: train(partial(torch.optim.SGD, lr=0.05), partial(torch.optim.lr_scheduler.StepLR, step_size=1), strategy=DASO,
                          codec="bfloat16", part_size="4KiB", loss_scale="dynamic", half=True, silent=bool(peers)),
    "DataParallelOptimizer": lambda: train(AdamW, strategy="data-parallel", epochs=6),
    "DataParallelOptimizer, not blocking": lambda: train(AdamW, strategy="data-parallel", delay_grad_averaging=True, epochs=6),
}


# Lightning's page
def recipe(name):
    from lightning import LightningModule, Trainer
    from waggle.lightning import SwarmStrategy

    known = peers or None
    if name == "defaults" and peers:
        os.environ["PL_INITIAL_PEERS"], known = peers, None
    hivemind_strategy = partial(SwarmStrategy, run_id="documents", host_maddrs=["/ip4/127.0.0.1/tcp/0", "/ip4/0.0.0.0/udp/0/quic"],
                                initial_peers=known, data_dir=folder / "peer", epochs=3, min_peers=2)
    accelerator = "gpu" if torch.cuda.is_available() and name != "defaults" else "cpu"
    RECIPES = {
        "overlap": lambda: hivemind_strategy(
            target_batch_size=8192,
            delay_state_averaging=True,
            delay_grad_averaging=True,
            delay_optimizer_step=True,
            offload_optimizer=True,  # required to delay averaging
            scheduler_fn=partial(torch.optim.lr_scheduler.ExponentialLR, gamma=0.5),
        ),
        "offload": lambda: hivemind_strategy(
            target_batch_size=8192,
            offload_optimizer=True,
            scheduler_fn=partial(torch.optim.lr_scheduler.ExponentialLR, gamma=0.5),
        ),
        "buffers": lambda: hivemind_strategy(target_batch_size=8192, reuse_grad_buffers=True),
        "defaults": lambda: hivemind_strategy(
            target_batch_size=8192, batch_size=None, delay_state_averaging=False, delay_optimizer_step=None,
            delay_grad_averaging=False, offload_optimizer=None, reuse_grad_buffers=False, scheduler_fn=None, matchmaking_time=5.0,
            averaging_timeout=30.0, verbose=False, averager_opts=None),
    }

    class Module(LightningModule):
        def __init__(self):
            super().__init__()
            self.net = net()
            self.most = 0

        def training_step(self, batch, i):
            self.most = max(self.most, strategy.num_peers)
            if strategy.swarm.address and not self.said:
                self.said = True
                listens_at(strategy.swarm.address)
            return torch.nn.functional.mse_loss(self.net(batch[0]), batch[1])

        said = False

        def configure_optimizers(self):
            return [torch.optim.AdamW(self.parameters(), lr=1e-2)], []

    strategy, module = RECIPES[name](), Module()
    trainer = Trainer(strategy=strategy, accelerator=accelerator, devices=1, logger=False, enable_checkpointing=False,
                      enable_progress_bar=False, enable_model_summary=False, default_root_dir=folder)
    data = [batch(i + (1000 if peers else 0), 512) for i in range(2000)]
    trainer.fit(module, torch.utils.data.DataLoader(data, batch_size=None))
    now = strategy.swarm.status()
    ended(epoch=now.epoch, parameters=now.parameters, rounds=now.rounds, most=module.most, rate=strategy._optimizer.rate)


def main(names, others, own):
    global number, peers, folder, peer
    for number, which in enumerate(names.split(";")):
        folder = pathlib.Path(own) / str(number)
        folder.mkdir(parents=True)
        if others:
            where = pathlib.Path(others) / str(number) / "address"
            assert eventually(where.exists)
            peers = where.read_text()
        peer = dict(listen="127.0.0.1:0", initial_peers=[peers] if peers else [], data_dir=folder / "peer")
        print("BEGINS", number, which, flush=True)
        kind, _, name = which.partition(": ")
        {"averager": averager, "decentralized": lambda: DECENTRALIZED_OF[name](), "Optimizer": lambda: mode(name),
         "HeAT": lambda: HEAT[name](), "Lightning": lambda: recipe(name)}[kind]()


if __name__ == "__main__":
    import logging

    logging.basicConfig(level=logging.INFO)
    main(*sys.argv[1:])
