"""Goal: the tables of scripts/peers/compare_adam.py hold what Headrace and the peers measured, with
ratios of measurements of one round, and say who could not run and why.

Method: a stand-in for the engine, which checks the words it gets, and one for the Python of the
peers, which answers as scripts/peers/adam.py does; in the second round all are half as fast.
"""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "peers" / "compare_adam.py"
# 2.0, 3.0, 4.0 Gparam/s for states in fp32, bf16, int8 in the first round, 1.0 in plain fp32.
ENGINE = """#!/usr/bin/env python3
import json, pathlib, sys
words = sys.argv[1:]
assert words[:3] == ["bench", "adam", "--json"], words
of = {words[i]: words[i + 1] for i in range(3, len(words) - 1) if words[i].startswith("--")}
assert of["--rounds"] == "1" and of["--parameters"] == "2000000", words
seen = pathlib.Path(__file__).with_suffix(f".{of['--states']}.{of.get('--weight')}")
half = 0.5 if seen.exists() else 1
seen.touch()
if of["--states"] == "int8" and of["--threads"] == "2":
    sys.exit("no int8 today")
rate = half * {"fp32": 2, "bf16": 3, "int8": 4}[of["--states"]]
if of.get("--weight") == "fp32":
    assert of["--gradient"] == "fp32", words
    rate = half * 1
print(json.dumps([{"name": "update", "achieved": rate, "ceiling": 1.25 * rate},
                  {"name": "update and page sums", "achieved": 0.75 * rate},
                  {"name": "the new weight alone", "achieved": 1.5 * rate}]))
"""
# A mixed step runs at 0.5 (torch) and 0.25 Gparam/s (DeepSpeed), all else at 1.0.
PYTHON = """#!/usr/bin/env python3
import json, sys
assert sys.argv[1].endswith("adam.py") and sys.argv[3] == "2000000", sys.argv
seen = set()
print("DeepSpeed says something", flush=True)
for line in sys.stdin:
    name = line.strip()
    rate = {"torch-mixed": 0.5e9, "deepspeed-mixed": 0.25e9}.get(name, 1e9)
    if name == "deepspeed-engine" and "2" == sys.argv[5]:
        sys.exit(3)
    print(json.dumps({"name": name, "parameters_per_s": rate / (2 if name in seen else 1)}),
          flush=True)
    seen.add(name)
"""


class CompareAdamTest(unittest.TestCase):
    def compare(self, *options, has_peers=True):
        with tempfile.TemporaryDirectory(prefix="compare ") as folder:
            engine, python = Path(folder, "engine"), Path(folder, "peers", "bin", "python")
            python.parent.mkdir(parents=True)
            for path, text in ((engine, ENGINE), (python, PYTHON)):
                path.write_text(text)
                path.chmod(0o755)
            if has_peers:
                Path(folder, "peers", "requirements.sha256").touch()
            done = subprocess.run(
                [sys.executable, SCRIPT, "--headrace", engine, "--parameters", "2M", "--rounds",
                 "2", *options], capture_output=True, text=True,
                env=dict(os.environ, HEADRACE_PEERS_VENV=f"{folder}/peers"))
            self.code, self.told = done.returncode, done.stderr
            return done.stdout

    def row(self, table, start):
        found = [line for line in table.splitlines() if line.startswith(f"| {start}")]
        self.assertEqual(len(found), 1, table)
        return [cell.strip() for cell in found[0].split("|")[2:-1]]

    def test_medians_and_ratios_of_one_round(self):
        table = self.compare("--threads", "1")
        self.assertEqual(self.code, 0, self.told)
        self.assertEqual(self.row(table, "Headrace, bf16 to bf16, states in fp32"), ["1.500"])
        self.assertEqual(self.row(table, "Headrace, bf16 to bf16, states in int8"), ["3.000"])
        self.assertEqual(self.row(table, "PyTorch, fused AdamW, bf16 to bf16"), ["0.375"])
        self.assertEqual(self.row(table, "DeepSpeed, engine.step()"), ["0.750"])
        mixed = "the best peer's mixed step"
        self.assertEqual(self.row(table, f"fp32 | {mixed}")[-2:], [">= 2.2", "4.00"])
        self.assertEqual(self.row(table, f"bf16 | {mixed}")[-2:], [">= 3", "6.00"])
        self.assertEqual(self.row(table, f"int8 | {mixed}")[-2:], [">= 3.5", "8.00"])
        self.assertEqual(self.row(table, "plain | the best peer's bare kernel")[-1], "1.00")
        self.assertEqual(self.row(table, "fp32 | its stream")[-1], "0.80")
        self.assertEqual(self.row(table, "fp32-sums | itself without page sums")[-1], "0.75")
        self.assertRegex(table, r"\d+ cores, .*Commit .*`scripts/peers/compare_adam.py")
        names = [line.split(": ")[1] for line in self.told.splitlines()
                 if line.startswith("round")]
        self.assertEqual(names[:2], ["headrace-fp32", "headrace-bf16"])
        self.assertEqual(names[len(names) // 2:], names[:len(names) // 2][::-1])

    def test_who_fails_is_named_and_the_others_stay(self):
        table = self.compare("--threads", "2")
        self.assertEqual(self.code, 0, self.told)
        self.assertIn("- headrace: exit code 1: no int8 today", table)
        self.assertIn("- deepspeed-engine: the peers' process has ended, exit code 3", table)
        self.assertNotIn("states in int8 |", table)
        self.assertEqual(self.row(table, "int8 | the best peer's mixed step")[-1], "")
        self.assertEqual(self.row(table, "fp32 | the best peer's mixed step")[-1], "4.00")

    def test_peers_that_are_missing_say_how_to_get_them(self):
        self.assertEqual(self.compare("--threads", "1", has_peers=False), "")
        self.assertEqual(self.code, 1)
        self.assertIn("not installed: scripts/peers/setup", self.told)

    def test_json_has_every_sample(self):
        samples = json.loads(self.compare("--threads", "1", "--json"))
        fp32 = [one for one in samples if one["name"] == "headrace-fp32"]
        self.assertEqual([(one["round"], one["threads"], one["gparam_per_s"]) for one in fp32],
                         [(1, 1, 2.0), (2, 1, 1.0)])


if __name__ == "__main__":
    unittest.main()
