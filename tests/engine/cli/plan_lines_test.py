"""Goal: what `plan` is told is obeyed or said to be left out, and its lines have no number that one
has to decode: a card that is emulated, folders of another machine, a trace, data, what a crash
costs.

Method: the built program plans for machine files that differ in one thing each; its JSON is
compared, its lines are read.
Usage: plan_lines_test.py PROGRAM
"""
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import tiny

PROGRAM = Path(sys.argv.pop(1)).resolve() if len(sys.argv) > 1 else None
CONFIGS = Path(__file__).resolve().parents[3] / "configs"
CARD = CONFIGS / "hardware/rtx4090.yaml"
LARGE = CONFIGS / "models/llama-2-13b.json"
# A host that plays the card itself, as `doctor --probe` writes it.
HOST = """
name: host
gpu: {memory: 30GiB, tflops: 0.04, memory_gb_per_s: 11, launch_us: 11, cores: 2}
link: {h2d_gb_per_s: 6, d2h_gb_per_s: 6, latency_us: 11, both_ways: 1.05, cores: 1}
ram: {memory: 30GiB, gb_per_s: 29}
cpu: {cores: 2, update_cores: 1, update_gparam_per_s: 1.1}
drive: {count: 1, space: 900GB, read_gb_per_s: 2, write_gb_per_s: 3, latency_us: 11, flush_ms: 4}
"""


class PlanLinesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.made = tempfile.TemporaryDirectory(prefix="headrace-plan-lines-")
        cls.addClassCleanup(cls.made.cleanup)
        cls.folder = Path(cls.made.name)
        cls.program = tiny.Program(PROGRAM, sys.executable, cls.folder)
        cls.host = cls.folder / "host.yaml"
        cls.host.write_text(HOST)

    def plan(self, *words):
        outcome = self.program.run("plan", LARGE, *words)
        self.assertEqual(outcome.code, 0, outcome)
        return outcome.out

    def json(self, *words):
        return json.loads(self.plan(*words, "--json"))

    def refused(self, parts, *words):
        outcome = self.program.run("plan", LARGE, *words)
        self.assertEqual(outcome.code, 2, outcome)
        for part in parts:
            self.assertIn(str(part), outcome.err)

    def line(self, name, *words):
        lines = [line for line in self.plan(*words).splitlines() if line.startswith(name + " ")]
        self.assertEqual(len(lines), 1, name)
        return lines[0]

    def test_an_emulated_card_is_planned_for(self):
        alone = self.json("--machine", self.host)
        emulated = self.json("--machine", self.host, f"emulate={CARD}")
        card = self.json("--machine", CARD)
        self.assertEqual(emulated["machine"], "rtx4090 (emulated)")
        self.assertEqual(emulated["ceilings"]["gpu_bytes"], card["ceilings"]["gpu_bytes"])
        # The host's memory is all ram once it does not play the card.
        self.assertEqual(emulated["ceilings"]["ram_bytes"], 60 << 30)
        self.assertEqual(emulated["ceilings"]["nvme_bytes"], alone["ceilings"]["nvme_bytes"])
        self.assertLess(emulated["lanes"]["gpu"]["alone_s"], alone["lanes"]["gpu"]["alone_s"] / 100)
        self.assertNotEqual(emulated["lanes"]["cpu"], card["lanes"]["cpu"])
        self.refused(["emulate", "absent.yaml"], "--machine", self.host, "emulate=absent.yaml")

    def test_an_emulated_card_keeps_its_own_rate(self):
        slow_in_fp32 = self.folder / "slow_in_fp32.yaml"
        slow_in_fp32.write_text(HOST.replace("tflops: 0.04", "tflops: 0.04, fp32_tflops: 0.02"))
        for dtype in ("bf16", "fp32"):
            plans = [self.json("--machine", host, f"emulate={CARD}", f"dtype={dtype}")
                     for host in (self.host, slow_in_fp32)]
            self.assertEqual(*plans)
        host_gpu = [self.json("--machine", host, "dtype=fp32")["lanes"]["gpu"]["alone_s"]
                    for host in (self.host, slow_in_fp32)]
        self.assertLess(1.5 * host_gpu[0], host_gpu[1])

    def test_ranks_are_judged_in_lines_alone(self):
        ranks = ["--machine", CARD, "--ranks", "64", "--stage", "3"]
        self.assertIn("64 ranks", self.plan(*ranks))
        drawing = self.folder / "ranks.html"
        for more in (["--json"], ["--html", drawing], [f"trace={self.folder / 'ranks.json'}"]):
            self.refused(["--ranks", "leave out --json"], *ranks, *more)
        self.assertFalse(drawing.exists())

    def test_a_machine_may_be_named_by_any_bytes(self):
        nameless = self.folder / os.fsdecode(b"host\xff.yaml")
        nameless.write_text(HOST.replace("name: host", ""))
        self.assertEqual(self.json("--machine", nameless)["machine"], "host\ufffd")

    def test_a_plan_for_another_machine_needs_no_folder(self):
        for setting in ("parameters=nvme", "optimizer=nvme", "commit=at_saves", "save_steps=5",
                        "nvme_budget=2TiB", "nvme_write_limit=500TB"):
            with self.subTest(setting):
                planned = self.json("--machine", CARD, setting)
                self.assertGreater(planned["needs"]["nvme_bytes"], 0)
                self.refused(["nvme_paths", setting.split("=")[0]], setting)

    def test_folders_that_are_not_looked_at_are_said(self):
        self.assertNotIn("not looked at", self.line("memory", "--machine", CARD))
        line = self.line("memory", "--machine", CARD, "--nvme", self.folder)
        self.assertIn(f"of the machine's own drives: {self.folder} not looked at", line)
        # Neither their space nor their number matters.
        self.assertEqual(self.json("--machine", CARD),
                         self.json("--machine", CARD, "nvme_paths=[/a, /b, /c]"))
        too_large = self.program.run("plan", CONFIGS / "models/llama-2-70b.json", "--machine",
                                     self.host, "--nvme", self.folder)
        self.assertEqual(too_large.code, 3)
        self.assertNotIn(str(self.folder), too_large.err, "its space is not what is lacking")

    def test_a_trace_is_written_and_a_crash_is_said(self):
        trace = self.folder / "step.json"
        self.assertIn("a crash costs at most two steps",
                      self.line("commit", "--machine", CARD, f"trace={trace}"))
        events = json.loads(trace.read_text())["traceEvents"]
        titles = [event["args"]["name"] for event in events if event["name"] == "process_name"]
        self.assertEqual(titles, ["planned: rtx4090"])
        lanes = {event["args"]["name"] for event in events if event["name"] == "thread_name"}
        self.assertTrue({"gpu", "cpu", "nvme_read", "nvme_write"} <= {
            lane.split()[0] for lane in lanes}, lanes)
        outcome = self.program.run("plan", LARGE, "--machine", CARD, "trace=/nowhere/x")
        self.assertEqual(outcome.code, 1)
        self.assertIn("/nowhere/x", outcome.err)
        self.assertIn("asked to stop", self.line("commit", "--machine", CARD, "commit=at_saves"))

    def test_a_model_may_be_followed_by_its_data(self):
        self.assertEqual(self.plan("--machine", CARD), self.plan("data.jsonl", "--machine", CARD))
        self.refused(["3 of them"], "data.jsonl", "more", "--machine", CARD)

    def test_no_sample_is_longer_than_the_model_has_positions(self):
        shape = self.folder / "short.json"
        shape.write_text(json.dumps(tiny.config_of(300, tied=False)))  # 128 positions
        outcome = self.program.run("plan", shape, "--machine", CARD, "--json")
        self.assertEqual(json.loads(outcome.out)["tokens_per_step"], 128)
        for words in (("plan", shape, "--machine", CARD), ("rehearse", shape)):
            outcome = self.program.run(*words, "max_length=129")
            self.assertEqual(outcome.code, 2, outcome)
            self.assertIn("128 positions", outcome.err)

    def test_the_readme_shows_what_is_printed(self):
        text = (CONFIGS.parent / "README.md").read_text()
        words = re.search(r"headrace plan (configs/\S+ --machine \S+ \\\n.*)\n", text).group(1)
        words = words.replace("\\", " ").split()
        shown = re.search(r"```\n(model .*?)```", text, re.DOTALL).group(1)
        outcome = subprocess.run([PROGRAM, "plan", *words], cwd=CONFIGS.parent, text=True,
                                 capture_output=True, check=True)
        self.assertEqual(outcome.stdout, shown)

    def test_what_train_does_not_do_is_said(self):
        self.assertIn("not on a card yet", self.line("train", "--machine", CARD))
        self.assertEqual(len(self.json("--machine", CARD)["untrained"]), 1)
        self.assertEqual(self.json("--machine", self.host)["untrained"], [])
        self.assertEqual(self.json("--machine", self.host, f"emulate={CARD}")["untrained"], [])
        other = self.program.run("plan", CONFIGS / "models/qwen2.5-7b.json", "--machine", self.host)
        self.assertIn("cannot compute model_type qwen2 yet", other.out)

    def test_no_budget_is_more_than_the_machine_has(self):
        line = self.line("budgets", "--machine", CARD, "gpu_budget=200GiB")
        self.assertIn("gpu_budget is 200 GiB and rtx4090 has 22.0 GiB", line)
        large = self.json("--machine", CARD, "gpu_budget=200GiB")
        self.assertEqual(large["ceilings"], self.json("--machine", CARD)["ceilings"])
        self.assertEqual(len(large["large_budgets"]), 1)
        outcome = self.program.run("plan", LARGE, "--machine", CARD, "max_length=4096",
                                   "per_device_train_batch_size=64")
        self.assertEqual(outcome.code, 3)
        self.assertIn("no budget makes it fit: rtx4090 has 22.0 GiB for gpu", outcome.err)
        self.assertNotIn("gpu_budget=", outcome.err)
        # Of a host both are one memory: either may have most of it, the two not more.
        most = self.json("--machine", self.host, "gpu_budget=50GiB", "ram_budget=10GiB")
        self.assertEqual(most["ceilings"]["gpu_bytes"], 50 << 30)
        self.assertEqual(most["large_budgets"], [])

    def test_what_makes_a_job_fit_is_found_far_from_its_budgets(self):
        def refusal(*words):
            outcome = self.program.run("plan", LARGE, "--machine", CARD, *words)
            self.assertEqual(outcome.code, 3, outcome)
            return outcome.err
        for budgets in (["nvme_budget=20GiB"], ["nvme_budget=160GiB", "ram_budget=4GiB"]):
            text = refusal(*budgets)
            self.assertNotIn("no budget", text)
            self.assertIn("or with commit=at_saves", refusal("nvme_budget=160GiB"))
            proposed = re.search(r"it would fit with ((?:\w+=\d+MiB ?)+)", text).group(1).split()
            self.json("--machine", CARD, *budgets, *proposed)
        self.assertIn("or with optimizer_states=int8", refusal("nvme_budget=160GiB"))
        self.assertIn("left to the planner", refusal("parameters=ram", "optimizer=ram"))
        small = self.folder / "small.yaml"
        small.write_text(HOST.replace("900GB", "100GB"))
        outcome = self.program.run("plan", LARGE, "--machine", small)
        self.assertIn("no budget makes it fit: host has 93.1 GiB for nvme", outcome.err)

    def test_what_a_run_file_says_in_vain_is_told_apart_from_the_plan(self):
        outcome = self.program.run("plan", LARGE, "--machine", CARD, "--json",
                                   "save_strategy=steps")
        self.assertEqual(outcome.code, 0, outcome)
        self.assertIn("note: save_strategy: ", outcome.err)
        json.loads(outcome.out)

    def test_no_number_has_an_exponent_and_small_ones_are_told(self):
        for words in ((), ("max_length=2",), ("max_length=4096", "gradient_accumulation_steps=64"),
                      ("--price", "2.5", "max_steps=100000"), ("parameters=nvme",)):
            text = self.plan("--machine", CARD, *words)
            self.assertIsNone(re.search(r"\d[.\d]*e[+-]\d", text), text)
            self.assertNotIn(": 0 tokens/s", text)
        shape = self.folder / "shape.json"
        shape.write_text(json.dumps(tiny.config_of(8192, tied=False)))
        small = self.program.run("plan", shape, "--machine", CARD, "max_steps=3")
        self.assertRegex(small.out, r"run +3 steps take [\d.]+ [um]s\n")
        text = self.line("balance", "--machine", CARD)
        self.assertRegex(text, r"from about \d+,\d00 tokens a step; with these, it is busy [\d.]+%")


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[1:]])
