#!/usr/bin/env python3
"""Trains SmolLM2 a few steps under many placements and compares the bits they leave.

usage: check_bits.py HEADRACE [--steps N] [--only ROW,ROW...] [--list]

Each row of the matrix below is one run on the chats of data/devil with the same batches; only the
placement changes. weights_sha256, states_sha256 and
history_sha256 (losses and norms) of every row must equal those of the first, and those of the last
row, which does not clip, must not: else the comparison would say nothing. Runs, their stores and
exports live in a temporary folder inside runs/ and are removed. Prints a table; exit code 1 if a
run fails or a hash is not what it must be. About 20 to 60 seconds a row and 2.5 GB of the drive.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MODEL = "models/smollm2-135m-instruct"  # scripts/prepare_model.py
DATA = "data/devil/train.jsonl"  # scripts/prepare_devil.py
HASHES = ("weights_sha256", "states_sha256", "history_sha256")
# Small, and the same in every row. Clipping at 0.5 triggers at every step.
BATCH = ["per_device_train_batch_size=1", "gradient_accumulation_steps=3", "max_length=128",
         "learning_rate=2e-4", "warmup_ratio=0", "max_grad_norm=0.5",
         "gpu_budget=768MiB", "ram_budget=256MiB", "parameters=nvme", "optimizer=nvme"]
DRIVES = {1: ["drive0"], 3: ["drive0", "drive1", "drive2"]}
ROOMY = ["gpu_budget=4GiB", "ram_budget=4GiB"]

# name: (paths, overrides)
MATRIX = {
    "nvme": (1, []),
    "ram": (1, ["parameters=ram", "optimizer=ram", "stash_tier=ram", "activations=ram", *ROOMY]),
    "resident": (1, ["parameters=gpu", "optimizer=ram", "stash_tier=ram", "activations=gpu",
                     *ROOMY]),
    "group 1": (1, ["micro_batches_per_pass=1"]),
    "group 2": (1, ["micro_batches_per_pass=2"]),
    "group all": (1, ["micro_batches_per_pass=all"]),
    "window 1": (1, ["layers_in_flight=1"]),
    "window all": (1, ["layers_in_flight=all", *ROOMY]),
    "parts of 256KiB": (1, ["part_bytes=256KiB"]),
    "parts of 64MiB": (1, ["part_bytes=64MiB", *ROOMY]),
    "update threads 2": (1, ["update_threads=2"]),
    "io threads": (1, ["io_engine=threads"]),
    "3 paths": (3, []),
    "shares": (3, ["parameters={gpu: 20%, ram: 30%, nvme: 50%}",
                   "optimizer={ram: 40%, nvme: 60%}", *ROOMY]),
    "all scratch on nvme": (1, ["stash_tier=nvme", "accumulator_tier=nvme", "activations=nvme",
                                "micro_batches_per_pass=1"]),
    "scratch spilled in part": (1, ["stash_tier={ram: 30%, nvme: 70%}", "micro_batches_per_pass=2",
                                    "activations={gpu: 10%, ram: 30%, nvme: 60%}"]),
    "committed in memory": (3, ["parameters=gpu", "optimizer=ram", "commit=every_step", *ROOMY]),
    "saves": (1, ["commit=at_saves", "save_steps=1"]),
    "half updated twice": (1, ["update_twice=0.5"]),
    "all updated twice": (1, ["update_twice=1"]),
    "as the planner likes": (1, ["parameters=auto", "optimizer=auto"]),
    "and with room": (1, ["parameters=auto", "optimizer=auto", *ROOMY]),
    "no clipping": (1, ["max_grad_norm=0"]),
}
DIFFERENT = "no clipping"
assert not any("," in name for name in MATRIX)  # --only is a list


def run(headrace, steps, folder, name):
    """The last record of the row's metrics, or what went wrong as text."""
    paths, overrides = MATRIX[name]
    drives = [str(folder / drive) for drive in DRIVES[paths]]
    for drive in drives:
        Path(drive).mkdir(exist_ok=True)
    output = folder / "out"
    command = [headrace, "train", MODEL, DATA, f"output_dir={output}", f"max_steps={steps}",
               f"nvme_paths=[{', '.join(drives)}]", *BATCH, *overrides]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        return f"exit code {done.returncode}: {done.stderr.strip()[-500:]}"
    lines = (output / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return json.loads(lines[-1])


def judge(name, facts, expected):
    """What is wrong with a row's hashes, or an empty text."""
    differing = [key for key in HASHES if facts[key] != expected[key]]
    if name == DIFFERENT:
        return "" if "weights_sha256" in differing else "clipping changed nothing"
    return f"{', '.join(differing)} differ" if differing else ""


def main():
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("headrace", nargs="?")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--only", default=",".join(MATRIX))
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--help", action="store_true")
    options = parser.parse_args()
    if options.list:
        sys.exit("\n".join(MATRIX))
    names = options.only.split(",")
    unknown = [name for name in names if name not in MATRIX]
    if unknown:
        sys.exit(f"check_bits: no row is called '{unknown[0]}'; --list shows all")
    if options.help or not options.headrace:
        sys.exit(__doc__)
    headrace = str(Path(options.headrace).resolve())
    (ROOT / "runs").mkdir(exist_ok=True)
    expected = None
    wrong = 0
    print(f"{'placement':<22}{'weights':<14}{'states':<14}{'history':<14}{'peak RSS':>10}  verdict")
    for name in names:
        with tempfile.TemporaryDirectory(prefix="bits-", dir=ROOT / "runs") as folder:
            facts = run(headrace, options.steps, Path(folder), name)
        if isinstance(facts, str):
            wrong += 1
            print(f"{name:<22}{facts}", flush=True)
            continue
        expected = expected or facts
        fault = judge(name, facts, expected)
        wrong += fault != ""
        hashes = "".join(f"{facts[key][:12]:<14}" for key in HASHES)
        right = "differs, as it must" if name == DIFFERENT else "equal"
        print(f"{name:<22}{hashes}{facts['peak_rss_bytes'] / 1e6:>7.0f} MB  {fault or right}",
              flush=True)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
