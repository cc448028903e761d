"""Goal: the table of scripts/peers/compare.py holds what the contestants measured, and says which
could not run and why.

Method: a stand-in for the engine that checks its data and writes metrics of chosen times; the peer
is one that is not installed.
"""

import importlib.util
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "peers" / "compare.py"
# The first step is slow, as first steps are; the others take 250 ms on NVMe and 125 ms resident.
ENGINE = """#!/usr/bin/env python3
import json, pathlib, sys
words = dict(word.split("=", 1) for word in sys.argv if "=" in word)
rows = [json.loads(line)["input_ids"] for line in open(sys.argv[3])]
assert len(rows) == 2 * int(words["max_steps"]) and all(len(row) == 50 for row in rows), rows
if words["parameters"] == "gpu" and "seed=13" in sys.argv:
    sys.exit("no luck with this seed")
time_ms = {"nvme": 250, "gpu": 125}[words["parameters"]]
run = pathlib.Path(words["output_dir"])
run.mkdir()
with open(run / "metrics.jsonl", "w") as file:
    for step in range(1, int(words["max_steps"]) + 1):
        record = {"step": step, "loss": 10.5, "time_ms": time_ms if step > 1 else 9999}
        file.write(json.dumps(record) + "\\n")
    file.write(json.dumps({"peak_rss_bytes": 1}) + "\\n")
"""


class CompareTest(unittest.TestCase):
    def compare(self, *options):
        with tempfile.TemporaryDirectory(prefix="compare ") as folder:
            model, engine = Path(folder, "model"), Path(folder, "headrace")
            model.mkdir()
            (model / "config.json").write_text(json.dumps({"vocab_size": 7}))
            engine.write_text(ENGINE)
            engine.chmod(0o755)
            done = subprocess.run(
                [sys.executable, SCRIPT, model, "--headrace", engine, "--steps", "3",
                 "--rounds", "2", "--micro-batches", "2", "--tokens", "50",
                 "--scratch", f"{folder}/drive", *options],
                capture_output=True, text=True)
            self.assertEqual(list(Path(folder, "drive").glob("*")), [])  # nothing is left behind
            self.assertEqual(done.returncode, 0, done.stderr)
            return done.stdout

    def test_medians_without_the_first_step(self):
        rows = self.compare("--only", "headrace-nvme,headrace-resident").splitlines()
        self.assertRegex(rows[2],
                         r"^\| Headrace, everything on NVMe.* \| 400\.0 \|.*\| 10\.5000 \|$")
        self.assertRegex(rows[3], r"^\| Headrace, resident \| 800\.0 \|")

    def test_a_contestant_that_fails_says_why(self):
        told = self.compare("--only", "headrace-resident,headrace-nvme", "--set", "seed=13")
        self.assertIn("| Headrace, resident | exit code 1: no luck with this seed |", told)
        self.assertIn("| 400.0 |", told)

    @unittest.skipIf(importlib.util.find_spec("deepspeed"), "deepspeed is installed")
    def test_a_peer_that_is_missing_says_how_to_get_it(self):
        self.assertIn("not installed: pip install deepspeed==0.19.8",
                      self.compare("--only", "deepspeed-nvme"))


if __name__ == "__main__":
    unittest.main()
