"""Goal: what a user types works as the help says: every kind of data, with and without a run file,
evaluation, export; the result is what transformers opens, and a run is repeated by its own resolved
configuration; drives are left as they were found (CKPT-2, LOAD-2).

Method: the built program on tiny Llamas made by transformers, beside transformers itself.
Usage: end_to_end_test.py PROGRAM
"""
import json
import shutil
import signal
import sys
import tempfile
import unittest
from pathlib import Path

import tiny
import torch
from safetensors import safe_open
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM
from transformers.utils import logging

PROGRAM = Path(sys.argv.pop(1)).resolve() if len(sys.argv) > 1 else None
SMALL = ("gpu_budget=32MiB", "ram_budget=32MiB", "compute_threads=1")
ON_NVME = ("parameters=nvme", "optimizer=nvme")  # though memory would hold it


def save_with_transformers(folder, tied):
    folder.mkdir(parents=True)
    vocabulary_count = tiny.write_tokenizer(folder)
    kept = (folder / "tokenizer_config.json").read_bytes()
    torch.manual_seed(5)
    config = LlamaConfig(
        vocab_size=vocabulary_count, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128,
        tie_word_embeddings=tied, bos_token_id=0, eos_token_id=1)
    LlamaForCausalLM(config).float().save_pretrained(folder, max_shard_size="200KB")
    (folder / "tokenizer_config.json").write_bytes(kept)


def loss_of(model_folder, data):
    """What transformers makes of the samples: the mean over all trained tokens."""
    model = AutoModelForCausalLM.from_pretrained(model_folder, attn_implementation="eager").eval()
    total, count = 0.0, 0
    for line in data.read_text().splitlines():
        ids = torch.tensor([json.loads(line)["input_ids"]])
        with torch.no_grad():
            total += model(ids, labels=ids).loss.item() * (ids.shape[1] - 1)
        count += ids.shape[1] - 1
    return total / count


def names_stored(folder):
    names = []
    for file in sorted(Path(folder).glob("*.safetensors")):
        with safe_open(file, "pt") as stored:
            names += list(stored.keys())
    return names


class EndToEndTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        torch.set_num_threads(1)
        logging.disable_progress_bar()
        cls.models = tempfile.TemporaryDirectory(prefix="headrace models ")
        root = Path(cls.models.name)
        save_with_transformers(root / "tied", True)
        save_with_transformers(root / "untied", False)
        tiny.write_data(root / "data")
        cls.tied, cls.untied, cls.data = root / "tied", root / "untied", root / "data"
        cls.program = tiny.Program(PROGRAM, sys.executable, root)

    @classmethod
    def tearDownClass(cls):
        cls.models.cleanup()

    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory(prefix="headrace runs ")
        self.addCleanup(self.scratch.cleanup)
        self.folder = Path(self.scratch.name)
        self.nvme = self.folder / "nvme"
        self.nvme.mkdir()

    def done(self, *words, **more):
        outcome = self.program.run(*words, **more)
        self.assertEqual(outcome.code, 0, outcome)
        return outcome

    def started(self, *words):
        """A run beside the test, which does not outlive it."""
        running = self.program.start(*words)
        self.addCleanup(running.kill)
        return running

    def train(self, model, data, out, *more, **options):
        return self.done("train", model, data, "--nvme", self.nvme, *ON_NVME,
                         f"output_dir={out}", *SMALL, *more, **options)

    def check_nothing_on_the_drive(self):
        self.assertEqual(list(self.nvme.iterdir()), [])

    def check_metrics(self, out, step_count):
        """Every line is an object; the steps are all there, in order; the last line is the end."""
        rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        steps = [row["step"] for row in rows if "loss" in row]
        self.assertEqual(steps, list(range(1, step_count + 1)))
        self.assertEqual(rows[-1]["event"], "finished")
        return rows

    def test_every_kind_of_data_trains_on_the_drive(self):
        for kind, trained_tokens in (("chat", None), ("text", None), ("prompt", None),
                                     ("tokens", 50)):
            out = self.folder / kind
            outcome = self.train(self.tied, self.data / f"{kind}.jsonl", out, "num_train_epochs=1")
            rows = self.check_metrics(out, 4)
            self.assertIn("weights: nvme", outcome.out)
            self.assertGreater(rows[0]["nvme_read_bytes"], 0)
            total = sum(row["trained_tokens"] for row in rows if "loss" in row)
            if trained_tokens is not None:
                self.assertEqual(total, trained_tokens)
            self.assertIn(f", {total} of them trained", outcome.out, kind)
            self.assertEqual((out / "data").exists(), kind != "tokens")
            self.assertNotIn(".tmp", outcome.out)
            self.check_nothing_on_the_drive()

    def test_load_2_transformers_opens_what_was_trained(self):
        for model in (self.tied, self.untied):
            out = self.folder / ("out " + model.name)
            tokens = self.data / "tokens.jsonl"
            outcome = self.train(model, tokens, out, f"eval_data={tokens}", "dtype=fp32",
                                 "max_steps=4", "eval_steps=2", "learning_rate=1e-2")
            rows = self.check_metrics(out, 4)
            evaluations = {row["step"]: row["eval_loss"] for row in rows if "eval_loss" in row}
            self.assertEqual(sorted(evaluations), [0, 2, 4])
            self.assertLess(evaluations[4], evaluations[0] - 0.1)
            exported = self.folder / ("exported " + model.name)
            self.done("export", out, exported)
            self.assertAlmostEqual(loss_of(model, tokens), evaluations[0], places=4)
            self.assertAlmostEqual(loss_of(exported, tokens), evaluations[4], places=4)
            self.assertEqual(sorted(names_stored(exported)), sorted(names_stored(model)))
            self.assertEqual("lm_head.weight" in names_stored(exported), model == self.untied)
            self.assertEqual(AutoTokenizer.from_pretrained(exported)("the gate").input_ids,
                             AutoTokenizer.from_pretrained(model)("the gate").input_ids)
            self.assertIn("exporting", self.done("export", out, exported).out)  # replaces itself
            self.assertEqual(outcome.fact("sha256"), rows[-1]["weights_sha256"])

    def test_a_rate_of_zero_exports_the_same_logits(self):
        out = self.folder / "out"
        self.train(self.untied, self.data / "tokens.jsonl", out, "dtype=fp32", "max_steps=2",
                   "learning_rate=0")
        ids = torch.arange(24).reshape(2, 12)
        with torch.no_grad():
            before, after = (AutoModelForCausalLM.from_pretrained(folder).eval()(ids).logits
                             for folder in (self.untied, out / "model"))
        self.assertTrue(torch.equal(before, after))

    def test_a_run_is_repeated_by_its_resolved_configuration(self):
        init = self.done("init", self.tied, self.data / "chat.jsonl")
        run_file = self.folder / "run.yaml"
        run_file.write_text(init.out)
        first, second, other = (self.folder / name for name in ("first", "second", "other"))
        typed = (f"offload.nvme_paths=[{self.nvme}]", "max_steps=3", "learning_rate=1e-3", *SMALL,
                 *ON_NVME)
        one = self.done("train", run_file, f"output_dir={first}", *typed)
        resolved = (first / "config.resolved.yaml").read_text()
        self.assertIn("# command line", resolved)
        self.assertIn(f"# {run_file}:", resolved)
        two = self.done("train", first / "config.resolved.yaml", f"output_dir={second}")
        self.assertEqual(one.fact("sha256"), two.fact("sha256"))
        self.assertEqual((first / "model" / "model.safetensors").read_bytes(),
                         (second / "model" / "model.safetensors").read_bytes())
        seeded = self.done("train", first / "config.resolved.yaml", f"output_dir={other}", "seed=7")
        self.assertNotEqual(seeded.fact("sha256"), one.fact("sha256"))
        self.check_nothing_on_the_drive()

    def test_without_a_drive_the_bits_are_the_same(self):
        tokens = self.data / "tokens.jsonl"
        nvme = self.train(self.tied, tokens, self.folder / "a", "max_steps=3", "learning_rate=1e-3")
        memory = self.done("train", self.tied, tokens, f"output_dir={self.folder / 'b'}", *SMALL,
                           "max_steps=3", "learning_rate=1e-3")
        self.assertNotIn("weights: nvme", memory.out)
        self.assertEqual(nvme.fact("sha256"), memory.fact("sha256"))
        self.assertEqual(nvme.fact("states"), memory.fact("states"))

    def test_ckpt_2_the_drive_is_left_as_it_was_found(self):
        tokens, out = self.data / "tokens.jsonl", self.folder / "job"
        job = ("train", self.tied, tokens, "--nvme", self.nvme, *ON_NVME, *SMALL,
               f"output_dir={out}")
        hashes = {self.done(*job, "max_steps=2").fact("sha256") for _ in range(2)}
        self.assertEqual(len(hashes), 1)
        self.check_nothing_on_the_drive()

        alive = self.started(*job, "max_steps=1000000")
        tiny.wait_for_step(alive, 2)
        store, = self.nvme.iterdir()
        self.assertTrue(store.name.startswith("headrace-job"), store)
        taken = sum(path.stat().st_size for path in store.iterdir())
        self.assertGreater(taken, 1_000_000)
        before = (out / "config.resolved.yaml").read_bytes()
        refused = self.program.run(*job, "max_steps=2")
        self.assertEqual(refused.code, 1, refused)
        for part in (str(store), "in use", str(alive.pid), "output_dir"):
            self.assertIn(part, refused.err)
        self.assertEqual((out / "config.resolved.yaml").read_bytes(), before)
        self.assertIsNone(alive.poll())
        tiny.end(alive, signal.SIGKILL)
        self.assertEqual(sorted(path.name for path in store.iterdir()), ["data", "map"])
        kept = self.program.run(*job, "max_steps=2")
        self.assertEqual(kept.code, 2, kept)
        for part in ("unfinished run", "resume_from_checkpoint=true", "overwrite_output_dir=true"):
            self.assertIn(part, kept.err)
        anew = self.done(*job, "max_steps=2", "overwrite_output_dir=true")
        self.assertEqual(anew.fact("sha256"), *hashes)
        self.check_nothing_on_the_drive()
        exported = self.folder / "exported"
        self.assertNotIn("warning", self.done("export", out, exported).out)
        stopped = self.started(*job, "max_steps=1000000")
        tiny.wait_for_step(stopped, 1)
        tiny.end(stopped, signal.SIGTERM)
        self.assertIn("warning: the last run", self.done("export", out, exported).out)

    def test_ctrl_c_ends_after_the_step_and_can_be_resumed(self):
        job = ("train", self.tied, self.data / "tokens.jsonl", "--nvme", self.nvme, *ON_NVME,
               *SMALL, "lr_scheduler_type=constant", "warmup_ratio=0")
        for number in (signal.SIGINT, signal.SIGTERM):
            folder = self.folder / f"out{int(number)}"
            out = f"output_dir={folder}"
            running = self.started(*job, out, "max_steps=1000000")
            tiny.wait_for_step(running, 2)
            ended = tiny.end(running, number)
            self.assertEqual(ended.code, 128 + number, ended)
            self.assertIn(f"stopped by signal {int(number)} after step", ended.err)
            self.assertFalse((folder / "model").exists())
            rows = (folder / "metrics.jsonl").read_text().splitlines()
            last = json.loads(rows[-1])["step"]
            self.assertEqual(len(rows), last)
            self.assertIn(f"after step {last} of", ended.err)
            steps = f"max_steps={last + 2}"
            resumed = self.done(*job, out, steps, "resume_from_checkpoint=true")
            self.assertIn(f"resuming after step {last} of {last + 2}", resumed.out)
            self.assertIn("max_steps was 1000000", resumed.err + resumed.out)
            whole = self.done(*job, f"output_dir={self.folder / 'whole'}", steps)
            for name in ("sha256", "states"):
                self.assertEqual(resumed.fact(name), whole.fact(name))
            self.check_nothing_on_the_drive()

    def test_a_reader_that_leaves_does_not_stop_the_run(self):
        out = self.folder / "out"
        running = self.started("train", self.tied, self.data / "tokens.jsonl", "--nvme", self.nvme,
                               *ON_NVME, f"output_dir={out}", *SMALL, "max_steps=3")
        running.stdout.readline()
        running.stdout.close()
        said = running.stderr.read()
        running.stderr.close()
        self.assertEqual(running.wait(60), 0, said)
        self.assertEqual(said, "")
        self.check_metrics(out, 3)
        self.check_nothing_on_the_drive()

    def test_closed_streams_are_not_mistaken_for_files(self):
        tokens = self.data / "tokens.jsonl"
        told = self.train(self.tied, tokens, self.folder / "told", "max_steps=3")
        # Without a shell's help the first file opened would become the standard output.
        self.train(self.tied, tokens, self.folder / "closed", "max_steps=3",
                   prefix=["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh"])
        rows = self.check_metrics(self.folder / "closed", 3)
        self.assertEqual(rows[-1]["weights_sha256"], told.fact("sha256"))
        self.check_nothing_on_the_drive()

    def test_a_step_of_more_micro_batches_than_there_are_takes_all(self):
        tokens = self.data / "tokens.jsonl"
        hashes = {self.train(self.tied, tokens, self.folder / "out", "max_steps=2",
                             f"gradient_accumulation_steps={count}").fact("sha256")
                  for count in (4, 32767)}
        self.assertEqual(len(hashes), 1)

    def test_models_are_found_in_the_hub_cache(self):
        entry = self.folder / "home" / "hub" / "models--org--tiny"
        snapshot = entry / "snapshots" / "abc"
        snapshot.mkdir(parents=True)
        (entry / "blobs").mkdir()
        (entry / "refs").mkdir()
        (entry / "refs" / "main").write_text("abc")
        for number, file in enumerate(sorted(self.tied.iterdir())):
            shutil.copy(file, entry / "blobs" / str(number))
            (snapshot / file.name).symlink_to(Path("../../blobs") / str(number))
        blobs = tiny.tree_of(entry)
        hub = str(self.folder / "home")
        hashes = set()
        for model in ("org/tiny", entry, snapshot):
            outcome = self.done("train", model, self.data / "chat.jsonl", "max_steps=2", *SMALL,
                                f"output_dir={self.folder / 'out'}", HF_HOME=hub)
            hashes.add(outcome.fact("sha256"))
        self.assertEqual(len(hashes), 1)
        self.assertEqual(tiny.tree_of(entry), blobs)
        exported = [file for file in (self.folder / "out" / "model").iterdir() if file.is_symlink()]
        self.assertEqual(exported, [])
        absent = self.program.run("train", "org/absent", self.data / "chat.jsonl", HF_HOME=hub)
        self.assertEqual(absent.code, 4, absent)
        self.assertIn("hf download", absent.err)

    def test_help_names_what_there_is(self):
        overview = self.done("--help").out
        for command in ("train", "export", "doctor", "init"):
            self.assertIn(command, overview)
            self.assertIn("Usage: headrace " + command, self.done(command, "--help").out)
        keys = [line.split(":")[0].strip() for line in
                self.done("init", "m", "d").out.splitlines() if line.startswith(("model", "lea"))]
        told = self.done("train", "--help").out
        self.assertEqual(keys, ["model", "learning_rate"])
        for key in (*keys, "offload.nvme_paths", "offload.advanced.part_bytes"):
            self.assertIn(key, told)
        doctor = self.done("doctor", "--nvme", self.nvme)
        for row in ("io_uring", str(self.nvme), "python", "memory"):
            self.assertIn(row, doctor.out)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[1:]])
