"""Goal: the table of scripts/peers/compare.py holds what the contestants measured, and says which
could not run, or not in time, and why.

Method: a stand-in for the engine, and one for the Python that runs the peers; both check the data
they get and record steps of chosen times. In one round of two they fail or hang, as they are told.
"""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "peers" / "compare.py"
MODEL = {"vocab_size": 7, "hidden_size": 10, "intermediate_size": 20, "num_hidden_layers": 1,
         "num_attention_heads": 1}
# The first step is slow, as first steps are, and two more on NVMe; the others take 250 ms on NVMe
# and 125 ms resident.
ENGINE = """#!/usr/bin/env python3
import json, pathlib, sys, time
words = dict(word.split("=", 1) for word in sys.argv if "=" in word)
rows = [json.loads(line)["input_ids"] for line in open(sys.argv[3])]
assert len(rows) >= 2 * int(words["max_steps"]) and all(len(row) == 50 for row in rows), rows
if words["parameters"] == "gpu" and "seed=13" in sys.argv:
    sys.exit("no luck with this seed")
time_ms = {"nvme": 250, "gpu": 125}[words["parameters"]]
run = pathlib.Path(words["output_dir"])
run.mkdir()
with open(run / "metrics.jsonl", "w") as file:
    for step in range(1, int(words["max_steps"]) + 1):
        record = {"step": step, "loss": {"bf16": 10.25, "fp32": 10.5}[words["dtype"]],
                  "time_ms": time_ms if step > {"nvme": 3, "gpu": 1}[words["parameters"]] else 9999}
        file.write(json.dumps(record) + "\\n")
    file.write(json.dumps({"peak_rss_bytes": 1}) + "\\n")
"""
# It multiplies 8 times as fast in fp32 as in bf16, says that a step took 500 ms, of which it
# computes for 300, and hangs in bf16: within its first step, or before it with autocast.
PYTHON = """#!/usr/bin/env python3
import json, sys, time
if sys.argv[1].endswith("rate.py"):
    print(json.dumps({"fp32": 8e3, "bf16": 1e3}))
    sys.exit()
mode, steps = sys.argv[2], int(sys.argv[sys.argv.index("--steps") + 1])
if mode == "pytorch-master":
    time.sleep(60)
print(json.dumps({"ready": True}), flush=True)
for step in range(1, steps + 1):
    if mode == "pytorch-bf16":
        time.sleep(60)
    end = time.process_time() + 0.3
    while time.process_time() < end:
        pass
    print(json.dumps({"step": step, "loss": 10.5, "time_ms": 500}), flush=True)
"""


class CompareTest(unittest.TestCase):
    def compare(self, *options):
        with tempfile.TemporaryDirectory(prefix="compare ") as folder:
            model, engine, python = (Path(folder, name) for name in ("model", "engine", "python"))
            model.mkdir()
            (model / "config.json").write_text(json.dumps(MODEL))
            for path, text in ((engine, ENGINE), (python, PYTHON)):
                path.write_text(text)
                path.chmod(0o755)
            done = subprocess.run(
                [sys.executable, SCRIPT, model, "--headrace", engine, "--steps", "3",
                 "--rounds", "2", "--micro-batches", "2", "--tokens", "50",
                 "--scratch", f"{folder}/drive", *options],
                capture_output=True, text=True,
                env=dict(os.environ, HEADRACE_PYTHON=str(python),
                         HEADRACE_PEERS_VENV=f"{folder}/peers"))
            self.assertEqual(list(Path(folder, "drive").glob("*")), [])  # nothing is left behind
            self.assertEqual(done.returncode, 0, done.stderr)
            self.told = done.stderr
            return done.stdout

    def row(self, table, who):
        found = [line for line in table.splitlines() if line.startswith(f"| {who}")]
        self.assertEqual(len(found), 1, table)
        return [cell.strip() for cell in found[0].split("|")[2:-1]]

    def test_medians_without_the_first_steps_beside_pytorch_of_the_same_dtype(self):
        table = self.compare(
            "--only", "headrace-nvme,headrace-nvme-fp32,headrace-resident-fp32,pytorch-fp32")
        speed, step_s, ratio, _, loss, *_ = self.row(table, "Headrace, fp32, resident")
        self.assertEqual((speed, step_s, ratio, loss), ("800.0", "0.12", "4.00", "10.5000"))
        self.assertEqual(self.row(table, "Headrace, fp32, everything")[:3],
                         ["400.0", "0.25", "2.00"])
        *torch, _, loss, cpu_s, cpu_ratio = self.row(table, "PyTorch, resident, fp32")
        self.assertEqual(torch, ["200.0", "0.50", "1.00"])
        self.assertAlmostEqual(float(cpu_s), 0.3, delta=0.15)
        self.assertEqual((loss, cpu_ratio), ("10.5000", "1.00"))
        # Its baseline did not run: no ratio, and none to that of another dtype.
        self.assertEqual(self.row(table, "Headrace, bf16")[:3], ["400.0", "0.25", ""])
        self.assertRegex(table, r"\d+ cores, .*Commit .*`scripts/peers/compare.py")

    def test_rounds_are_interleaved_and_go_both_ways(self):
        self.compare("--only", "headrace-nvme,headrace-resident")
        self.assertEqual(
            [line.split(": ")[1] for line in self.told.splitlines() if line.startswith("round")],
            ["headrace-nvme", "headrace-resident", "headrace-resident", "headrace-nvme"])

    def test_a_contestant_that_fails_says_why(self):
        table = self.compare("--only", "headrace-resident,headrace-nvme", "--set", "seed=13")
        self.assertEqual(self.row(table, "Headrace, bf16, resident"), [""] * 7)
        self.assertIn("- Headrace, bf16, resident: exit code 1: no luck with this seed", table)
        self.assertEqual(self.row(table, "Headrace, bf16, everything")[0], "400.0")

    def test_a_peer_that_is_missing_says_how_to_get_it(self):
        self.assertIn("not installed: scripts/peers/setup",
                      self.compare("--only", "deepspeed-nvme-lean"))

    def test_a_slow_peer_is_stopped_and_its_row_says_more_than(self):
        table = self.compare("--only", "pytorch-bf16,pytorch-master", "--timeout", "3")
        speed, step_s, *_ = self.row(table, "PyTorch, resident, bf16")
        self.assertRegex(speed, r"^< \d+\.\d$")
        self.assertRegex(step_s, r"^more than [0-3]\.\d$")
        self.assertIn("stopped at the time limit of 3 s, 0 of 3 steps done", table)
        # Nothing can be said of a step where the start may have taken it all.
        self.assertEqual(self.row(table, "PyTorch, resident, fp32 weights and")[:3], [""] * 3)
        self.assertEqual(table.count("stopped at the time limit"), 2)
        self.assertEqual(self.told.count(": pytorch-"), 2)  # neither is tried in the second round

    def test_the_dtype_chooses_the_rows_and_the_estimate_comes_first(self):
        rows = {}
        for dtype in ("bf16", "fp32", "both"):
            self.assertEqual(self.compare("--dtype", dtype, "--estimate"), "")
            rows[dtype] = int(self.told.split(" contestants")[0].split()[-1])
            self.assertIn(" minutes, at most", self.told)
        self.assertEqual(rows, {"bf16": 7, "fp32": 6, "both": 13})

    def test_the_dtype_is_chosen_by_the_cpu_and_the_reason_is_given(self):
        self.compare("--estimate")
        flags = Path("/proc/cpuinfo").read_text()
        able = "avx512_bf16" in flags or "amx_bf16" in flags
        self.assertIn("bf16 only: this CPU computes in it" if able else
                      "bf16 and fp32: this CPU has neither avx512_bf16 nor amx_bf16", self.told)
        self.assertIn("7 contestants" if able else "13 contestants", self.told)

    def test_json_holds_the_rows_and_what_they_are_of(self):
        facts = json.loads(self.compare("--only", "headrace-nvme", "--json"))
        self.assertEqual((facts["rounds"], facts["steps"], facts["tokens"]), (2, 3, 50))
        row, = facts["rows"]
        self.assertEqual((row["name"], row["tokens_per_s"], row["first_loss"], row["note"]),
                         ("headrace-nvme", 400.0, 10.25, None))
        self.assertEqual(row["times_ms"], [250] * 4)


if __name__ == "__main__":
    unittest.main()
