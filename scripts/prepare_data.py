#!/usr/bin/env python3
"""Turns text into what the engine trains on: token ids, and which of them are trained.

usage: prepare_data.py MODEL_DIR INPUT.jsonl OUTPUT.jsonl [--max-length N] [--last-turn-only]
                       [--show N]

Each line of INPUT is one object of one of four kinds:
  {"messages": [{"role", "content"}, ...]}   a chat, rendered by the model's own chat template; what
                                             the assistant said is trained, and its end of turn
  {"prompt", "completion"}                   two strings: the completion and an end of text are
                                             trained; or two lists of messages, joined as a chat
  {"text"}                                   every token is trained, and an end of text; a text that
                                             is longer than N becomes several samples
  {"input_ids", "labels"?, "attention_mask"?}  tokens already; they are checked, not changed

Each line of OUTPUT is {"input_ids": [...], "labels": [...]}: equal lengths, -100 where a token is
not trained, labels not shifted. A chat longer than N tokens is cut at its end; where that leaves no
trained token it is dropped, and counted on stderr. OUTPUT appears complete, by a rename, or not at
all.

How the assistant's tokens are found: by the {% generation %} blocks of the chat template if it has
them; else a turn is what rendering it adds to the rendered turns before it, and that is checked on
the tokens, since some templates render a turn differently once others follow.

Exit codes: 0 done, 2 usage, 4 bad data (the message names file and line), 130 interrupted. Only
`tokenizers` and `jinja2` are imported: no torch, and no transformers where the folder has a
tokenizer.json.
"""

import argparse
import functools
import json
import os
import sys
import tempfile
from datetime import datetime
from pathlib import Path

NOT_TRAINED = -100
EXIT_BAD_DATA = 4
EXIT_INTERRUPTED = 130  # as a shell has it: 128 and the number of SIGINT
KINDS = "messages | prompt + completion | text | input_ids"
# Left around the body of a {% generation %} block: two characters that Unicode never assigns.
GENERATION_BEGIN, GENERATION_END = "\ufdd0", "\ufdd1"


class BadData(Exception):
    """A fault of the input; the text says what is wrong and what would repair it."""


# ---- the model's tokenizer and chat template ---------------------------------------------------


def read_json(path):
    try:
        return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    except ValueError as error:
        raise BadData(f"{path} is not valid JSON ({error}); copy it from its source") from None


def find_model_folder(folder):
    """A model folder is itself; the hub cache keeps the files of one in snapshots/<revision>/."""
    revision = folder / "refs" / "main"
    return folder / "snapshots" / revision.read_text().strip() if revision.is_file() else folder


def load_tokenizer(folder):
    """The folder's `tokenizers` object; transformers converts older kinds of tokenizer files."""
    import tokenizers

    if (folder / "tokenizer.json").is_file():
        tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    else:
        os.environ["HF_HUB_OFFLINE"] = "1"
        import transformers

        try:
            tokenizer = transformers.AutoTokenizer.from_pretrained(folder).backend_tokenizer
        except Exception as error:  # whatever it raises, the folder has no tokenizer for us
            raise BadData(
                f"{folder} has no tokenizer.json, and transformers finds no other tokenizer there "
                f"({error}); give the folder that the model came in") from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def compile_template(source):
    """The chat template as transformers compiles it: the same sandbox, filters and functions."""
    import jinja2
    import jinja2.ext
    import jinja2.sandbox

    class GenerationTag(jinja2.ext.Extension):
        tags = {"generation"}

        def parse(self, parser):
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            begin, end = (jinja2.nodes.Output([jinja2.nodes.TemplateData(mark)]).set_lineno(line)
                          for mark in (GENERATION_BEGIN, GENERATION_END))
            return [begin, *body, end]

    def raise_exception(message):
        raise jinja2.TemplateError(message)

    def to_json(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                          sort_keys=sort_keys)

    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, jinja2.ext.loopcontrols])
    environment.filters["tojson"] = to_json
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return environment.from_string(source)


class Model:
    """What a model folder says about text: tokens, chat template, and where turns and texts end."""

    def __init__(self, folder):
        self.folder = find_model_folder(folder)
        if not self.folder.is_dir():
            raise BadData(f"{folder} is not a folder; MODEL_DIR is a Hugging Face model folder")
        self.tokenizer = load_tokenizer(self.folder)
        self.config = read_json(self.folder / "tokenizer_config.json")
        self.special = self._special_tokens()
        self.end_of_text = self.tokenizer.token_to_id(self.special.get("eos_token", ""))
        self.end_tokens = self._end_tokens()
        self.vocabulary_count = self._vocabulary_count()
        self._templates = {}  # compiled, by name

    def _special_tokens(self):
        named = {**read_json(self.folder / "special_tokens_map.json"), **self.config}
        texts = {name: value.get("content") if isinstance(value, dict) else value
                 for name, value in named.items() if name.endswith("_token")}
        return {name: text for name, text in texts.items() if isinstance(text, str)}

    def _end_tokens(self):
        """Tokens that end a turn: generation stops at them, so a trained turn must teach them."""
        found = {self.end_of_text}
        for name in ("config.json", "generation_config.json"):
            ends = read_json(self.folder / name).get("eos_token_id")
            found.update(ends if isinstance(ends, list) else [ends])
        return found - {None}

    def _vocabulary_count(self):
        config = read_json(self.folder / "config.json")
        count = config.get("vocab_size") or config.get("text_config", {}).get("vocab_size")
        return count or self.tokenizer.get_vocab_size(with_added_tokens=True)

    @functools.cached_property
    def template_sources(self):
        """By name; a model's only one is `default`."""
        file = self.folder / "chat_template.jinja"
        source = file.read_text(encoding="utf-8") if file.is_file() else (
            self.config.get("chat_template"))
        if isinstance(source, list):
            sources = {entry["name"]: entry["template"] for entry in source}
        else:
            sources = {"default": source} if source else {}
        for other in (self.folder / "additional_chat_templates").glob("*.jinja"):
            sources.setdefault(other.stem, other.read_text(encoding="utf-8"))
        return sources

    def template(self, tools):
        """As transformers picks it: chats with tools have one of their own in some models."""
        sources = self.template_sources
        name = "tool_use" if tools is not None and "tool_use" in sources else "default"
        if name not in sources:
            raise BadData(f"{self.folder} has no chat template, which chats need; give a chat "
                          "model, or bring the data as prompt + completion, or as text")
        if name not in self._templates:
            self._templates[name] = compile_template(sources[name])
        return self._templates[name]

    def render(self, messages, tools, add_generation_prompt):
        try:
            return self.template(tools).render(
                messages=messages, tools=tools, documents=None,
                add_generation_prompt=add_generation_prompt, **self.special)
        except BadData:
            raise
        except Exception as error:  # a template is a program, and may raise anything
            raise BadData(f"the chat template refuses this chat: {error}") from error

    def encode(self, text, add_special_tokens=False):
        return self.tokenizer.encode(text, add_special_tokens=add_special_tokens)


# ---- one sample per kind: (input_ids, labels) --------------------------------------------------


def labels_of_spans(ids, spans):
    """Labels that train the tokens [begin, end) of each span and nothing else."""
    labels = [NOT_TRAINED] * len(ids)
    for begin, end in spans:
        labels[begin:end] = ids[begin:end]
    return labels


def split_at_marks(marked):
    """The text without generation marks, and the (begin, end) characters they enclosed."""
    text, spans, begin, length = [], [], None, 0
    for piece in marked.replace(GENERATION_END, GENERATION_BEGIN).split(GENERATION_BEGIN):
        text.append(piece)
        if begin is not None:
            spans.append((length, length + len(piece)))
        begin = length if begin is None else None
        length += len(piece)
    return "".join(text), spans


def sample_of_marked_chat(model, marked, last_turn_only):
    """The template says itself what the assistant generates: {% generation %}."""
    text, character_spans = split_at_marks(marked)
    encoding = model.encode(text)
    spans = []
    for begin, end in character_spans[-1:] if last_turn_only else character_spans:
        tokens = [index for index, (start, stop) in enumerate(encoding.offsets)
                  if start < end and stop > begin]
        if not tokens:
            continue
        after = tokens[-1] + 1
        # Some templates close the block before the end of turn; without it the model never stops.
        if (encoding.ids[tokens[-1]] not in model.end_tokens and after < len(encoding.ids)
                and encoding.ids[after] in model.end_tokens):
            after += 1
        spans.append((tokens[0], after))
    return encoding.ids, labels_of_spans(encoding.ids, spans)


def check_prefix(ids, prefix, turn):
    """Turns are told apart by what each adds to the tokens before it: so those must not change."""
    if ids[:len(prefix)] == prefix:
        return
    at = next((index for index, (left, right) in enumerate(zip(ids, prefix)) if left != right),
              min(len(ids), len(prefix)))
    raise BadData(
        f"the chat template renders the turns up to message {turn} differently once the rest "
        f"follows (from token {at} of {len(ids)} on), so the assistant's tokens cannot be told "
        "apart; likely it rewrites earlier turns (some drop their reasoning): use "
        "--last-turn-only, split the chat into one chat per answer, or put {% generation %} blocks "
        "into the template")


def sample_of_turns(model, messages, tools, last_turn_only):
    """A turn's tokens are those that rendering it adds to the rendered prompt before it."""
    def tokens_of(count, add_generation_prompt):
        text = model.render(messages[:count], tools, add_generation_prompt)
        return model.encode(text).ids

    ids = tokens_of(len(messages), False)
    turns = [index for index, message in enumerate(messages) if message["role"] == "assistant"]
    spans = []
    for turn in turns[-1:] if last_turn_only else turns:
        prompt = tokens_of(turn, True)
        answered = ids if turn + 1 == len(messages) else tokens_of(turn + 1, False)
        check_prefix(answered, prompt, turn)
        check_prefix(ids, answered, turn + 1)
        ends = [index for index in range(len(prompt), len(answered))
                if answered[index] in model.end_tokens]
        # What the template writes after the end of turn (a line feed) is nobody's answer.
        spans.append((len(prompt), ends[-1] + 1 if ends else len(answered)))
    return ids, labels_of_spans(ids, spans)


def check_messages(messages):
    if not isinstance(messages, list) or not messages:
        raise BadData("`messages` must be a list of at least one {role, content}")
    for index, message in enumerate(messages):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise BadData(f"message {index} must be an object with a `role` and a `content`")
        if not isinstance(message.get("content"), (str, list)) and "tool_calls" not in message:
            raise BadData(f"message {index} ({message['role']}) has no `content` text")
    if not any(message["role"] == "assistant" for message in messages):
        roles = ", ".join(sorted({message["role"] for message in messages}))
        raise BadData(f"no turn of this chat is the assistant's (roles: {roles}), so no token of "
                      "it can be trained; name the answering role `assistant`, or remove the line")


def without_nulls(messages):
    """As transformers does: many templates would print a null as the word None."""
    return [{key: value for key, value in message.items() if value is not None}
            for message in messages]


def sample_of_chat(model, messages, tools, last_turn_only):
    check_messages(messages)
    messages = without_nulls(messages)
    marked = model.render(messages, tools, False)
    if GENERATION_BEGIN in marked:
        return sample_of_marked_chat(model, marked, last_turn_only)
    return sample_of_turns(model, messages, tools, last_turn_only)


def with_end_of_text(model, ids):
    if model.end_of_text is None or (ids and ids[-1] == model.end_of_text):
        return ids
    return ids + [model.end_of_text]


def sample_of_completion(model, prompt, completion):
    """Together where that leaves the prompt's tokens alone; else apart, as generation sees it."""
    before = model.encode(prompt, add_special_tokens=True).ids
    if before and before[-1] in model.end_tokens:
        before = before[:-1]  # a tokenizer that ends each text itself
    ids = model.encode(prompt + completion, add_special_tokens=True).ids
    if ids[:len(before)] != before:
        ids = before + model.encode(completion).ids
    ids = with_end_of_text(model, ids)
    return ids, labels_of_spans(ids, [(len(before), len(ids))])


def sample_of_tokens(row):
    ids, labels = row["input_ids"], row.get("labels", row["input_ids"])
    mask = row.get("attention_mask", [1] * len(ids) if isinstance(ids, list) else None)
    for name, values in (("input_ids", ids), ("labels", labels), ("attention_mask", mask)):
        if not isinstance(values, list) or any(type(value) is not int for value in values):
            raise BadData(f"`{name}` must be a list of whole numbers")
        if len(values) != len(ids):
            raise BadData(f"`{name}` has {len(values)} entries, `input_ids` {len(ids)}: these must "
                          "be equal")
    kept = sum(mask)
    if mask != [1] * kept + [0] * (len(mask) - kept):
        raise BadData("`attention_mask` must be ones, then zeros: padding inside a sample would "
                      "train tokens on a gap; remove the padded tokens from the sample")
    for index in range(kept):
        if labels[index] not in (NOT_TRAINED, ids[index]):
            raise BadData(f"label {index} is {labels[index]}, but must be input_ids[{index}] = "
                          f"{ids[index]} or {NOT_TRAINED}: labels are not shifted")
    return ids[:kept], labels[:kept]


def samples_of(model, row, options):
    """The samples of one line, each (input_ids, labels), not yet cut to the maximal length."""
    if not isinstance(row, dict):
        raise BadData(f"a line must be a JSON object of one of the kinds {KINDS}")
    if "input_ids" in row:
        return [sample_of_tokens(row)]
    if "messages" in row:
        return [sample_of_chat(model, row["messages"], row.get("tools"), options.last_turn_only)]
    if "prompt" in row and "completion" in row:
        prompt, completion = row["prompt"], row["completion"]
        if isinstance(prompt, list) and isinstance(completion, list):
            tools = row.get("tools")
            ids, labels = sample_of_chat(model, prompt + completion, tools,
                                         options.last_turn_only)
            before, _ = split_at_marks(model.render(without_nulls(prompt), tools, True))
            start = len(model.encode(before).ids)
            return [(ids, [NOT_TRAINED] * start + labels[start:])]
        if not isinstance(prompt, str) or not isinstance(completion, str):
            raise BadData("`prompt` and `completion` must be two strings or two lists of messages")
        return [sample_of_completion(model, prompt, completion)]
    if "text" in row:
        if not isinstance(row["text"], str):
            raise BadData("`text` must be a string")
        ids = with_end_of_text(model, model.encode(row["text"], add_special_tokens=True).ids)
        step = options.max_length or max(1, len(ids))
        pieces = [ids[begin:begin + step] for begin in range(0, len(ids), step)]
        # A last piece of one token predicts nothing.
        return [(piece, piece) for piece in pieces if len(piece) > 1 or len(pieces) == 1]
    raise BadData(f"keys {', '.join(sorted(row)) or '(none)'} fit no kind of sample; "
                  f"the kinds are {KINDS}")


def trained_count(labels):
    """Targets are the labels one to the right, so the first token of a sample is never one."""
    return sum(label != NOT_TRAINED for label in labels[1:])


# ---- the file ----------------------------------------------------------------------------------


class Counts:
    """What is told at the end."""

    def __init__(self):
        self.samples = self.tokens = self.trained = self.truncated = self.dropped = self.longest = 0

    def text(self, max_length):
        told = (f"{self.samples:,} samples, {self.tokens:,} tokens, {self.trained:,} of them "
                f"trained, longest {self.longest:,}")
        if self.truncated:
            told += f"; {self.truncated:,} cut to {max_length:,} tokens"
        if self.dropped:
            told += f"; {self.dropped:,} dropped: their trained tokens lay beyond {max_length:,}"
        return told


def fit(ids, labels, model, options, counts):
    """Checks a sample and cuts it to the maximal length; None where nothing trained remains."""
    if not trained_count(labels):
        raise BadData("no token of this sample is trained; give it an answer, or remove the line")
    outside = next((token for token in ids if not 0 <= token < model.vocabulary_count), None)
    if outside is not None:
        raise BadData(f"token id {outside} is outside the model's vocabulary of "
                      f"{model.vocabulary_count:,}; likely another model's tokenizer made it")
    if options.max_length and len(ids) > options.max_length:
        ids, labels = ids[:options.max_length], labels[:options.max_length]
        if not trained_count(labels):
            counts.dropped += 1
            return None
        counts.truncated += 1
    counts.samples += 1
    counts.tokens += len(ids)
    counts.trained += trained_count(labels)
    counts.longest = max(counts.longest, len(ids))
    return ids, labels


def prepared_samples(model, options, counts):
    """Yields every sample of the input; a fault names its file and line."""
    with open(options.input, encoding="utf-8") as lines:
        number = 0
        try:
            for number, line in enumerate(lines, 1):
                if not line.strip():
                    continue
                try:
                    row = json.loads(line)
                except ValueError as error:
                    raise BadData(f"not valid JSON ({error}); each line is one object") from None
                for ids, labels in samples_of(model, row, options):
                    sample = fit(ids, labels, model, options, counts)
                    if sample:
                        yield sample
                if number % 5000 == 0 and sys.stderr.isatty():
                    print(f"\r{number:,} lines", end="", file=sys.stderr, flush=True)
        except UnicodeDecodeError as error:
            raise BadData(f"{options.input}:{number + 1}: not UTF-8 ({error}); "
                          "save it as UTF-8") from None
        except BadData as error:
            raise BadData(f"{options.input}:{number}: {error}") from error


def show(model, ids, labels):
    """One sample for people: trained tokens are green, or in brackets without colours."""
    coloured = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    green, grey, end = "\033[32m", "\033[2m", "\033[0m"
    for token, label in zip(ids, labels):
        text = model.tokenizer.decode([token], skip_special_tokens=False)
        trained = label != NOT_TRAINED
        if coloured:
            print(f"{green if trained else grey}{text}{end}", end="")
        else:
            print(f"[{text}]" if trained else text, end="")
    print("\n" + "-" * 40)


def write_samples(samples, model, options):
    """Writes beside OUTPUT under a temporary name, and renames when all is on the disk."""
    folder = options.output.parent
    folder.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=f".{options.output.name}.", dir=folder)
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            for index, (ids, labels) in enumerate(samples):
                if index < options.show:
                    show(model, ids, labels)
                row = {"input_ids": ids, "labels": labels}
                file.write(json.dumps(row, separators=(",", ":")) + "\n")
            file.flush()
            mask = os.umask(0)
            os.umask(mask)
            os.fchmod(file.fileno(), 0o666 & ~mask)
            os.fsync(file.fileno())
        os.replace(name, options.output)
    except BaseException:
        os.unlink(name)
        raise


def parse_options():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", metavar="MODEL_DIR", type=Path)
    parser.add_argument("input", metavar="INPUT.jsonl", type=Path)
    parser.add_argument("output", metavar="OUTPUT.jsonl", type=Path)
    parser.add_argument("--max-length", type=int, metavar="N", help="tokens of the longest sample")
    parser.add_argument("--last-turn-only", action="store_true",
                        help="train the assistant's last turn of each chat only")
    parser.add_argument("--show", type=int, default=0, metavar="N",
                        help="also print the first N samples, trained tokens marked")
    options = parser.parse_args()
    if options.max_length is not None and options.max_length < 2:
        parser.error("--max-length must be at least 2: one token predicts nothing")
    if options.input.resolve() == options.output.resolve():
        parser.error("OUTPUT.jsonl must not be INPUT.jsonl: it would be replaced")
    return options


def main():
    options = parse_options()
    counts = Counts()
    try:
        model = Model(options.model)
        samples = prepared_samples(model, options, counts)
        first = next(samples, None)
        if first is None:
            raise BadData(f"{options.input}: " + (
                f"all {counts.dropped:,} samples lost their trained tokens to --max-length "
                f"{options.max_length}; raise it" if counts.dropped else
                f"holds no sample; each line is one JSON object of the kinds {KINDS}"))

        def all_samples():
            yield first
            yield from samples

        write_samples(all_samples(), model, options)
    except BadData as error:
        print(f"prepare_data: {error}", file=sys.stderr)
        sys.exit(EXIT_BAD_DATA)
    except ImportError as error:
        sys.exit(f"prepare_data: {sys.executable} lacks a package ({error}); "
                 "run scripts/setup, and this script with the environment's python that it names")
    except OSError as error:
        sys.exit(f"prepare_data: {error}")
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    print(f"{options.output}: {counts.text(options.max_length)}", file=sys.stderr)


if __name__ == "__main__":
    main()
