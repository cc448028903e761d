#!/usr/bin/env python3
"""Measures what committing every step costs on SmolLM2, and how fast a killed run is back.

usage: measure_resume.py HEADRACE [--rounds N] [--steps N] [--drive FOLDER] [--json]

Everything on NVMe, the batches of scripts/check_bits.py. Each round, one after the other:
  whole    a run of N steps that commits every step, the same without commits, and one in memory
  start    from the start of the program to the end of its first step
  resume   kill -9 after two steps; from the start of the program to the end of the first step after
Prints medians over the rounds, the bytes that a step wrote beside those predicted from the
schedule, and what a commit's sync took. Uses 4 GB of the drive, and about a minute a round.
"""

import argparse
import json
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MODEL = "models/smollm2-135m-instruct"  # scripts/prepare_model.py
DATA = "data/devil/train.jsonl"  # scripts/prepare_devil.py
BATCH = ["per_device_train_batch_size=1", "gradient_accumulation_steps=3", "max_length=128",
         "learning_rate=2e-4", "warmup_ratio=0", "max_grad_norm=0.5", "optimizer_states=fp32"]
ON_NVME = ["gpu_budget=768MiB", "ram_budget=256MiB", "parameters=nvme", "optimizer=nvme"]
RESIDENT = ["gpu_budget=4GiB", "ram_budget=4GiB", "parameters=gpu", "optimizer=ram"]


class Run:
    def __init__(self, headrace, folder, *settings):
        self.output = folder / "out"
        self.began = time.monotonic()
        self.process = subprocess.Popen(
            [headrace, "train", MODEL, DATA, f"output_dir={self.output}",
             f"nvme_paths=[{folder / 'drive'}]", *BATCH, *settings],
            cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.text = ""

    def seconds_to_step(self, count):
        """Until `count` step lines were said since the start."""
        for line in self.process.stdout:
            self.text += line
            if re.search(r"\bstep=\d+", line):
                count -= 1
                if count == 0:
                    return time.monotonic() - self.began
        raise SystemExit(f"the run ended early:\n{self.text}")

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate()

    def finish(self):
        """All records of its metrics."""
        rest, _ = self.process.communicate()
        if self.process.returncode != 0:
            raise SystemExit(self.text + rest)
        lines = (self.output / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines]


def step_ms(records):
    """The median of the steps after the warm-up, which on nvme reads what was never written."""
    times_ms = [r["time_ms"] for r in records if "loss" in r and not r["warm_up"]]
    if not times_ms:
        raise SystemExit("--steps: all of them were of the warm-up")
    return statistics.median(times_ms)


def measure(headrace, folder, steps):
    figures = {}
    committed = Run(headrace, folder, *ON_NVME, f"max_steps={steps}").finish()
    uncommitted = Run(headrace, folder, *ON_NVME, "commit=at_saves", f"max_steps={steps}").finish()
    resident = Run(headrace, folder, *RESIDENT, f"max_steps={steps}").finish()
    end = committed[-1]
    figures["step_ms_committed"] = step_ms(committed)
    figures["step_ms_uncommitted"] = step_ms(uncommitted)
    figures["step_ms_resident"] = step_ms(resident)
    figures["of_uncommitted"] = figures["step_ms_uncommitted"] / figures["step_ms_committed"]
    figures["of_resident"] = figures["step_ms_resident"] / figures["step_ms_committed"]
    figures["sync_p50_ms"] = end["nvme0_sync_p50_ms"]
    figures["sync_p99_ms"] = end["nvme0_sync_p99_ms"]
    written = [r["nvme_write_bytes"] for r in committed if r.get("step", 0) > 2 and "loss" in r]
    figures["written_bytes_per_step"] = statistics.median(written)
    figures["formula_bytes_per_step"] = end["predicted_nvme_write_bytes"]
    run = Run(headrace, folder, *ON_NVME, "max_steps=1000")
    figures["start_to_first_step_s"] = run.seconds_to_step(1)
    run.seconds_to_step(2)
    run.kill()
    run = Run(headrace, folder, *ON_NVME, "max_steps=1000", "resume_from_checkpoint=true")
    figures["resume_to_next_step_s"] = run.seconds_to_step(1)
    run.kill()
    subprocess.run([headrace, "store", "remove", str(folder / "out")], check=True, cwd=ROOT,
                   stdout=subprocess.DEVNULL)
    return figures


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("headrace", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--drive", type=Path, default=ROOT / "runs", help="a folder on the drive")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    arguments.drive.mkdir(parents=True, exist_ok=True)
    rounds = []
    with tempfile.TemporaryDirectory(prefix="resume-", dir=arguments.drive) as temporary:
        folder = Path(temporary).resolve()
        (folder / "drive").mkdir()
        for _ in range(arguments.rounds):
            rounds.append(measure(str(arguments.headrace.resolve()), folder, arguments.steps))
    medians = {name: statistics.median(r[name] for r in rounds) for name in rounds[0]}
    if arguments.json:
        print(json.dumps({"rounds": rounds, "medians": medians}, indent=1))
        return
    for name, value in medians.items():
        print(f"{name:28} {value:,.3f}" if value < 1e4 else f"{name:28} {value:,.0f}")


if __name__ == "__main__":
    sys.exit(main())
