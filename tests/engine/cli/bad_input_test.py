"""Goal: whatever is wrong, the program says what and where, with the remedy, leaves with the
documented code, and leaves nothing half-written: output_dir as it was, the drive empty (CFG-3,
NVME-11).

Method: the built program on a tiny model and tiny data that work, with one thing broken at a time.
Every refusal must come before output_dir is made, unless the test says otherwise. A user's lack of
rights is root without capabilities where the test runs as root; small drives are loop mounts, and
skipped where nothing may be mounted.
Usage: bad_input_test.py PROGRAM
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import tiny

PROGRAM = Path(sys.argv.pop(1)).resolve() if len(sys.argv) > 1 else None
FAILED, USAGE, DOES_NOT_FIT, BAD_DATA, DIVERGED = 1, 2, 3, 4, 5
MACHINE = Path(__file__).resolve().parents[3] / "configs/hardware/rtx4090.yaml"
SMALL = ("gpu_budget=32MiB", "ram_budget=32MiB", "compute_threads=1", "max_steps=2")
ON_NVME = ("parameters=nvme", "optimizer=nvme")  # though memory would hold it
# Root may write anywhere, until it gives that up.
WITHOUT_RIGHTS = (["setpriv", "--bounding-set=-all", "--inh-caps=-all"]
                  if os.geteuid() == 0 else [])


class BadInputTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.good = tempfile.TemporaryDirectory(prefix="headrace good ")
        root = Path(cls.good.name)
        tiny.write_model(root / "one")
        tiny.write_model(root / "shards", tied=False, shard_count=2)
        tiny.write_data(root / "data")
        cls.one, cls.shards, cls.data = root / "one", root / "shards", root / "data"
        cls.tokens, cls.chat = cls.data / "tokens.jsonl", cls.data / "chat.jsonl"
        # Set already, the program need not start over to set it: half the time of a refusal.
        cls.program = tiny.Program(PROGRAM, sys.executable, root, OMP_WAIT_POLICY="passive")

    @classmethod
    def tearDownClass(cls):
        cls.good.cleanup()

    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory(prefix="headrace bad ")
        self.addCleanup(self.scratch.cleanup)
        self.folder = Path(self.scratch.name)
        self.nvme, self.out = self.folder / "nvme", self.folder / "out"
        self.nvme.mkdir()

    def copy_of(self, model):
        copy = self.folder / "model"
        shutil.rmtree(copy, ignore_errors=True)
        return shutil.copytree(model, copy)

    def job(self, model, data, *more, nvme=None):
        return ("train", model, data, "--nvme", nvme or self.nvme, f"output_dir={self.out}", *SMALL,
                *ON_NVME, *more)

    def refused(self, code, parts, *words, **more):
        """The program leaves with the code, names every part, and has written nothing."""
        before = tiny.tree_of(self.out), tiny.tree_of(self.nvme)
        outcome = self.program.run(*words, **more)
        self.assertEqual(outcome.code, code, outcome)
        for part in parts:
            self.assertIn(str(part), outcome.err, outcome)
        self.assertTrue(outcome.err.startswith("headrace: "), outcome)
        for noise in ("Traceback", "CHECK", "terminate called"):
            self.assertNotIn(noise, outcome.err)
        self.assertEqual((tiny.tree_of(self.out), tiny.tree_of(self.nvme)), before, outcome)
        return outcome

    # ---- checkpoints ---------------------------------------------------------------------------

    def test_damaged_weights(self):
        shard = "model-00002-of-00002.safetensors"
        model = self.copy_of(self.shards)
        (model / shard).unlink()
        self.refused(BAD_DATA, [shard, "download"], *self.job(model, self.chat))

        model = self.copy_of(self.shards)
        with open(model / shard, "r+b") as file:
            file.truncate((model / shard).stat().st_size - 100)
        self.refused(BAD_DATA, [shard, "bytes", "download"], *self.job(model, self.chat))

        model = self.copy_of(self.shards)
        (model / shard).chmod(0)
        self.refused(FAILED, [shard, "Permission denied"], *self.job(model, self.chat),
                     prefix=WITHOUT_RIGHTS)

        model = self.copy_of(self.shards)
        (model / shard).write_bytes(b"\xff" * 64)
        self.refused(BAD_DATA, [shard], *self.job(model, self.chat))

    def break_header(self, change):
        """A copy of the model whose header is the text that `change` makes of it."""
        model = self.copy_of(self.one)
        header, stored = tiny.read_header(model / "model.safetensors")
        broken = change(header)
        self.assertNotEqual(header, broken)
        tiny.write_with_header(model / "model.safetensors", broken, stored)
        return model

    def test_headers_that_lie(self):
        name = "model.norm.weight"

        def overlap(text):
            header = json.loads(text)
            size = header[name]["data_offsets"][1] - header[name]["data_offsets"][0]
            header[name]["data_offsets"] = [0, size]
            return json.dumps(header)

        def twice(text):
            entry = json.dumps({name: json.loads(text)[name]})[1:-1]
            return text.rstrip()[:-1] + ", " + entry + "}"

        def dtype(text):
            return text.replace('"F32"', '"I32"', 1)

        def misshapen(text):
            header = json.loads(text)
            header[name]["shape"] = [8, 8]
            return json.dumps(header)

        def renamed(text):
            return text.replace(name, "model.norm.wait")

        file = "model.safetensors"
        for change, parts in (
                (overlap, [file, "overlap", "again"]), (twice, [file, name, "twice"]),
                (dtype, ["I32", "BF16"]), (misshapen, [name, "64"]),
                (renamed, [name, "model.norm.wait"])):
            with self.subTest(change.__name__):
                self.refused(BAD_DATA, parts, *self.job(self.break_header(change), self.chat))

    def test_models_of_another_kind(self):
        for changes, parts in (
                ({"model_type": "mamba", "architectures": ["MambaForCausalLM"]},
                 ["MambaForCausalLM"]),
                ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, ["yarn", "llama3"]),
                ({"hidden_act": "gelu"}, ["gelu"])):
            with self.subTest(parts[0]):
                model = self.copy_of(self.one)
                config = json.loads((model / "config.json").read_text())
                (model / "config.json").write_text(json.dumps(config | changes))
                self.refused(BAD_DATA, ["config.json", *parts], *self.job(model, self.chat))

        model = self.copy_of(self.one)
        (model / "model.safetensors").rename(model / "pytorch_model.bin")
        self.refused(BAD_DATA, ["pytorch_model.bin", "save_pretrained"],
                     *self.job(model, self.chat))
        (model / "config.json").write_text("{")
        self.refused(BAD_DATA, ["config.json"], *self.job(model, self.chat))
        self.refused(BAD_DATA, [self.folder / "absent", "folder"],
                     *self.job(self.folder / "absent", self.chat))

    # ---- data ----------------------------------------------------------------------------------

    def test_data_that_cannot_be_trained_on(self):
        data = self.folder / "data.jsonl"
        good = '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", ' \
               '"content": "b"}]}\n'
        for text, parts in (
                ('{"input_ids": [5, 6]}\n{"input_ids": [5, 100000]}\n', [":2", "100000"]),
                ('{"input_ids": [5, -1]}\n', [":1", "-1"]),
                ('{"input_ids": [5, 6]}\n{"input_ids": [5, 6\n', [":2", "JSON"]),
                ('{"input_ids": [5, 6], "labels": [5, -100]}\n', [":1", "train"]),
                ('', ["empty"]),
                ('\n\n', ["empty"]),
                ('what is this\n', ["JSON"]),
                ('{"question": "a"}\n', ["question", "messages"]),
                (good + '{"messages": [\n', [":2", "JSON"]),
                (good + '{"messages": [{"role": "user", "content": "a"}]}\n', [":2", "assistant"]),
                (good + '{"messages": "no list"}\n', [":2", "messages"]),
                ('{"text": ""}\n', [":1", "train"])):
            with self.subTest(text):
                data.write_text(text)
                self.refused(BAD_DATA, [data, *parts], *self.job(self.one, data))
        self.refused(BAD_DATA, [self.data, "is a folder"], *self.job(self.one, self.data))
        self.refused(BAD_DATA, [self.folder / "absent.jsonl"],
                     *self.job(self.one, self.folder / "absent.jsonl"))
        data.write_text('{"input_ids": [5]}\n')
        self.refused(BAD_DATA, [data], *self.job(self.one, self.tokens, f"eval_data={data}"))

    def test_a_python_that_cannot_prepare_is_no_fault_of_the_data(self):
        python = self.folder / "python"
        python.write_text("#!/bin/sh\necho 'prepare_data: no tokenizers' >&2\nexit 1\n")
        python.chmod(0o755)
        self.refused(FAILED, ["no tokenizers", "setup"], *self.job(self.one, self.chat),
                     HEADRACE_PYTHON=str(python))

    # ---- configuration -------------------------------------------------------------------------

    def test_configurations(self):
        run_file = self.folder / "run.yaml"
        run_file.write_text(f"model: {self.one}\ntrain_data: {self.chat}\n"
                            f"output_dir: {self.out}\nlearnign_rate: 1e-5\nmax_steps: many\n"
                            "offload:\n  ram_bugdet: 1GiB\n")
        self.refused(USAGE, [f"{run_file}:4", "'learning_rate'", f"{run_file}:5", "many",
                             f"{run_file}:7", "ram_budget", "3 faults"], "train", run_file)
        self.refused(USAGE, ["device: cuda", "device: host"],
                     *self.job(self.one, self.chat, "device=cuda"))
        self.refused(USAGE, ["learning_rate", "10"],
                     *self.job(self.one, self.chat, "learning_rate=1e30"))
        self.refused(USAGE, ["max_length", "128"],
                     *self.job(self.one, self.chat, "max_length=4096"))
        self.refused(USAGE, [self.folder / "absent.yaml"], "train", self.folder / "absent.yaml")
        self.refused(USAGE, ["learning_rate=1e-5"], "train", self.one, self.chat, "--lr", "1e-5")
        self.refused(USAGE, ["'train'"], "trian", self.one, self.chat)

    def test_what_is_no_file_is_told(self):
        pipe = self.folder / "pipe"
        os.mkfifo(pipe)
        shape = self.folder / "shape.json"
        shape.mkdir()
        for machine in (self.folder, pipe, "/dev/zero"):
            self.refused(USAGE, [machine, "not a file"], "plan", self.one, "--machine", machine)
        self.refused(BAD_DATA, [shape], "plan", shape, "--machine", MACHINE)
        self.refused(BAD_DATA, [shape], "random-model", shape, self.folder / "x")
        model = self.copy_of(self.one)
        (model / "config.json").unlink()
        (model / "config.json").mkdir()
        self.refused(BAD_DATA, [model / "config.json"], *self.job(model, self.tokens))
        self.refused(USAGE, [pipe], "train", pipe)
        for data in (pipe, "/dev/zero"):
            self.refused(BAD_DATA, [data, "write it to a file"], *self.job(self.one, data))

    def test_a_shape_that_cannot_be_computed_is_not_rehearsed(self):
        config = json.loads((self.one / "config.json").read_text())
        shape = self.folder / "shape.json"
        shape.write_text(json.dumps(config | {
            "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "head_dim": 16}))
        self.assertEqual(self.program.run("plan", shape, "--machine", MACHINE).code, 0)
        for words in (("rehearse",), ("tune",), ("bench", "step")):
            for card in ((), (f"emulate={MACHINE}",)):
                self.refused(BAD_DATA, [shape, "Qwen3ForCausalLM", "plan"], *words, shape,
                             "--machine", MACHINE, "--nvme", self.nvme, *card)

    def test_numbers_that_are_none(self):
        for number in ("nan", "inf", "-1", "many"):
            for words in (("plan", self.one, "--price"), ("doctor", "--probe", "--seconds"),
                          ("bench", "adam", "--seconds")):
                self.refused(USAGE, [words[-1], number], *words, number)
        self.refused(USAGE, ["gradient_accumulation_steps", "32767"],
                     *self.job(self.one, self.tokens, "gradient_accumulation_steps=32768"))

    def test_a_run_file_that_is_cut_off_is_told(self):
        with open("/dev/full", "w") as full:
            ended = subprocess.run(self.program.command("init", self.one, self.chat), stdout=full,
                                   stderr=subprocess.PIPE, text=True,
                                   env=self.program.environment)
        self.assertEqual(ended.returncode, FAILED)
        self.assertIn("No space left", ended.stderr)

    def test_cfg_3_a_missing_field_is_named(self):
        for setting in ("parameters=nvme", "optimizer=nvme", "activations={ram: 50%, nvme: 50%}",
                        "stash_tier=nvme", "nvme_budget=1GiB"):
            self.refused(USAGE, ["offload.nvme_paths is missing", setting.split("=")[0]],
                         "train", self.one, self.chat, f"output_dir={self.out}", setting)
        run_file = self.folder / "run.yaml"
        for kept, missing in (("model", "train_data"), ("train_data", "model")):
            run_file.write_text(f"{kept}: {self.one}\n")
            self.refused(USAGE, [f"{missing} is missing"], "train", run_file)

    def test_budgets_too_small_and_the_settings_that_fit(self):
        # The data was prepared before the shapes were known; it is whole, and found again.
        outcome = self.program.run(*self.job(self.one, self.tokens, "gpu_budget=64KiB",
                                             "ram_budget=64KiB", "nvme_budget=64KiB"))
        self.assertEqual(outcome.code, DOES_NOT_FIT, outcome)
        self.assertIsNone(tiny.tree_of(self.out))
        self.assertEqual(list(self.nvme.iterdir()), [])
        proposed = re.search(r"it would fit with ((?:\w+=\w+ ?)+)", outcome.err)
        self.assertIsNotNone(proposed, outcome)
        settings = proposed[1].split()
        self.assertEqual([word.split("=")[0] for word in settings],
                         ["gpu_budget", "ram_budget", "nvme_budget"])
        fitting = self.program.run(*self.job(self.one, self.tokens, *settings))
        self.assertEqual(fitting.code, 0, fitting)

    def test_a_run_that_diverges(self):
        outcome = self.program.run(*self.job(
            self.one, self.tokens, "learning_rate=10", "weight_decay=1000", "max_grad_norm=0",
            "lr_scheduler_type=constant", "warmup_ratio=0", "max_steps=60"))
        self.assertEqual(outcome.code, DIVERGED, outcome)
        self.assertIn("lower learning_rate", outcome.err)
        self.assertFalse((self.out / "model").exists())
        rows = [json.loads(line) for line in (self.out / "metrics.jsonl").read_text().splitlines()]
        self.assertTrue(rows[-1]["skipped"])
        self.assertIn("resume_from_checkpoint=true", outcome.out)
        self.assertEqual(len(list(self.nvme.iterdir())), 1)
        self.refused(BAD_DATA, [self.out / "model", "train"], "export", self.out,
                     self.folder / "exported")
        self.assertFalse((self.folder / "exported").exists())

    # ---- folders and drives --------------------------------------------------------------------

    def test_nvme_11_paths_that_cannot_be_used(self):
        absent, file = self.folder / "absent", self.folder / "file"
        file.write_text("")
        self.refused(FAILED, [absent, "create the folder"],
                     *self.job(self.one, self.chat, nvme=absent))
        self.refused(FAILED, [file, "is a file"], *self.job(self.one, self.chat, nvme=file))
        self.refused(USAGE, [self.nvme, "twice"],
                     *self.job(self.one, self.chat, "--nvme", self.nvme))
        link = self.folder / "link"
        link.symlink_to(self.nvme)
        self.refused(USAGE, [self.nvme, link, "one folder"],
                     *self.job(self.one, self.chat, "--nvme", link))
        self.refused(USAGE, [self.nvme, link, "one folder"],
                     "bench", "nvme", "--path", self.nvme, "--path", link)
        closed = self.folder / "closed"
        closed.mkdir(mode=0o555)
        self.refused(FAILED, [closed, f"user {os.geteuid()}"],
                     *self.job(self.one, self.chat, nvme=closed), prefix=WITHOUT_RIGHTS)

    def test_what_is_written_at_the_end_is_refused_at_the_start(self):
        absent, folder = self.folder / "absent", self.folder / "folder"
        folder.mkdir()
        for trace, code, part in ((absent / "t", FAILED, "No such file"),
                                  (folder, USAGE, "it is a folder")):
            self.refused(code, ["trace", trace, part],
                         *self.job(self.one, self.tokens, f"trace={trace}"))
            self.refused(code, ["trace", trace, part], "rehearse", self.one / "config.json",
                         f"trace={trace}")
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["folder", "nvme"])
        for words, code, part in ((("--nvme", absent), FAILED, absent),
                                  (("--out", folder), USAGE, "it is a folder")):
            refusal = self.refused(code, [part], "doctor", "--probe", *words)
            self.assertNotIn("products of", refusal.out, "before anything is measured")

    def test_a_trace_never_replaces_what_is_no_file(self):
        pipe = self.folder / "pipe"
        os.mkfifo(pipe)
        reader = subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE)
        ran = self.program.run(*self.job(self.one, self.tokens, f"trace={pipe}"))
        self.assertEqual(ran.code, 0, ran)
        self.assertIn("traceEvents", json.loads(reader.communicate(timeout=10)[0]))
        self.assertTrue(pipe.is_fifo())
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()),
                         ["nvme", "out", "pipe"])

    def test_a_model_alone_is_told_that_it_lacks_data(self):
        self.refused(USAGE, [self.one, "folder", "MODEL DATA"], "train", self.one)

    def test_folders_that_cannot_be_written(self):
        closed, file = self.folder / "closed", self.folder / "file"
        closed.mkdir(mode=0o555)
        file.write_text("")
        for folder, parts in ((closed, [closed]), (closed / "a" / "b", [closed]),
                              (file, [file, "is a file"]), (file / "a", [file])):
            self.refused(FAILED, ["output_dir", *parts],
                         *self.job(self.one, self.chat, f"output_dir={folder}"),
                         prefix=WITHOUT_RIGHTS)
        self.assertEqual(list(closed.iterdir()), [])

    def test_a_result_that_would_find_no_place_is_told_before_training(self):
        (self.out / "model").mkdir(parents=True)
        (self.out / "model" / "thesis.tex").write_text("")
        refusal = self.refused(USAGE, [self.out / "model", "thesis.tex"],
                               *self.job(self.one, self.tokens))
        self.assertNotIn("step=", refusal.out)

    def test_exports_that_cannot_be_written(self):
        self.assertEqual(self.program.run(*self.job(self.one, self.tokens)).code, 0)
        closed, other = self.folder / "closed", self.folder / "other"
        closed.mkdir(mode=0o555)
        self.refused(FAILED, [closed / "x"], "export", self.out, closed / "x",
                     prefix=WITHOUT_RIGHTS)
        other.mkdir()
        (other / "thesis.tex").write_text("")
        self.refused(USAGE, [other, "thesis.tex"], "export", self.out, other)
        self.assertEqual(list(other.iterdir()), [other / "thesis.tex"])
        self.refused(USAGE, [self.folder, "output_dir"], "export", self.folder, other)

    def mounted(self, megabytes, *options):
        """A small drive of its own, or a skipped test."""
        image, drive = self.folder / "image", self.folder / "drive"
        drive.mkdir(exist_ok=True)
        with open(image, "wb") as file:
            file.truncate(megabytes << 20)
        commands = (["mkfs.ext4", "-q", "-F", "-m", "0", "-O", "^has_journal", str(image)],
                    ["mount", "-o", ",".join(["loop", *options]), str(image), str(drive)])
        tmpfs = ["mount", "-t", "tmpfs", "-o", ",".join([f"size={megabytes}m", *options]), "tmpfs",
                 str(drive)]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        try:
            made = all(subprocess.run(command, **quiet).returncode == 0 for command in commands)
            made = made or subprocess.run(tmpfs, **quiet).returncode == 0
        except FileNotFoundError:
            made = False
        if not made:
            self.skipTest("no small drive may be mounted here")
        self.addCleanup(subprocess.run, ["umount", str(drive)], check=True)
        return drive

    def test_a_full_drive_is_refused_before_the_start(self):
        # Space is reserved before the first step, so a drive cannot fill up under a run.
        drive = self.mounted(8)
        room = os.statvfs(drive)
        (drive / "ballast").write_bytes(b"x" * (room.f_bavail * room.f_frsize - (600 << 10)))
        before = sorted(path.name for path in drive.iterdir())
        outcome = self.refused(DOES_NOT_FIT, [drive, "free", "needs"],
                               *self.job(self.one, self.tokens, nvme=drive))
        self.assertRegex(outcome.err, r"nvme [\d.]+ MiB of [\d.]+ KiB \(too little\)")
        needed, free = (int(number) for number in re.findall(r"\((\d+) bytes\)", outcome.err))
        self.assertGreater(needed, free)
        self.assertRegex(outcome.err, r"free [\d.]+ MiB more there, or name another drive")
        self.assertEqual(sorted(path.name for path in drive.iterdir()), before)
        (drive / "more").write_bytes(b"x" * (500 << 10))
        self.refused(DOES_NOT_FIT, [drive, "free", "output_dir"],
                     *self.job(self.one, self.tokens, f"output_dir={drive / 'out'}"))
        (drive / "more").unlink()
        (drive / "ballast").unlink()
        fitting = self.program.run(*self.job(self.one, self.tokens, nvme=drive))
        self.assertEqual(fitting.code, 0, fitting)

    def test_a_drive_that_is_read_only(self):
        drive = self.mounted(8, "ro")
        self.refused(FAILED, [drive, "ead-only"], *self.job(self.one, self.chat, nvme=drive))
        self.refused(FAILED, [drive, "ead-only"],
                     *self.job(self.one, self.chat, f"output_dir={drive / 'out'}"))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[1:]])
