"""Goal: TUNE-2: what `plan` says a run takes is what it takes: over tiers, passes, windows and
parts its memory, its locked bytes and its bytes on the drive are within a tenth of the plan.

Method: the built program plans and trains six toy runs of a model that is larger than what varies
in a process. The kernel counts: peak RSS and VmLck of the process, blocks of the store's files.
Usage: plan_test.py PROGRAM
"""
import json
import re
import sys
import tempfile
import time
import unittest
from pathlib import Path

import tiny

PROGRAM = Path(sys.argv.pop(1)).resolve() if len(sys.argv) > 1 else None

# As `doctor --probe` writes it: a card that is this machine's memory and cores.
MACHINE = """
name: toy
gpu: {memory: 4GiB, tflops: 0.04, memory_gb_per_s: 11, launch_us: 11, cores: 2}
link: {h2d_gb_per_s: 6, d2h_gb_per_s: 6, latency_us: 11, both_ways: 1.05, cores: 1}
ram: {memory: 4GiB, gb_per_s: 29}
cpu: {cores: 2, update_cores: 1, update_gparam_per_s: 1.1}
drive: {count: 1, space: 60GB, read_gb_per_s: 2, write_gb_per_s: 3, latency_us: 11, flush_ms: 4}
"""
NVME = ["parameters=nvme", "optimizer=nvme", "gpu_budget=384MiB", "ram_budget=128MiB"]
RAM = ["parameters=ram", "optimizer=ram", "gpu_budget=512MiB", "ram_budget=1GiB"]
RUNS = {
    "all on nvme": NVME,
    "one micro-batch a pass": [*NVME, "micro_batches_per_pass=1", "gradient_accumulation_steps=3"],
    "one layer in flight, small parts": [*NVME, "layers_in_flight=1", "part_bytes=1MiB"],
    "half of the states in ram": ["parameters=nvme", "optimizer={ram: 50%, nvme: 50%}",
                                  "gpu_budget=384MiB", "ram_budget=512MiB", "commit=every_step"],
    "all in ram": RAM,
    "all on the card": ["parameters=gpu", "optimizer=gpu", "gpu_budget=2GiB", "ram_budget=256MiB"],
}
# What torch and the reading of a model take beside the slots differs by this from run to run.
SLACK_BYTES = 32 << 20


def bytes_on_drive(folder):
    try:
        return sum(file.stat().st_blocks * 512 for file in folder.rglob("*"))
    except FileNotFoundError:
        return 0  # gone between two looks


def locked_bytes(process_id):
    try:
        status = Path(f"/proc/{process_id}/status").read_text()
    except FileNotFoundError:
        return 0
    found = re.search(r"VmLck:\s+(\d+) kB", status)
    return int(found.group(1)) * 1024 if found else 0


class PlanTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.made = tempfile.TemporaryDirectory(prefix="headrace-plan-")
        cls.addClassCleanup(cls.made.cleanup)
        cls.folder = Path(cls.made.name)
        cls.program = tiny.Program(PROGRAM, sys.executable, cls.folder)
        shape = cls.folder / "shape.json"
        shape.write_text(json.dumps(tiny.config_of(8192, tied=False) | {
            "hidden_size": 512, "intermediate_size": 1536, "num_hidden_layers": 6,
            "num_attention_heads": 8, "num_key_value_heads": 4}))
        made = cls.program.run("random-model", shape, cls.folder / "model")
        assert made.code == 0, made
        tiny.write_lines(cls.folder / "data.jsonl", [
            {"input_ids": [(i * 7 + j * 13) % 8000 + 2 for j in range(96)]} for i in range(16)])
        (cls.folder / "machine.yaml").write_text(MACHINE)

    def words_of(self, name):
        words = [self.folder / "model", f"output_dir={self.folder}/out", "max_length=96",
                 "max_steps=2", "gradient_accumulation_steps=2", *RUNS[name]]
        if "nvme" in "".join(RUNS[name]):
            words.append(f"nvme_paths=[{self.folder}/drive]")
        return words

    def plan(self, name):
        planned = self.program.run("plan", *self.words_of(name), "--json", "--machine",
                                   self.folder / "machine.yaml")
        self.assertEqual(planned.code, 0, planned)
        return json.loads(planned.out)

    def train(self, name):
        """(the last record of its metrics, most locked bytes, most bytes on the drive)"""
        drive = self.folder / "drive"
        drive.mkdir(exist_ok=True)
        model, *settings = self.words_of(name)
        process = self.program.start("train", model, self.folder / "data.jsonl", *settings,
                                     "overwrite_output_dir=true")
        locked, taken = 0, 0
        while process.poll() is None:
            locked = max(locked, locked_bytes(process.pid))
            taken = max(taken, bytes_on_drive(drive))
            time.sleep(0.02)
        out, err = process.communicate()
        self.assertEqual(process.returncode, 0, out + err)
        lines = (self.folder / "out" / "metrics.jsonl").read_text().splitlines()
        return json.loads(lines[-1]), locked, taken

    def check(self, name):
        planned = self.plan(name)
        end, locked, taken = self.train(name)
        needs = planned["needs"]
        memory = needs["gpu_bytes"] + needs["ram_bytes"]
        held = end["peak_rss_bytes"] - end["baseline_rss_bytes"]
        self.assertGreater(memory, 2 * SLACK_BYTES, "else the test says nothing")
        self.assertLessEqual(held, 1.1 * memory + SLACK_BYTES, (name, planned))
        # A slot that a short run never touched is no resident memory yet.
        self.assertGreaterEqual(held, 0.5 * memory, (name, planned))
        self.assertLessEqual(locked, 1.1 * memory, (name, planned))
        self.assertAlmostEqual(taken, needs["nvme_bytes"], delta=0.1 * needs["nvme_bytes"] + 1e6)
        for tier, purposes in planned["bytes_by_purpose"].items():
            self.assertEqual(sum(purposes.values()), needs[tier + "_bytes"], (name, tier))

    def test_tune_2_a_run_takes_what_its_plan_says(self):
        for name in RUNS:
            with self.subTest(name):
                self.check(name)


if __name__ == "__main__":
    unittest.main()
