#!/usr/bin/env python3
"""Full fine-tuning of a large model's shape on this machine: two steps, twice, the same bits.

usage: check_large.py HEADRACE --path FOLDER [--shape CONFIG_JSON] [--layers N] [--states FORMAT]
                      [--tokens N] [--rss GIB] [--steps N]

Random weights of the shape (default: Llama 3.2 3B, all its blocks) are made where they are read,
and trained for two steps of one sample of --tokens tokens with everything on the drive. Then the
same steps with one layer in flight instead of two and smaller parts. Weights, states, losses and
norms must be equal bit for bit, every norm above the limit of clipping, and the peak of resident
memory below --rss (default 8 GiB); the bytes of the store and of a step are compared with what was
said before the first step. The format of the states is the largest that `headrace plan` says fits
FOLDER beside the trained weights, in one generation where it has no room for two; --states fixes
it. Everything it made is removed. Exit code 1 if something is not as it must be.
"""

import argparse
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HASHES = ("weights_sha256", "states_sha256", "history_sha256")
GIB = 1 << 30
DOES_NOT_FIT = 3  # headrace's exit code
# What is left of the ceiling is for the program and torch.
RUNS = {
    "two layers in flight": ["layers_in_flight=2"],
    "one layer in flight, parts of 8 MiB": ["layers_in_flight=1", "part_bytes=8MiB"],
}


def write_data(path, vocabulary_size, tokens, rows):
    dice = random.Random(5)
    with open(path, "w", encoding="utf-8") as file:
        for _ in range(rows):
            row = [dice.randrange(vocabulary_size) for _ in range(tokens)]
            file.write(json.dumps({"input_ids": row}) + "\n")


def settings_of(options, states, folder):
    """The words that train and plan are given."""
    shape = json.loads((folder / "model" / "config.json").read_text(encoding="utf-8"))
    weights = shape["vocab_size"] * shape["hidden_size"] * 2  # a bound on what is not in blocks
    weights += shape["num_hidden_layers"] * shape["hidden_size"] * (
        3 * shape["intermediate_size"] + 4 * shape["hidden_size"])
    room = shutil.disk_usage(folder).free - 2 * weights - GIB
    return [f"nvme_paths=[{folder / 'drive'}]", f"nvme_budget={max(1, room >> 20)}MiB",
            f"max_steps={options.steps}",
            "parameters=nvme", "optimizer=nvme", "stash_tier=nvme", "commit=at_saves",
            f"optimizer_states={states}", f"max_length={options.tokens}", "learning_rate=1e-4",
            "warmup_ratio=0", "max_grad_norm=0.1", f"gpu_budget={options.rss * 5 // 8}GiB",
            f"ram_budget={options.rss // 4}GiB"]


def choose_states(options, folder):
    """The largest format that fits, by plan; what it says is printed."""
    for states in ("fp32", "bf16", "int8"):
        # Whether it fits, not how fast it is: any machine's rates will do.
        done = subprocess.run([options.headrace, "plan", str(folder / "model"), "--machine",
                               "configs/hardware/rtx4090.yaml",
                               *settings_of(options, states, folder)],
                              cwd=ROOT, capture_output=True, text=True)
        told = (done.stdout + done.stderr).splitlines()
        said = [line for line in told if line.startswith("memory") or "does not fit" in line]
        print(f"plan: {states} states: {' '.join(said)}", flush=True)
        if done.returncode == 0:
            return states
        if done.returncode != DOES_NOT_FIT:
            sys.exit(f"check_large: plan failed: {done.stderr.strip()}")
    sys.exit("check_large: plan says that nothing fits")


def train(options, words, folder, overrides):
    """The metrics of a run and its seconds. Ends the program if the run fails."""
    began = time.monotonic()
    done = subprocess.run([options.headrace, "train", *words, f"output_dir={folder / 'out'}",
                           *overrides], cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"check_large: the run failed: {done.stderr.strip()[-1500:]}")
    lines = (folder / "out" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    shutil.rmtree(folder / "out")
    return [r for r in records if "grad_norm" in r], records[-1], time.monotonic() - began


def faults_of(options, steps, facts, expected):
    faults = [f"{key} differs" for key in HASHES if facts[key] != expected[key]]
    faults += [f"step {r['step']} was not clipped" for r in steps if r["grad_norm"] <= 0.1]
    if facts["peak_rss_bytes"] > options.rss * GIB:
        faults.append(f"more than {options.rss} GiB resident")
    predicted = facts["predicted_nvme_write_bytes"]
    if abs(steps[-1]["nvme_write_bytes"] - predicted) > 0.01 * predicted:
        faults.append(f"a step wrote {steps[-1]['nvme_write_bytes']} bytes, predicted {predicted}")
    return faults


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("headrace")
    parser.add_argument("--path", required=True)
    parser.add_argument("--shape", default=str(ROOT / "configs/models/llama-3.2-3b.json"))
    parser.add_argument("--layers", type=int)
    parser.add_argument("--states", choices=("fp32", "bf16", "int8"))
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--rss", type=int, default=8)
    parser.add_argument("--steps", type=int, default=2)
    options = parser.parse_args()
    options.headrace = str(Path(options.headrace).resolve())
    options.shape = str(Path(options.shape).resolve())
    options.path = str(Path(options.path).resolve())
    layers = ["--layers", str(options.layers)] if options.layers else []
    expected = None
    is_right = True
    with tempfile.TemporaryDirectory(prefix="large-", dir=options.path) as folder:
        folder = Path(folder)
        subprocess.run([options.headrace, "random-model", options.shape, str(folder / "model"),
                        "--recipe", *layers], check=True, capture_output=True)
        shape = json.loads((folder / "model" / "config.json").read_text(encoding="utf-8"))
        write_data(folder / "data.jsonl", shape["vocab_size"], options.tokens, options.steps)
        (folder / "drive").mkdir()
        states = options.states or choose_states(options, folder)
        words = [str(folder / "model"), str(folder / "data.jsonl"),
                 *settings_of(options, states, folder)]
        for name, overrides in RUNS.items():
            with tempfile.TemporaryDirectory(dir=folder) as run_folder:
                steps, facts, seconds = train(options, words, Path(run_folder), overrides)
            expected = expected or facts
            faults = faults_of(options, steps, facts, expected)
            is_right &= not faults
            norms = ", ".join(f"{record['grad_norm']:.3f}" for record in steps)
            print(f"{name}: {facts['parameter_count'] / 1e9:.2f} billion parameters, "
                  f"{steps[-1]['time_ms'] / 1e3:.1f} s the last step, {seconds:.0f} s in all, "
                  f"norms {norms}, peak {facts['peak_rss_bytes'] / GIB:.2f} GiB, "
                  f"{facts['nvme_bytes'] / 1e9:.1f} GB on nvme, {states} states, weights "
                  f"{facts['weights_sha256'][:12]}: {'; '.join(faults) or 'right'}", flush=True)
    sys.exit(0 if is_right else 1)


if __name__ == "__main__":
    main()
