"""Goal: nothing hangs in silence (HANG-1, HANG-2). A save that takes many times as long as the time
after which a drive counts as stuck is waited for, with lines that say what moves, while a request
that never ends is told of in that time; and steps of unequal numbers of micro-batches, in training
and in evaluation, come to their end with every sample used, also when the run is stopped between.

Method: the program of the tests on a tiny model, with its drives slowed down, or one request lost.
It is one process: the timeout of a collective is here that of a drive (what only several ranks have
comes with them), and a launcher of several is refused. Seconds of the case are sixths here.
Usage: hang_test.py PROGRAM_OF_THE_TESTS
"""
import json
import os
import re
import signal
import sys
import tempfile
import time
import unittest
from pathlib import Path

import tiny

PROGRAM = Path(sys.argv.pop(1)).resolve() if len(sys.argv) > 1 else None
FAILED, USAGE = 1, 2
SMALL = ("gpu_budget=32MiB", "ram_budget=32MiB", "compute_threads=1", "part_bytes=8KiB",
         "learning_rate=1e-2", "warmup_ratio=0")
IN_MEMORY = ("parameters=ram", "optimizer=ram", "commit=at_saves")
ON_NVME = ("parameters=nvme", "optimizer=nvme")
STUCK_MS, TOLD_MS, SLOW_MS = 833, 400, 60  # 5 s, and a save of about 30 s, by 6
ROWS, PER_STEP = 5, 4  # samples, micro-batches of a step


class HangTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.good = tempfile.TemporaryDirectory(prefix="headrace hangs ")
        cls.addClassCleanup(cls.good.cleanup)
        root = Path(cls.good.name)
        tiny.write_model(root / "model")
        cls.model = root / "model"
        cls.program = tiny.Program(PROGRAM, sys.executable, root, OMP_WAIT_POLICY="passive")
        cls.train = cls.samples(root / "five.jsonl", ROWS, 7)
        cls.held_out = cls.samples(root / "four.jsonl", ROWS - 1, 11)

    @staticmethod
    def samples(path, count, seed):
        return tiny.write_lines(path, [{"input_ids": [(seed * i + j) % 256 + 2
                                                      for j in range(12 + i)]}
                                       for i in range(count)])

    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory(prefix="headrace runs ")
        self.addCleanup(self.scratch.cleanup)
        self.folder = Path(self.scratch.name)
        self.out, self.drive = self.folder / "out", self.folder / "drive"
        self.drive.mkdir()

    def job(self, *more):
        return ("train", self.model, self.train, "--nvme", self.drive, f"output_dir={self.out}",
                *SMALL, *more)

    def ended(self, code, *words, **environment):
        outcome = self.program.run(*words, **environment)
        self.assertEqual(outcome.code, code, outcome)
        return outcome

    # ---- HANG-1 --------------------------------------------------------------------------------

    def test_hang_1_a_slow_save_is_waited_for_and_told_of(self):
        job = self.job(*IN_MEMORY, "max_steps=2")
        quick = self.ended(0, *job)
        began = time.monotonic()
        slow = self.ended(0, *job, "--slow-requests", SLOW_MS, "--stuck-after", STUCK_MS,
                          "--tell-waits", TOLD_MS)
        self.assertEqual((slow.fact("sha256"), slow.fact("states")),
                         (quick.fact("sha256"), quick.fact("states")))
        waits = re.findall(r"still saving after step 2 of 2: ([\d.]+) s so far", slow.out)
        saved_s = float(waits[-1])
        self.assertGreater(saved_s, 3 * STUCK_MS / 1e3, slow)
        self.assertLess(saved_s, time.monotonic() - began)
        self.assertGreaterEqual(len(waits), int(saved_s / (TOLD_MS / 1e3)) - 2, slow)
        written = re.findall(r"still saving .*, (.+) written and", slow.out)
        if written:  # the kernel keeps an account
            self.assertGreater(len(set(written)), 2, slow)
        self.assertNotIn("still ", quick.out)

    def test_hang_1_a_dead_request_of_a_save_is_told_of_within_its_time(self):
        quick = self.ended(0, *self.job(*IN_MEMORY, "max_steps=2"))
        # In memory all is written twice: by the load and by the save.
        request = int(re.search(r"wrote [^(]* in (\d+) ", quick.out)[1]) * 3 // 4
        self.assertGreater(request, 10)
        for engine in ("uring", "threads"):
            began = time.monotonic()
            ended = self.ended(FAILED, *self.job(
                *IN_MEMORY, "max_steps=2", "overwrite_output_dir=true", f"io_engine={engine}",
                "--lose-request", request, "--stuck-after", STUCK_MS, "--tell-waits", TOLD_MS))
            self.assertIn("nvme_write lane is stuck: evict of the place '", ended.err)
            age = float(re.search(r"has not ended for ([\d.]+) s", ended.err)[1])
            self.assertGreaterEqual(age, round(STUCK_MS / 1e3, 1))  # as it is said
            self.assertLess(age, 3 * STUCK_MS / 1e3)
            self.assertIn("still saving after step 2 of 2", ended.out, ended)
            self.assertLess(time.monotonic() - began, 30)

    # ---- HANG-2 --------------------------------------------------------------------------------

    def steps_of(self):
        """[(step, tokens)] of metrics.jsonl, and the trained tokens of its evaluations."""
        lines = [json.loads(line) for line in (self.out / "metrics.jsonl").read_text().splitlines()]
        steps = [(line["step"], line["tokens"]) for line in lines if "grad_norm" in line]
        evaluations = [line["eval_trained_tokens"] for line in lines if "eval_loss" in line]
        return steps, evaluations

    def uneven(self, *more):
        return self.job(f"gradient_accumulation_steps={PER_STEP}", "num_train_epochs=3",
                        f"eval_data={self.held_out}", "eval_steps=1", *more)

    def test_hang_2_five_and_four_micro_batches_come_to_their_end(self):
        expected = None
        for where in (ON_NVME, (*ON_NVME, "io_engine=threads"), ("parameters=ram", "optimizer=ram"),
                      (*ON_NVME, "micro_batches_per_pass=1"),
                      (*ON_NVME, "micro_batches_per_pass=3")):
            ended = self.ended(0, *self.uneven("overwrite_output_dir=true", *where))
            facts = ended.fact("sha256"), ended.fact("states")
            expected = expected or facts
            self.assertEqual(facts, expected, where)
            self.assertIn("the last step of an epoch has 1 of 4 micro-batches", ended.out)
            self.assertEqual(ended.out.count(" micro_batches=1"), 3, ended)  # of three epochs
            steps, evaluations = self.steps_of()
            self.assertEqual([step for step, _ in steps], list(range(1, 7)))
            rows = sum(12 + i for i in range(ROWS))
            for epoch in range(3):  # no sample is dropped, none is counted twice
                self.assertEqual(steps[2 * epoch][1] + steps[2 * epoch + 1][1], rows)
            # All rows but the first token of each, before the first step and after every one.
            self.assertEqual(evaluations, [sum(11 + i for i in range(ROWS - 1))] * 7)

    def test_hang_2_stopped_in_a_short_step_it_goes_on(self):
        whole = self.ended(0, *self.uneven(*ON_NVME))
        for stop_after in (1, 2, 3):
            running = self.program.start(*self.uneven(*ON_NVME, "overwrite_output_dir=true",
                                                      "--slow-requests", 1))
            self.addCleanup(running.kill)
            tiny.wait_for_step(running, stop_after)
            stopped = tiny.end(running, signal.SIGTERM)
            self.assertEqual(stopped.code, 128 + signal.SIGTERM, stopped)
            resumed = self.ended(0, *self.uneven(*ON_NVME, "resume_from_checkpoint=true"))
            self.assertEqual((resumed.fact("sha256"), resumed.fact("states")),
                             (whole.fact("sha256"), whole.fact("states")))

    def test_hang_2_a_launcher_of_several_processes_is_refused(self):
        for name in ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"):
            refused = self.ended(USAGE, *self.job("max_steps=1"), **{name: "2"})
            self.assertIn(f"{name}=2", refused.err)
            self.assertIn("one process", refused.err)
            self.assertFalse(self.out.exists())
            self.assertEqual(os.listdir(self.drive), [])
        self.ended(0, *self.job("max_steps=1"), WORLD_SIZE="1")


if __name__ == "__main__":
    unittest.main()
