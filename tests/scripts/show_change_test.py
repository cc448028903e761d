"""Goal: the quickstart shows what metrics.jsonl says, and --prove fails where weights differ.

Method: metrics written here; a stand-in for the engine that writes metrics of a chosen hash, so
that scripts/prove.py is run whole, cgroup included where one can be made.
"""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
sys.path.insert(0, str(SCRIPTS))
import show_change  # noqa: E402

RECORDS = [{"step": 0, "eval_loss": 4.5}, {"step": 1, "loss": 4.0, "tokens_per_s": 10.0},
           {"step": 2, "loss": None, "tokens_per_s": 30.0},
           {"step": 3, "loss": 2.0, "tokens_per_s": 20.0}, {"step": 3, "eval_loss": 3.25},
           {"parameter_bytes": 1 << 20, "state_bytes": 5 << 20, "nvme_bytes": 6 << 20,
            "peak_rss_bytes": 3 << 30, "weights_sha256": "abc"}]
# Trains nothing: writes the hash of its folder's name from $HASHES.
ENGINE = """#!/usr/bin/env python3
import json, os, pathlib, sys
out = pathlib.Path([word for word in sys.argv if word.startswith("output_dir=")][0][11:])
out.mkdir()
hash = json.loads(os.environ["HASHES"])[out.name]
(out / "metrics.jsonl").write_text(json.dumps({"weights_sha256": hash}) + "\\n")
"""


def write_run(folder, records):
    folder.mkdir(parents=True)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))


class ShowChangeTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="show change ")
        self.addCleanup(scratch.cleanup)
        self.folder = Path(scratch.name)

    def test_lines_say_what_the_metrics_say(self):
        write_run(self.folder / "run", RECORDS)
        run = show_change.Run(self.folder / "run")
        text = "\n".join(show_change.loss_lines(run) + show_change.memory_lines(run)
                         + show_change.speed_lines(run))
        for words in ("4.500 before, 3.250 after 3 steps", "weights 1 MiB, gradients 1 MiB",
                      "states 5 MiB: together 7 MiB", "peak resident memory 3 GiB", "20 tokens/s"):
            self.assertIn(words, text)
        self.assertNotIn("  ram", text)  # not recorded, so not claimed

    def test_plot_puts_ends_in_the_corners(self):
        lines = show_change.plot([(1, 4.0), (2, 3.0), (3, 2.0)], columns=11, rows=3, mark="*")
        self.assertEqual(lines[:3], ["   4.000 |*", "         |     *", "   2.000 |          *"])
        self.assertEqual(lines[4].split(), ["step", "1", "3"])
        self.assertEqual(len(show_change.plot([(1, 2.0), (2, 2.0)])), 12)  # a flat curve

    def test_a_broken_line_is_named(self):
        write_run(self.folder / "run", RECORDS)
        with open(self.folder / "run" / "metrics.jsonl", "a") as file:
            file.write('{"step": 4')
        with self.assertRaisesRegex(SystemExit, "metrics.jsonl:7: not JSON"):
            show_change.Run(self.folder / "run")

    def prove(self, resident, confined):
        """prove.py's finished process, where the other runs end with these hashes."""
        engine = self.folder / "headrace"
        engine.write_text(ENGINE)
        engine.chmod(0o755)
        write_run(self.folder / "runs" / "nvme", RECORDS)
        return subprocess.run(
            [sys.executable, SCRIPTS / "prove.py", engine, "run.yaml", self.folder / "runs"],
            capture_output=True, text=True,
            env={**os.environ, "HASHES": json.dumps({"resident": resident, "confined": confined})})

    def test_prove_accepts_equal_weights(self):
        done = self.prove("abc", "abc")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("the same bits", done.stdout)
        # Either the confined run was there, or it is said why not.
        self.assertNotEqual("cgroup: peak" in done.stdout, "no memory cgroup" in done.stderr)

    def test_prove_refuses_other_weights(self):
        done = self.prove("abd", "abc")
        self.assertEqual(done.returncode, 1)
        self.assertIn("the weights differ", done.stderr)


if __name__ == "__main__":
    unittest.main()
