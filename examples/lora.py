"""Adapters of peft on a base in bfloat16, trained together: peers exchange the adapters alone, and compare the base.

    python3 examples/lora.py --data DIR                                # the first peer; prints its address
    python3 examples/lora.py --data DIR --peer HOST:PORT --seed 2      # further ones
"""

import argparse
import pathlib

import torch
import transformers
import waggle
from peft import LoraConfig, PeftModel, get_peft_model

parser = argparse.ArgumentParser()
parser.add_argument("--data", default="/usr/share/common-licenses", help="a folder of texts")
parser.add_argument("--peer", action="append", help="HOST:PORT of a peer of the run")
parser.add_argument("--listen")
parser.add_argument("--data-dir")
parser.add_argument("--seed", type=int, default=1, help="of the batches, another one on each peer")
parser.add_argument("--base-seed", type=int, default=1, help="of the base, the same on all peers")
parser.add_argument("--batch", type=int, default=8)
parser.add_argument("--target", type=int, default=32, help="samples of all peers for an update")
parser.add_argument("--epochs", type=int, default=40, help="updates")
parser.add_argument("--min-peers", type=int, default=1)
parser.add_argument("--save", help="a folder for the adapter")
args = parser.parse_args()
CONTEXT = 64


def base() -> transformers.GPT2LMHeadModel:
    """A small one, which nobody has trained. Yours comes from from_pretrained(…, dtype=torch.bfloat16)."""
    torch.manual_seed(args.base_seed)
    config = transformers.GPT2Config(vocab_size=256, n_positions=CONTEXT, n_embd=64, n_layer=2, n_head=4,
                                     bos_token_id=0, eos_token_id=0)
    return transformers.GPT2LMHeadModel(config).to(torch.bfloat16)


files = sorted(path for path in pathlib.Path(args.data).iterdir() if path.is_file())
text = torch.tensor(list(b"".join(path.read_bytes() for path in files)))
held_out = text[:32 * CONTEXT].view(32, CONTEXT)
text = text[32 * CONTEXT:]

# peft makes adapters float32, whatever the base is.
lora = LoraConfig(task_type="CAUSAL_LM", r=4, target_modules=["c_attn", "c_proj"], fan_in_fan_out=True)
model = get_peft_model(base(), lora)
swarm = waggle.join("lora", initial_peers=args.peer, listen=args.listen, data_dir=args.data_dir)
optimizer = waggle.Optimizer(torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], 1e-2), swarm, model,
                             target_batch_size=args.target, epochs=args.epochs, min_peers=args.min_peers)
print(f"listening on {swarm.address}", flush=True)
own = torch.Generator().manual_seed(args.seed)
while not swarm.finished:
    begin = torch.randint(len(text) - CONTEXT, (args.batch, 1), generator=own)
    batch = text[begin + torch.arange(CONTEXT)]
    optimizer.zero_grad()
    loss = model(input_ids=batch, labels=batch).loss
    loss.backward()
    optimizer.step(samples=len(batch), loss=loss)
model.eval()
with torch.no_grad():
    print(f"held-out loss {model(input_ids=held_out, labels=held_out).loss.item():.4f}", flush=True)
optimizer.leave()
print(f"adapters {swarm.status().parameters}", flush=True)
if args.save:
    waggle.load_checkpoint(swarm.data_dir).save_adapter(args.save, lora)
    again = PeftModel.from_pretrained(base(), args.save)
    with torch.no_grad():
        print(f"held-out loss {again(input_ids=held_out, labels=held_out).loss.item():.4f} when read back", flush=True)
