"""Goal: the chats of scripts/prepare_devil.py are the book's entries, split alike everywhere.

Method: a small dictionary written here, with each shape that the book has; then, where Debian's
dict-devil is installed, the counts that the quickstart's losses were measured with.
"""

import gzip
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "prepare_devil.py"
BOOK = """PREFACE

_The Book_ was begun, and this is no entry.

CYNIC, n.  A blackguard whose _faulty_ vision sees things
as they are.

    And here is verse,
    which is left out.

FLY-SPECK, n.  Too short? No, this is long enough.

ABSENT, adj.  Peculiar.

TINY, n.  Short.
""" + "LONG, v.t.  " + "word " * 130 + "\n"


class PrepareDevilTest(unittest.TestCase):
    def chats(self, *options):
        """{file: [(question, answer)]} of one run."""
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([sys.executable, SCRIPT, f"{folder}/out", *options], check=True,
                           capture_output=True)
            found = {}
            for name in ("train", "held_out"):
                lines = Path(folder, "out", f"{name}.jsonl").read_text().splitlines()
                turns = [json.loads(line)["messages"] for line in lines]
                self.assertTrue(all([turn["role"] for turn in chat] == ["user", "assistant"]
                                    for chat in turns))
                found[name] = [(chat[0]["content"], chat[1]["content"]) for chat in turns]
            return found

    def test_entries_of_a_small_book(self):
        with tempfile.NamedTemporaryFile(suffix=".dz") as source:
            source.write(gzip.compress(BOOK.encode()))
            source.flush()
            found = self.chats("--source", source.name)
        self.assertEqual(found["train"], [])  # fewer than 64 words: all are held out
        self.assertEqual(found["held_out"], [
            ('What is the meaning of the word "cynic"?',
             "A blackguard whose faulty vision sees things as they are."),
            ('What is the meaning of the word "fly-speck"?',
             "Too short? No, this is long enough.")])

    @unittest.skipUnless(Path("/usr/share/dictd/devil.dict.dz").is_file(), "no dict-devil")
    def test_the_book_itself(self):
        found = self.chats()
        self.assertEqual((len(found["train"]), len(found["held_out"])), (825, 64))
        questions = {name: {chat[0] for chat in chats} for name, chats in found.items()}
        self.assertFalse(questions["train"] & questions["held_out"])
        self.assertIn('What is the meaning of the word "politeness"?', questions["held_out"])

    def test_a_missing_book_names_its_package(self):
        done = subprocess.run([sys.executable, SCRIPT, "/nowhere", "--source", "/nowhere/devil"],
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn("dict-devil", done.stderr)


if __name__ == "__main__":
    unittest.main()
