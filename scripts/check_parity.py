#!/usr/bin/env python3
"""Trains SmolLM2 in fp32 with everything on the drive, and again in transformers; compares losses.

usage: check_parity.py HEADRACE [--steps N] [--tokens T]

N steps (20) of two samples of T tokens (64) each, in their order, AdamW at a constant rate with
clipping at norm 1.0: once by HEADRACE with parameters and optimizer on nvme, once by transformers'
model and torch.optim.AdamW. The loss of every step must agree to 1e-3, relatively; the gradient
norm is shown beside it. Needs torch and transformers (scripts/setup), 3 GB of memory and 4 GB of
the drive; the run lives in a temporary folder inside runs/ and is removed. Exit code 1 where a loss
does not agree.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MODEL = ROOT / "models/smollm2-135m-instruct"  # scripts/prepare_model.py
DATA = ROOT / "data/devil/train.jsonl"  # scripts/prepare_devil.py
SAMPLES_PER_STEP = 2
LEARNING_RATE, WEIGHT_DECAY, CLIP_NORM = 5e-5, 0.01, 1.0
LOSS_TOLERANCE = 1e-3


def read_samples(count, token_count):
    """The text of the chats, one after another, cut into equal pieces."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    ids = []
    for line in DATA.read_text(encoding="utf-8").splitlines():
        for message in json.loads(line)["messages"]:
            ids += tokenizer(message["content"] + "\n").input_ids
        if len(ids) >= count * token_count:
            return [ids[i * token_count:(i + 1) * token_count] for i in range(count)]
    sys.exit(f"check_parity: {DATA} has fewer than {count * token_count} tokens")


def train_on_nvme(headrace, samples, steps, folder):
    data = folder / "samples.jsonl"
    data.write_text("".join(json.dumps({"input_ids": ids}) + "\n" for ids in samples))
    (folder / "drive").mkdir()
    command = [headrace, "train", str(MODEL), str(data), f"output_dir={folder / 'out'}",
               "dtype=fp32", "shuffle=false", f"max_steps={steps}",
               "per_device_train_batch_size=1", f"gradient_accumulation_steps={SAMPLES_PER_STEP}",
               f"learning_rate={LEARNING_RATE}", "lr_scheduler_type=constant", "warmup_ratio=0",
               f"weight_decay={WEIGHT_DECAY}", f"max_grad_norm={CLIP_NORM}",
               "gpu_budget=1GiB", "ram_budget=512MiB", f"nvme_paths=[{folder / 'drive'}]",
               "parameters=nvme", "optimizer=nvme"]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                          text=True)
    if done.returncode != 0:
        sys.exit(f"check_parity: exit code {done.returncode} of: {' '.join(command)}\n"
                 f"{done.stderr[-2000:]}")
    lines = (folder / "out/metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [record for record in map(json.loads, lines) if "total_steps" in record]


def train_in_transformers(samples, steps):
    """Yields (loss, norm before clipping) of each step."""
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    for step in range(steps):
        batch = samples[step * SAMPLES_PER_STEP:(step + 1) * SAMPLES_PER_STEP]
        trained = sum(len(ids) - 1 for ids in batch)
        total = 0.0
        for ids in batch:
            tokens = torch.tensor([ids])
            logits = model(input_ids=tokens).logits[0, :-1]
            loss = torch.nn.functional.cross_entropy(logits, tokens[0, 1:], reduction="sum")
            (loss / trained).backward()
            total += loss.item()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP_NORM)
        optimizer.step()
        optimizer.zero_grad()
        yield total / trained, norm.item()


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("headrace")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--tokens", type=int, default=64)
    options = parser.parse_args()
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # torch's threads spin on shared cores
    samples = read_samples(options.steps * SAMPLES_PER_STEP, options.tokens)
    (ROOT / "runs").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="parity-", dir=ROOT / "runs") as folder:
        ours = train_on_nvme(str(Path(options.headrace).resolve()), samples, options.steps,
                             Path(folder))
    if len(ours) != options.steps:
        sys.exit(f"check_parity: {len(ours)} steps were logged, not {options.steps}")
    print(f"{'step':>4}  {'headrace':>10}  {'transformers':>12}  {'relative':>9}  "
          f"{'norm':>8}  {'theirs':>8}")
    worst = 0.0
    for record, (loss, norm) in zip(ours, train_in_transformers(samples, options.steps)):
        relative = abs(record["loss"] - loss) / loss
        worst = max(worst, relative)
        print(f"{record['step']:>4}  {record['loss']:>10.6f}  {loss:>12.6f}  {relative:>9.1e}  "
              f"{record['grad_norm']:>8.4f}  {norm:>8.4f}", flush=True)
    agrees = worst <= LOSS_TOLERANCE
    print(f"largest difference {worst:.1e}, allowed {LOSS_TOLERANCE:.0e}: "
          f"{'agrees' if agrees else 'DIFFERS'}")
    sys.exit(0 if agrees else 1)


if __name__ == "__main__":
    main()
