"""Goal: tune measures and writes a run file that train takes as it is; whatever it chose, the model
that comes out has the same bits; bench step tells a step beside its longest lane. What cannot be is
refused before anything is measured, and neither Ctrl-C nor a kill leaves anything behind.

Method: the built program on a tiny model with a machine file for its rates, so that nothing is
probed; the drive and the working folder are looked at afterwards.
Usage: tune_test.py PROGRAM
"""
import json
import os
import signal
import sys
import tempfile
import time
import unittest
from pathlib import Path

import tiny

PROGRAM = Path(sys.argv.pop(1)).resolve() if len(sys.argv) > 1 else None
USAGE, DOES_NOT_FIT = 2, 3
SMALL = ("gpu_budget=32MiB", "ram_budget=32MiB", "compute_threads=1", "max_steps=2",
         "gradient_accumulation_steps=2")
QUICK = {"--layers": 2, "--steps": 1, "--rounds": 2, "--candidates": 3}
MACHINE = """
name: a-file
gpu: {memory: 1GiB, tflops: 0.05, memory_gb_per_s: 10, launch_us: 5, cores: 1}
link: {h2d_gb_per_s: 5, d2h_gb_per_s: 5, latency_us: 10, both_ways: 1.5, cores: 1}
ram: {memory: 4GiB, gb_per_s: 20}
cpu: {cores: 2, update_cores: 1, update_gparam_per_s: 0.5}
drive: {count: 1, space: 10GB, read_gb_per_s: 2, write_gb_per_s: 1, latency_us: 100, flush_ms: 1,
        both_ways: 1.2}
"""


class TuneTest(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory(prefix="headrace tune ")
        self.addCleanup(self.scratch.cleanup)
        self.folder = Path(self.scratch.name)
        tiny.write_model(self.folder / "one")
        tiny.write_data(self.folder / "data")
        (self.folder / "nvme").mkdir()
        self.machine = self.folder / "machine.yaml"
        self.machine.write_text(MACHINE)
        self.run_file = self.folder / "run.yaml"
        self.program = tiny.Program(PROGRAM, sys.executable, self.folder,
                                    OMP_WAIT_POLICY="passive", HEADRACE_CACHE="")
        self.write_run("parameters: nvme", "optimizer: nvme")

    def write_run(self, *offload):
        self.run_file.write_text("\n".join([
            f"model: '{self.folder / 'one'}'", f"train_data: '{self.folder / 'data/tokens.jsonl'}'",
            f"output_dir: '{self.folder / 'out'}'", "learning_rate: 1e-2", "offload:",
            f"  nvme_paths: ['{self.folder / 'nvme'}']", *("  " + line for line in offload), ""]))

    def words(self, what, more, options):
        quick = [word for option in (QUICK | options).items() for word in option]
        return ("tune", *(what or (self.run_file,)), "--machine", self.machine, *quick, *SMALL,
                *more)

    def tune(self, *more, what=None, options={}):
        return self.program.run(*self.words(what, more, options), folder=self.folder)

    def test_a_model_of_fewer_than_three_blocks_is_rehearsed_whole(self):
        done = self.program.run("rehearse", self.folder / "one/config.json", "--machine",
                                self.machine, "--steps", 1, "max_length=32", *SMALL)
        self.assertEqual(done.code, 0, done)
        self.assertIn("2 of 2 blocks", done.out)

    def assert_nothing_left(self):
        self.assertEqual(list((self.folder / "nvme").iterdir()), [])
        self.assertFalse((self.folder / "out").exists())
        self.assertFalse((self.folder / "out.rehearsal").exists())

    def trained(self, run_file, *more):
        done = self.program.run("train", run_file, *more, "overwrite_output_dir=true")
        self.assertEqual(done.code, 0, done)
        files = sorted((self.folder / "out/model").glob("*.safetensors"))
        return [file.read_bytes() for file in files], done

    def test_the_winner_is_a_run_file_and_has_the_same_bits(self):
        for offload in ((), ("parameters: nvme", "optimizer: nvme")):
            with self.subTest(offload=offload):
                self.write_run(*offload)
                out = self.folder / "run.tuned.yaml"
                done = self.tune("--overwrite")
                self.assertEqual(done.code, 0, done)
                for words in ("as planned", "predicted", "of planned", f"wrote {out}"):
                    self.assertIn(words, done.out)
                self.assertTrue("kept:" in done.out or "won:" in done.out, done)
                self.assert_nothing_left()
                text = out.read_text()
                self.assertIn("headrace tune", text)
                for key in ("layers_in_flight", "ring_slots", "part_bytes"):
                    self.assertIn(f"    {key}: ", text)
                plain, _ = self.trained(self.run_file, *SMALL)
                tuned, said = self.trained(out)
                self.assertEqual(plain, tuned, "tune changed bits")
                self.assertIn("rates: of a-file", said.out)
                self.clear()

    def clear(self):
        for path in sorted((self.folder / "out").rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        (self.folder / "out").rmdir()

    def test_candidates_that_differ_all_give_the_same_bits(self):
        self.write_run()
        told = self.tune("--json", options={"--candidates": 8})
        self.assertEqual(told.code, 0, told)
        object_ = json.loads(told.out)
        self.assertGreaterEqual(len(object_["candidates"]), 3)
        self.assertEqual(object_["run_file"], str(self.folder / "run.tuned.yaml"))
        bits = set()
        for candidate in object_["candidates"]:
            settings = [f"{key}={value}" for key, value in candidate["settings"].items()]
            weights, _ = self.trained(self.run_file, *SMALL, *settings)
            bits.add(tuple(weights))
        self.assertEqual(len(bits), 1)

    def test_a_model_and_data(self):
        done = self.tune("--json", "--nvme", self.folder / "nvme",
                         what=(self.folder / "one", self.folder / "data/tokens.jsonl"))
        self.assertEqual(done.code, 0, done)
        self.assertTrue((self.folder / "tuned.yaml").exists())
        again = self.program.run("plan", self.folder / "tuned.yaml")
        self.assertEqual(again.code, 0, again)

    def test_a_shape_alone_is_measured_and_not_written(self):
        shape = self.folder / "one/config.json"
        done = self.tune("--nvme", self.folder / "nvme", "max_length=32", what=(shape,))
        self.assertEqual(done.code, 0, done)
        self.assertNotIn("wrote", done.out)
        self.assertFalse((self.folder / "tuned.yaml").exists())
        refused = self.tune("--out", "a.yaml", what=(shape,))
        self.assertEqual(refused.code, USAGE, refused)
        self.assertIn("needs data to train on", refused.err)

    def refused(self, code, words, *more, options={}):
        done = self.tune(*more, options=options)
        self.assertEqual(done.code, code, done)
        self.assertIn(words, done.err)
        self.assert_nothing_left()
        self.assertNotIn("round 1", done.out)

    def test_what_cannot_be_is_refused_before_anything_is_measured(self):
        out = self.folder / "run.tuned.yaml"
        out.write_text("mine")
        self.refused(USAGE, "is there already")
        self.assertEqual(out.read_text(), "mine")
        out.unlink()
        self.refused(USAGE, "there is no folder", "--out", self.folder / "no/such.yaml")
        self.refused(USAGE, "is a folder", "--out", self.folder)
        self.refused(DOES_NOT_FIT, "does not fit", "gpu_budget=8KiB")
        self.refused(USAGE, "the model has 2 blocks", options={"--layers": 5})
        self.refused(USAGE, "unknown key", "layers_on_flight=2")
        self.refused(USAGE, "cannot be together with gradient_checkpointing",
                     "gradient_checkpointing=true", "blocks_kept_on_gpu=1")
        self.refused(USAGE, "no-such.yaml", "machine=no-such.yaml")
        self.refused(USAGE, "nothing to choose between", "micro_batches_per_pass=all",
                     "layers_in_flight=2", "part_bytes=1MiB", "ring_slots=2", "update_twice=0",
                     "stash_tier=ram", "blocks_kept_on_gpu=0")
        self.assertFalse(out.exists())

    def test_ctrl_c_leaves_nothing_behind(self):
        process = self.program.start(*self.words(None, (), {"--rounds": 100}))
        for line in process.stdout:
            if "round 1 of" in line:
                break
        ended = tiny.end(process, signal.SIGINT)
        self.assertEqual(ended.code, 128 + signal.SIGINT, ended)
        self.assertIn("stopped by signal 2", ended.err)
        self.assert_nothing_left()
        self.assertFalse((self.folder / "run.tuned.yaml").exists())

    def kill_while_it_holds(self, store, *words):
        """Kills the program when it has a data file of a store of that name open."""
        process = self.program.start(*words, "--nvme", self.folder / "nvme")
        held = []
        while not held and process.poll() is None:
            time.sleep(0.01)
            for number in Path(f"/proc/{process.pid}/fd").iterdir():
                try:
                    target = os.readlink(number)
                except FileNotFoundError:
                    continue  # closed meanwhile
                if target.endswith("/data (deleted)") and store in target:
                    held.append(target)
        ended = tiny.end(process, signal.SIGKILL)
        self.assertEqual(ended.code, -signal.SIGKILL, ended)
        self.assert_nothing_left()

    def test_a_kill_leaves_nothing_behind(self):
        shape = self.folder / "one/config.json"
        ways = (*SMALL[:3], "max_length=32", "--layers", "2", "parameters=nvme", "optimizer=nvme")
        self.kill_while_it_holds("bench.step", "bench", "step", shape, "--rounds", "100", *ways)
        self.kill_while_it_holds("rehearsal", "rehearse", shape, "--steps", "1000", *ways)

    def test_train_and_rehearse_take_the_rates_of_a_file(self):
        done = self.program.run("rehearse", self.run_file, "--machine", self.machine, "--layers",
                                "2", "--steps", "1", *SMALL)
        self.assertEqual(done.code, 0, done)
        self.assertIn("rates: of a-file", done.out)
        nominal = self.program.run("rehearse", self.run_file, "--layers", "2", "--steps", "1",
                                   *SMALL)
        self.assertIn("rates: nominal", nominal.out)
        broken = self.folder / "broken.yaml"
        broken.write_text("name: x\n")
        done = self.program.run("train", self.run_file, "--machine", broken, *SMALL)
        self.assertEqual(done.code, USAGE, done)
        self.assertIn("broken.yaml", done.err)
        self.assert_nothing_left()

    def test_a_step_beside_its_longest_lane(self):
        words = ("bench", "step", self.folder / "one/config.json", "--nvme", self.folder / "nvme",
                 "--machine", self.machine, "--layers", "2", "--steps", "1", "--rounds", "1",
                 "--batches", "1x2", "max_length=32", *SMALL[:3])
        done = self.program.run(*words, "--json", "--ways", "planned,serial,classic", timeout_s=250)
        self.assertEqual(done.code, 0, done)
        rows = json.loads(done.out)
        self.assertEqual([row["name"] for row in rows],
                         ["1x2, as planned", "1x2, one op at a time", "1x2, classic order"])
        for row in rows:
            self.assertEqual(row["unit"], "s")
            self.assertGreater(row["achieved"], 0)
            self.assertGreater(row["ceiling"], 0)
            self.assertEqual(row["against"], row["longest"])
            self.assertEqual(row["tokens"], 64)
            self.assertEqual(row["emulated"], "")
            self.assertGreater(row["update_parameters_per_s"], 0)
        self.assertEqual(rows[1]["of_one_op_at_a_time"], 1)
        self.assertEqual(rows[2]["of_classic_order"], 1)
        self.assert_nothing_left()

        done = self.program.run(*words, "--emulate", self.machine, "--ways", "planned",
                                timeout_s=250)
        self.assertEqual(done.code, 0, done)
        self.assertIn("EMULATED a-file: ", done.out)
        for words in ("longest lane", "of one op at a time", "of the classic order"):
            self.assertIn(words, done.out)
        # No share of a way that was not asked for.
        self.assertNotRegex(done.out, r"1x2, as planned .* 0\.00 +0\.00\n")
        self.assert_nothing_left()


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[1:]])
