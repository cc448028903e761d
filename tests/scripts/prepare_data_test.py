"""Goal: scripts/prepare_data.py trains the assistant's tokens and their end of turn, and no others;
what it cannot use it refuses with file and line, and leaves no half-written output.

Method: a tokenizer of one token per word, made here, with chat templates of the kinds that occur:
ChatML (turns by prefix), one with {% generation %} blocks, one that rewrites earlier turns.
Expected labels are written out as words. Where SmolLM2 is in models/ and transformers is installed,
rendered chats and tokens must equal those of transformers' apply_chat_template.
"""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "prepare_data.py"
SMOLLM2 = ROOT / "models" / "smollm2-135m-instruct"

try:
    import jinja2  # noqa: F401
    import tokenizers
except ImportError:
    tokenizers = None

WORDS = ("<unk> <s> <end> <user> <assistant> <system> be nice hi hello how are you fine what is up "
         "much a b c d e thought").split()
CHATML = ("{% for m in messages %}{{ '<' + m['role'] + '> ' + m['content'] + ' <end> ' }}"
          "{% endfor %}{% if add_generation_prompt %}{{ '<assistant> ' }}{% endif %}")
GENERATION = ("{% for m in messages %}{{ '<' + m['role'] + '> ' }}{% if m['role'] == 'assistant' %}"
              "{% generation %}{{ m['content'] }}{% endgeneration %}{% else %}{{ m['content'] }}"
              "{% endif %}{{ ' <end> ' }}{% endfor %}")
# Keeps the thought of the last turn only, as reasoning models do.
REWRITES = ("{% for m in messages %}{{ '<' + m['role'] + '> ' }}{% if m['role'] == 'assistant' and "
            "loop.last %}{{ 'thought ' }}{% endif %}{{ m['content'] + ' <end> ' }}{% endfor %}"
            "{% if add_generation_prompt %}{{ '<assistant> ' }}{% endif %}")
TALK = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello you"},
        {"role": "user", "content": "what is up"}, {"role": "assistant", "content": "a b c"}]


def write_model(folder, template):
    """A model folder with all that prepare_data reads: tokenizer, template, config, ends."""
    model = tokenizers.models.WordLevel({word: index for index, word in enumerate(WORDS)}, "<unk>")
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", WORDS.index("<s>"))])
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text(json.dumps({"vocab_size": len(WORDS)}))
    (folder / "tokenizer_config.json").write_text(json.dumps(
        {"eos_token": {"content": "<end>"}, "bos_token": "<s>", "chat_template": template}))


@unittest.skipIf(tokenizers is None, "the packages tokenizers and jinja2 are not installed")
class PrepareDataTest(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory(prefix="prepare data ")  # a path with a space
        self.addCleanup(self.scratch.cleanup)
        self.folder = Path(self.scratch.name)
        self.output = self.folder / "out" / "tokens.jsonl"
        self.use(CHATML)

    def use(self, template):
        write_model(self.folder / "model", template)

    def prepare(self, rows, *options, model=None):
        """Runs the script on rows (objects, or lines as text); the finished process."""
        source = self.folder / "in.jsonl"
        source.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n"
                                  for row in rows))
        return subprocess.run(
            [sys.executable, SCRIPT, model or self.folder / "model", source, self.output, *options],
            capture_output=True, text=True, env={**os.environ, "NO_COLOR": "1"})

    def samples(self, rows, *options):
        """The output as text: words, those that are trained in brackets."""
        done = self.prepare(rows, *options)
        self.assertEqual(done.returncode, 0, done.stderr)
        told = []
        for line in self.output.read_text().splitlines():
            sample = json.loads(line)
            self.assertEqual(len(sample["input_ids"]), len(sample["labels"]))
            for token, label in zip(sample["input_ids"], sample["labels"]):
                self.assertIn(label, (-100, token))
            told.append(" ".join(
                WORDS[token] if label == -100 else f"[{WORDS[token]}]"
                for token, label in zip(sample["input_ids"], sample["labels"])))
        return told

    def refused(self, rows, *options, code=4):
        """What it said when it refused; nothing may be left behind."""
        done = self.prepare(rows, *options)
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertFalse(self.output.exists())
        self.assertEqual(list(self.folder.glob("out/.*")), [])
        return done.stderr

    def test_every_assistant_turn_and_its_end_are_trained(self):
        expected = ["<user> hi <end> <assistant> [hello] [you] [<end>] <user> what is up <end> "
                    "<assistant> [a] [b] [c] [<end>]"]
        self.assertEqual(self.samples([{"messages": TALK}]), expected)
        self.use(GENERATION)  # the block ends before <end>, which must be trained all the same
        self.assertEqual(self.samples([{"messages": TALK}]), expected)

    def test_last_turn_only(self):
        expected = ["<user> hi <end> <assistant> hello you <end> <user> what is up <end> "
                    "<assistant> [a] [b] [c] [<end>]"]
        for template in (CHATML, GENERATION):
            self.use(template)
            self.assertEqual(self.samples([{"messages": TALK}], "--last-turn-only"), expected)

    def test_a_template_that_rewrites_earlier_turns_is_refused_with_the_way_out(self):
        self.use(REWRITES)
        said = self.refused([{"messages": TALK[:2]}, {"messages": TALK}])
        self.assertIn("in.jsonl:2:", said)
        self.assertIn("--last-turn-only", said)
        self.assertEqual(
            self.samples([{"messages": TALK}], "--last-turn-only"),
            ["<user> hi <end> <assistant> hello you <end> <user> what is up <end> <assistant> "
             "[thought] [a] [b] [c] [<end>]"])

    def test_prompt_and_completion(self):
        self.assertEqual(self.samples([{"prompt": "what is up", "completion": " not much"}]),
                         ["<s> what is up [<unk>] [much] [<end>]"])
        self.assertEqual(
            self.samples([{"prompt": TALK[:3], "completion": TALK[3:]}]),
            ["<user> hi <end> <assistant> hello you <end> <user> what is up <end> "
             "<assistant> [a] [b] [c] [<end>]"])

    def test_marks_of_earlier_answers_are_no_tokens_of_a_prompt(self):
        # With spaces inside, each mark would be a token of its own here.
        self.use(GENERATION.replace("{{ m['content'] }}{% endgen", "{{ ' ' + m['content'] + ' ' }}"
                                    "{% endgen"))
        prompt = [{**TALK[0], "name": None}, *TALK[1:3]]
        self.assertEqual(
            self.samples([{"prompt": prompt, "completion": TALK[3:]}]),
            ["<user> hi <end> <assistant> hello you <end> <user> what is up <end> "
             "<assistant> [a] [b] [c] [<end>]"])

    def test_chats_with_tools_take_the_template_for_them(self):
        with_tools = "{% for tool in tools %}{{ tool['name'] + ' ' }}{% endfor %}" + CHATML
        rows = [{"messages": TALK[:2]}, {"messages": TALK[:2], "tools": [{"name": "nice"}]}]
        plain = "<user> hi <end> <assistant> [hello] [you] [<end>]"
        self.assertEqual(self.samples(rows), [plain, plain])  # where there is but one
        self.use([{"name": "default", "template": CHATML},
                  {"name": "tool_use", "template": with_tools}])
        self.assertEqual(self.samples(rows), [plain, "nice " + plain])
        self.use(CHATML)
        others = self.folder / "model" / "additional_chat_templates"
        others.mkdir()
        (others / "tool_use.jinja").write_text(with_tools)
        self.assertEqual(self.samples(rows), [plain, "nice " + plain])

    def test_text_is_trained_whole_and_split_not_lost(self):
        self.assertEqual(self.samples([{"text": "a b c d"}]), ["[<s>] [a] [b] [c] [d] [<end>]"])
        self.assertEqual(self.samples([{"text": "a b c d"}], "--max-length", "4"),
                         ["[<s>] [a] [b] [c]", "[d] [<end>]"])

    def test_tokens_pass_through(self):
        row = {"input_ids": [6, 7, 8, 0], "labels": [-100, 7, -100, -100],
               "attention_mask": [1, 1, 1, 0]}
        self.assertEqual(self.samples([row]), ["be [nice] hi"])
        self.assertEqual(self.samples([{"input_ids": [6, 7]}]), ["[be] [nice]"])

    def test_too_long_is_cut_then_dropped_and_counted(self):
        rows = [{"messages": TALK[:2]}, {"prompt": "a b c d e", "completion": "hi"}]
        done = self.prepare(rows, "--max-length", "5")
        self.assertIn("1 cut to 5 tokens; 1 dropped", done.stderr)
        self.assertEqual(self.samples(rows, "--max-length", "5"),
                         ["<user> hi <end> <assistant> [hello]"])
        self.output.unlink()
        self.assertIn("all 1 samples lost", self.refused(rows[1:], "--max-length", "5"))

    def test_bad_lines_are_named(self):
        good = {"text": "a b"}
        for bad, words in (
                ("{", "not valid JSON"), ("[1]", "must be a JSON object"),
                ({"txt": "a"}, "keys txt fit no kind"),
                ({"messages": TALK[:1]}, "no turn of this chat is the assistant's"),
                ({"messages": []}, "at least one"),
                ({"messages": [{"role": "assistant"}]}, "message 0 (assistant) has no `content`"),
                ({"text": 5}, "`text` must be a string"),
                ({"input_ids": [1, 99]}, "token id 99 is outside the model's vocabulary of 24"),
                ({"input_ids": [1, 2], "labels": [-100]}, "`labels` has 1 entries, `input_ids` 2"),
                ({"input_ids": [1, 2], "labels": [2, 3]}, "labels are not shifted"),
                ({"input_ids": [1, 2], "labels": [1, -100]}, "no token of this sample is trained"),
                ({"input_ids": [1, 2], "attention_mask": [0, 1]}, "padding inside a sample"),
                ({"prompt": "a", "completion": [1]}, "two strings or two lists of messages")):
            with self.subTest(bad=bad):
                said = self.refused([good, bad])
                self.assertIn("in.jsonl:2:", said)
                self.assertIn(words, said)

    def test_empty_input_is_refused(self):
        self.assertIn("holds no sample", self.refused([""]))

    def test_a_refused_run_keeps_the_output_of_an_earlier_one(self):
        self.samples([{"text": "a b"}])
        before = self.output.read_text()
        self.assertEqual(self.prepare([{"text": "c"}, {"text": 5}]).returncode, 4)
        self.assertEqual(self.output.read_text(), before)

    def test_a_model_without_template_or_tokenizer_is_refused(self):
        self.use(None)
        self.assertIn("has no chat template", self.refused([{"messages": TALK}]))
        done = self.prepare([{"text": "a"}], model=self.folder / "absent")
        self.assertEqual(done.returncode, 4)
        self.assertIn("is not a folder", done.stderr)

    def test_a_hub_cache_folder_is_followed_to_its_snapshot(self):
        cache = self.folder / "models--org--name"
        write_model(cache / "snapshots" / "abc", CHATML)
        (cache / "refs").mkdir()
        (cache / "refs" / "main").write_text("abc\n")
        self.assertEqual(self.prepare([{"text": "a b"}], model=cache).returncode, 0)

    def test_show_marks_trained_tokens(self):
        done = self.prepare([{"messages": TALK[:2]}], "--show", "1")
        self.assertIn("<user>hi<end><assistant>[hello][you][<end>]", done.stdout.replace(" ", ""))

    @unittest.skipUnless((SMOLLM2 / "tokenizer.json").is_file(), "models/ holds no SmolLM2")
    def test_equals_transformers_on_a_real_model(self):
        try:
            import transformers
        except ImportError:
            self.skipTest("transformers is not installed")
        tokenizer = transformers.AutoTokenizer.from_pretrained(SMOLLM2)
        chats = [TALK, [{"role": "system", "content": "Be terse."}, *TALK],
                 [{"role": "user", "content": "2 + 2 = ?\n\n  \u00e9\u4f60\U0001f600"},
                  {"role": "assistant", "content": ""}]]
        done = self.prepare([{"messages": chat} for chat in chats], model=SMOLLM2)
        self.assertEqual(done.returncode, 0, done.stderr)
        written = [json.loads(line) for line in self.output.read_text().splitlines()]
        for chat, sample in zip(chats, written, strict=True):
            ids = tokenizer.apply_chat_template(chat, tokenize=True, return_dict=False)
            self.assertEqual(sample["input_ids"], ids)
            trained = [token for token, label in zip(ids, sample["labels"]) if label != -100]
            answers = [turn["content"] + "<|im_end|>" for turn in chat
                       if turn["role"] == "assistant"]
            self.assertEqual(tokenizer.decode(trained), "".join(answers))


if __name__ == "__main__":
    unittest.main()
