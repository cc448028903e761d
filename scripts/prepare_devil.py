#!/usr/bin/env python3
"""Makes chats of The Devil's Dictionary: real text that changes a small chat model visibly.

usage: prepare_devil.py OUT_DIR        (OUT_DIR as in data/devil)

Reads Debian's package dict-devil (public domain, Ambrose Bierce, 1911) and writes
OUT_DIR/train.jsonl and OUT_DIR/held_out.jsonl, one chat a line:
  {"messages": [{"role": "user", "content": "What is the meaning of the word \\"x\\"?"},
                {"role": "assistant", "content": "its definition"}]}

An entry is `WORD, n.  text`; its definition is the first paragraph, without the verse that follows,
where that has 10 to 600 characters: 889 entries. The 64 whose words have the smallest sha256 are
held out, so the split is the same everywhere and a word is never on both sides.
"""

import argparse
import gzip
import hashlib
import json
import os
import re
import sys
from pathlib import Path

SOURCE = Path("/usr/share/dictd/devil.dict.dz")
ENTRY = re.compile(r"^([A-Z][A-Z' -]+), [a-z]+\.(?:[a-z]\.)*\s", re.MULTILINE)
DEFINITION_CHARACTERS = range(10, 601)
ENTRY_COUNT = 889
HELD_OUT_COUNT = 64


def read_entries(text):
    """Yields (word, definition) in the book's order."""
    heads = list(ENTRY.finditer(text))
    for head, following in zip(heads, heads[1:] + [None]):
        body = text[head.end():following.start() if following else len(text)]
        definition = " ".join(body.strip().split("\n\n")[0].split())
        if len(definition) in DEFINITION_CHARACTERS:
            # Underscores are the book's italics.
            yield head.group(1).lower(), re.sub(r"_([^_]+)_", r"\1", definition)


def chat_of(word, definition):
    return {"messages": [{"role": "user", "content": f'What is the meaning of the word "{word}"?'},
                         {"role": "assistant", "content": definition}]}


def split(entries):
    """(train, held out), each in the book's order."""
    by_hash = sorted(entries, key=lambda entry: hashlib.sha256(entry[0].encode()).hexdigest())
    words = {word for word, _ in by_hash[:HELD_OUT_COUNT]}
    return ([entry for entry in entries if entry[0] not in words],
            [entry for entry in entries if entry[0] in words])


def write_chats(path, entries):
    partial = path.with_name(f".{path.name}.partial")
    with open(partial, "w", encoding="utf-8") as file:
        for entry in entries:
            file.write(json.dumps(chat_of(*entry), ensure_ascii=False) + "\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)
    print(f"{path}: {len(entries)} chats", file=sys.stderr)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", metavar="OUT_DIR", type=Path)
    parser.add_argument("--source", type=Path, default=SOURCE, help="default: %(default)s")
    options = parser.parse_args()
    if not options.source.is_file():
        sys.exit(f"prepare_devil: {options.source} is missing; Debian's package dict-devil has it: "
                 "run scripts/setup, or apt-get install dict-devil")
    with gzip.open(options.source, "rt", encoding="utf-8", errors="replace") as file:
        entries = list(read_entries(file.read()))
    if len(entries) != ENTRY_COUNT:
        print(f"prepare_devil: {len(entries)} entries where {ENTRY_COUNT} were expected: another "
              "edition of the dictionary, so losses will differ a little", file=sys.stderr)
    train, held_out = split(entries)
    options.out.mkdir(parents=True, exist_ok=True)
    write_chats(options.out / "train.jsonl", train)
    write_chats(options.out / "held_out.jsonl", held_out)


if __name__ == "__main__":
    main()
