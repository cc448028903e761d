"""Goal: a run that is killed with kill -9, at any moment and again and again, ends with the bits of
a run that was not (CKPT-1, CKPT-2), and metrics.jsonl tells of every step once.

Method: the program on a tiny model whose weights and states are on a real drive. It kills itself
when so many ops of its training are done, or is killed after a random time, and is started again
with resume_from_checkpoint under another placement each time. A kill before the first commit leaves
nothing to resume: then the run is begun anew.
Usage: kill_test.py PROGRAM [--kills N] [--seed S] [--set KEY=VALUE]...
PROGRAM takes --kill-at-op (the program of the tests).
"""
import argparse
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import tiny

STEPS = 8
SETTINGS = ("gpu_budget=32MiB", "ram_budget=32MiB", "compute_threads=1", "part_bytes=8KiB",
            "parameters=nvme", "optimizer=nvme",
            f"max_steps={STEPS}", "gradient_accumulation_steps=2", "learning_rate=1e-2",
            "warmup_ratio=0", "max_grad_norm=0.1")
# None of them may change a bit.
PLACEMENTS = (
    (),
    ("parameters=gpu", "optimizer=ram", "commit=every_step"),
    ("parameters={ram: 50%, nvme: 50%}", "optimizer={ram: 30%, nvme: 70%}", "commit=every_step"),
    ("layers_in_flight=1", "micro_batches_per_pass=1", "stash_tier=nvme", "activations=nvme"),
    ("part_bytes=16KiB",),
    ("io_engine=threads", "update_threads=2"),
)
ENVIRONMENT = os.environ | {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "0"}


class Job:
    def __init__(self, program, folder, settings):
        self.program, self.folder, self.settings = program, folder, settings
        self.model = folder / "model"
        tiny.write_model(self.model)
        self.data = folder / "data.jsonl"
        chance = random.Random(3)
        samples = [[chance.randrange(250) for _ in range(8 + 4 * (i % 4))] for i in range(12)]
        self.data.write_text("".join(json.dumps({"input_ids": s}) + "\n" for s in samples))
        for drive in ("drive0", "drive1"):
            (folder / drive).mkdir()

    def command(self, name, *more):
        drives = f"nvme_paths=[{self.folder / 'drive0'}, {self.folder / 'drive1'}]"
        return [str(self.program), "train", str(self.model), str(self.data), *SETTINGS,
                *self.settings, drives, f"output_dir={self.folder / name}", *more]

    def stores(self):
        return [path for drive in ("drive0", "drive1") for path in (self.folder / drive).iterdir()]

    def run(self, name, *more, kill_after=None):
        """(exit status, output); killed after so many seconds, if it is still there."""
        process = subprocess.Popen(self.command(name, *more), stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True, env=ENVIRONMENT)
        try:
            output, _ = process.communicate(timeout=kill_after)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            output, _ = process.communicate()
        return process.returncode, output


def sha_of(output):
    found = re.search(r"final sha256=(\w+) states=(\w+)", output)
    assert found, output
    return found.groups()


def losses_of(folder):
    """The losses by step; each step once."""
    losses = {}
    for line in (folder / "metrics.jsonl").read_text().splitlines():
        record = json.loads(line)
        if "loss" not in record:
            continue
        assert record["step"] not in losses, f"step {record['step']} is told twice"
        losses[record["step"]] = record["loss"]
    return losses


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", type=Path)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--set", action="append", default=[], help="of all runs")
    arguments = parser.parse_args()
    chance = random.Random(arguments.seed)
    with tempfile.TemporaryDirectory(prefix="headrace_kill_") as temporary:
        folder = Path(temporary)
        job = Job(arguments.program.resolve(), folder, arguments.set)
        began = time.monotonic()
        status, output = job.run("whole", "--kill-at-op", "999999999")
        whole_seconds = time.monotonic() - began
        assert status == 0, output
        expected, expected_losses = sha_of(output), losses_of(folder / "whole")
        assert len(expected_losses) == STEPS
        assert not job.stores(), "a finished run leaves no store"
        kills, starts, runs, resumed = 0, 0, 0, 0
        has_commit = False
        while kills < arguments.kills:
            placement = PLACEMENTS[starts % len(PLACEMENTS)]
            more = [*placement, "resume_from_checkpoint=true" if has_commit
                    else "overwrite_output_dir=true"]
            kill_after = None
            if starts % 2 == 0:
                more += ["--kill-at-op", str(chance.randrange(1, 2500))]
            else:
                kill_after = whole_seconds * chance.uniform(0.2, 1.0)
            starts += 1
            resumed += has_commit
            status, output = job.run("killed", *more, kill_after=kill_after)
            if status == -signal.SIGKILL:
                kills += 1
                # Two kinds of store may be there: one that was not laid out to its end, and ours.
                has_commit = "loss=" in output or has_commit
                continue
            if status == 4 and "there is no run to resume" in output:
                has_commit = False
                continue
            assert status == 0, f"start {starts}, {more}:\n{output}"
            runs += 1
            has_commit = False
            assert sha_of(output) == expected, f"other bits after {kills} kills, {more}:\n{output}"
            assert losses_of(folder / "killed") == expected_losses
            assert not job.stores(), job.stores()
        more = ["resume_from_checkpoint=true"] if has_commit else ["overwrite_output_dir=true"]
        status, output = job.run("killed", *more)
        if status == 4:
            status, output = job.run("killed", "overwrite_output_dir=true")
        assert status == 0, output
        assert sha_of(output) == expected, output
        assert losses_of(folder / "killed") == expected_losses
        assert not job.stores(), job.stores()
        assert resumed > 0, "no start resumed anything"
    print(f"{kills} kills in {starts} starts, {resumed} of them resumed, {runs + 1} runs came to "
          f"their end, each with the bits of the run that was not killed")


if __name__ == "__main__":
    sys.exit(main())
