"""Goal: the longest lane is taken at the rates of the moment, ways are compared by medians, and an
emulated table says so. Method: a program that answers as headrace does, with numbers made by hand.
"""
import contextlib
import importlib.util
import io
import json
import sys
import tempfile
import unittest
from pathlib import Path

PATH = Path(__file__).resolve().parents[2] / "scripts" / "measure_step.py"
SPEC = importlib.util.spec_from_file_location("measure_step", PATH)
step = importlib.util.module_from_spec(SPEC)
sys.modules["measure_step"] = step
SPEC.loader.exec_module(step)

# 4 GB read at 2 GB/s and 3 GB written at 1 GB/s: 5 s of the drives.
HEADRACE = """#!/usr/bin/env python3
import json, sys
words = sys.argv[1:]
if words[:2] == ["bench", "nvme"]:
    print(json.dumps([{"name": "read, io_uring, 256 MiB pool", "achieved": 2},
                      {"name": "read, io_uring, few buffers", "achieved": 3},
                      {"name": "write, io_uring, 256 MiB pool", "achieved": 1},
                      {"name": "write, threads, 256 MiB pool", "achieved": 0.5}]))
elif words[:2] == ["bench", "adam"]:
    print(json.dumps([{"name": "update and page sums", "achieved": 1}]))
else:
    if "layers_in_flight=1" in words:
        sys.exit("no room")
    lanes = {name: {"foretold_alone_s": 1} for name in ("gpu", "h2d", "d2h")}
    print(json.dumps({"emulated": "card" if any(w.startswith("emulate=") for w in words) else None,
                      "tokens": 64, "step_s": 11 if "overlap=false" in words else 5.5,
                      "peak_rss_bytes": 1, "lanes": lanes,
                      "part": {"read_bytes": 4e9, "written_bytes": 3e9,
                               "updated_parameters": 2e9}}))
"""


class MeasureStepTest(unittest.TestCase):
    def measure(self, *settings):
        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder) / "headrace"
            program.write_text(HEADRACE, encoding="utf-8")
            program.chmod(0o755)
            out = io.StringIO()
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
                code = step.main([str(program), "models/tiny.json", "--nvme", "/n", "--rounds", "2",
                                  "--batches", "1x8", "--json", f"{folder}/rows.json", *settings])
            rows = json.loads((Path(folder) / "rows.json").read_text(encoding="utf-8"))
            return code, out.getvalue(), rows

    def test_the_longest_lane_and_what_overlapping_brings(self):
        code, text, rows = self.measure("--emulate", "card.yaml", "max_length=8")
        self.assertEqual(code, 0)
        self.assertTrue(text.startswith("EMULATED card: tiny, 3 blocks"), text)
        self.assertIn("| 64 | as planned | 5.50 | drives 5.00 | 1.10 | 0.50 |  |", text)
        self.assertIn("| 64 | one op at a time | 11.00 | drives 5.00 | 2.20 | 1.00 |  |", text)
        self.assertIn("| 1x8 | classic order | failed |", text)
        self.assertEqual(len(rows), 6)

    def test_a_real_card_has_no_mark(self):
        _, text, _ = self.measure()
        self.assertNotIn("EMULATED", text)


if __name__ == "__main__":
    unittest.main()
