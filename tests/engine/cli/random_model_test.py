"""Goal: a random model is a model: transformers opens its weights and its tokenizer, it can be
trained on text and on chats; with the weights' distribution as promised.

Method: the built program on a tiny shape, beside transformers itself.
Usage: random_model_test.py PROGRAM
"""
import json
import sys
import tempfile
import unittest
from pathlib import Path

import tiny
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

PROGRAM = Path(sys.argv.pop(1)).resolve() if len(sys.argv) > 1 else None


class RandomModelTest(unittest.TestCase):
    def setUp(self):
        self.made = tempfile.TemporaryDirectory(prefix="headrace-random-")
        self.folder = Path(self.made.name)
        self.addCleanup(self.made.cleanup)
        self.program = tiny.Program(PROGRAM, sys.executable, self.folder)

    def write_shape(self, name, **changes):
        path = self.folder / name
        path.write_text(json.dumps(tiny.config_of(512, tied=False) | changes))
        return path

    def make(self, shape, out, *words):
        ended = self.program.run("random-model", shape, out, *words)
        self.assertEqual(ended.code, 0, ended)

    def test_transformers_opens_it(self):
        shape = self.write_shape("config.json", hidden_size=128, num_hidden_layers=4)
        self.make(shape, self.folder / "model", "--layers", "3", "--seed", "5")
        model = AutoModelForCausalLM.from_pretrained(self.folder / "model")
        self.assertEqual(len(model.model.layers), 3)
        for name, tensor in model.named_parameters():
            if "norm" in name:
                self.assertTrue(torch.equal(tensor, torch.ones_like(tensor)), name)
            else:
                self.assertAlmostEqual(tensor.float().std().item(), 0.02, delta=0.001, msg=name)
                self.assertAlmostEqual(tensor.float().mean().item(), 0, delta=0.001, msg=name)
        tokenizer = AutoTokenizer.from_pretrained(self.folder / "model")
        text = "Ein Mühlrad, 12€ \n\x7f"
        ids = tokenizer(text)["input_ids"]
        self.assertEqual(ids, list(text.encode()))
        self.assertEqual(tokenizer.decode(ids), text)
        with torch.no_grad():
            loss = model(torch.tensor([ids]), labels=torch.tensor([ids])).loss.item()
        self.assertAlmostEqual(loss, 6.24, delta=0.3)  # ln 512: nothing is known yet

    def test_biases_and_norms_of_heads_are_there_too(self):
        for kind, architecture in (("qwen2", "Qwen2ForCausalLM"), ("qwen3", "Qwen3ForCausalLM"),
                                   ("mistral", "MistralForCausalLM")):
            shape = self.write_shape(kind + ".json", model_type=kind, architectures=[architecture],
                                     head_dim=16, sliding_window=None)
            self.make(shape, self.folder / kind)
            model, told = AutoModelForCausalLM.from_pretrained(self.folder / kind,
                                                               output_loading_info=True)
            self.assertEqual(type(model).__name__, architecture)
            self.assertFalse(told["missing_keys"], told)
            self.assertFalse(told["unexpected_keys"], told)

    def test_it_can_be_trained(self):
        self.make(self.write_shape("config.json"), self.folder / "model")
        tiny.write_data(self.folder / "data")
        for kind in ("text", "chat"):
            ended = self.program.run(
                "train", self.folder / "model", self.folder / "data" / f"{kind}.jsonl",
                f"output_dir={self.folder / kind}", "max_steps=2", "gpu_budget=32MiB",
                "ram_budget=32MiB", "compute_threads=1")
            self.assertEqual(ended.code, 0, ended)

    def test_a_recipe_trains_as_its_weights_do(self):
        shape = self.write_shape("config.json")
        tiny.write_data(self.folder / "data")
        trained = []
        for name, words in (("weights", []), ("recipe", ["--recipe"])):
            self.make(shape, self.folder / name, *words)
            ended = self.program.run(
                "train", self.folder / name, self.folder / "data" / "text.jsonl",
                f"output_dir={self.folder / 'runs' / name}", "max_steps=2", "gpu_budget=32MiB",
                "ram_budget=32MiB", "compute_threads=1")
            self.assertEqual(ended.code, 0, ended)
            trained.append((self.folder / "runs" / name / "model" / "model.safetensors")
                           .read_bytes())
        self.assertEqual(trained[0], trained[1])
        self.assertFalse((self.folder / "recipe" / "model.safetensors").exists())
        self.assertFalse((self.folder / "runs/recipe/model/random_weights.json").exists())

    def test_what_is_wrong_is_told(self):
        ended = self.program.run("random-model", self.folder / "no.json", self.folder / "model")
        self.assertEqual(ended.code, 4, ended)
        self.assertIn("no.json", ended.err)
        ended = self.program.run("random-model", self.write_shape("config.json"),
                                 self.folder / "model", "--layers", "0")
        self.assertEqual(ended.code, 2, ended)


if __name__ == "__main__":
    unittest.main()
