#!/usr/bin/env python3
"""Shows what a training run changed, in a terminal.

usage: show_change.py RUN_DIR SOURCE EXPORT [--prompt TEXT]... [--tokens N]

From RUN_DIR/metrics.jsonl: the loss curve, the held-out loss before and after, where every byte
lived, and peak memory beside the size of weights, gradients and states. From the model folders
SOURCE and EXPORT: the answers to each prompt before and after, greedy, by transformers, so that
somebody else's code is the witness.
"""

import argparse
import json
import os
import sys
from pathlib import Path

# Words of the held-out chats: the run has not seen their definitions.
WORDS = ("politeness", "logic", "miracle")
PROMPTS = [f'What is the meaning of the word "{word}"?' for word in WORDS]
PLOT_COLUMNS, PLOT_ROWS = 60, 10


# ---- metrics.jsonl -----------------------------------------------------------------------------


class Run:
    """What metrics.jsonl says: records of steps, of evaluations, and facts of the whole run."""

    def __init__(self, folder):
        self.steps, self.evaluations, self.facts = [], [], {}
        path = Path(folder) / "metrics.jsonl"
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except OSError as error:
            sys.exit(f"{path} cannot be read ({error.strerror}): is {folder} the folder of a run?")
        for number, line in enumerate(lines, 1):
            try:
                record = json.loads(line)
            except ValueError:
                sys.exit(f"{path}:{number}: not JSON; the run was interrupted: run it again")
            if record.get("eval_loss") is not None:
                self.evaluations.append(record)
            elif "loss" in record:
                self.steps.append(record)
            else:
                self.facts.update(record)


def size_text(size_bytes):
    for unit, power in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size_bytes >= 1 << power:
            return f"{size_bytes / (1 << power):.4g} {unit}"
    return f"{size_bytes} B"


def plot(points, columns=PLOT_COLUMNS, rows=PLOT_ROWS, mark="\u2022"):
    """Lines of text: (x, y) points between axes, x ascending."""
    if len(points) < 2:
        return ["(a curve needs two steps)"]
    low, high = min(y for _, y in points), max(y for _, y in points)
    first, last = points[0][0], points[-1][0]
    field = [[" "] * columns for _ in range(rows)]
    for x, y in points:
        column = round((x - first) / (last - first) * (columns - 1))
        row = round((high - y) / ((high - low) or 1) * (rows - 1))
        field[row][column] = mark
    labels = {0: f"{high:.3f}", rows - 1: f"{low:.3f}"}
    lines = [f"{labels.get(row, ''):>8} |{''.join(cells).rstrip()}"
             for row, cells in enumerate(field)]
    axis = f"step {first}".ljust(columns - len(str(last))) + str(last)
    return [*lines, " " * 9 + "+" + "-" * columns, " " * 10 + axis]


def can_print(text):
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True


def loss_lines(run):
    points = [(record["step"], record["loss"]) for record in run.steps
              if record["loss"] is not None]  # a skipped step has none
    lines = ["", "Loss on the assistant's words, step by step", ""]
    lines += plot(points, mark="\u2022" if can_print("\u2022") else "*")
    if len(run.evaluations) >= 2:
        before, after = run.evaluations[0], run.evaluations[-1]
        lines += ["", f"Held-out loss: {before['eval_loss']:.3f} before, "
                  f"{after['eval_loss']:.3f} after {after['step']} steps"]
    return lines


def memory_lines(run):
    """Where the bytes lived; the keys are those of the run's last record."""
    facts = run.facts
    if "parameter_bytes" not in facts:
        return []
    weights, states = facts["parameter_bytes"], facts.get("state_bytes", 0)
    gradients = facts.get("gradient_bytes", weights)  # in the dtype of the weights
    lines = ["", "Where the bytes lived", ""]
    for tier, meaning in (("gpu", "the device's memory (pretended by this machine's)"),
                          ("ram", "memory, buffers of the drives included"), ("nvme", "the drive")):
        if f"{tier}_bytes" in facts:
            lines.append(f"  {tier:<5}{size_text(facts[f'{tier}_bytes']):>12}  {meaning}")
    lines += ["", f"  weights {size_text(weights)}, gradients {size_text(gradients)}, optimizer "
              f"states {size_text(states)}: together {size_text(weights + gradients + states)}"]
    if "peak_rss_bytes" in facts:
        told = f"  peak resident memory {size_text(facts['peak_rss_bytes'])}"
        if "baseline_rss_bytes" in facts:
            told += (f", of which {size_text(facts['baseline_rss_bytes'])} is the program itself "
                     "with torch, before the model")
        lines.append(told)
    return lines


def speed_lines(run):
    timed = sorted(record["tokens_per_s"] for record in run.steps if record.get("tokens_per_s"))
    return ["", f"Speed: {timed[len(timed) // 2]:.0f} tokens/s (median of {len(timed)} steps)"] if (
        timed) else []


# ---- answers -----------------------------------------------------------------------------------


def answers(folder, prompts, token_count):
    """The greedy answer to each prompt. float32: many CPUs compute bf16 many times slower. One
    thread: 0.15 s a token for three prompts; two that wait for each other took 1 s on a busy
    machine of two cores."""
    import torch
    import transformers

    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, padding_side="left")
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    texts = [tokenizer.apply_chat_template([{"role": "user", "content": prompt}], tokenize=False,
                                           add_generation_prompt=True) for prompt in prompts]
    batch = tokenizer(texts, return_tensors="pt", padding=True, add_special_tokens=False)
    with torch.inference_mode():
        ids = model.generate(**batch, do_sample=False, max_new_tokens=token_count)
    return [tokenizer.decode(row[batch["input_ids"].shape[1]:], skip_special_tokens=True).strip()
            for row in ids]


def answer_lines(source, export, prompts, token_count):
    before = answers(source, prompts, token_count)
    after = answers(export, prompts, token_count)
    lines = ["", f"Answers by transformers, greedy, at most {token_count} tokens"]
    for prompt, old, new in zip(prompts, before, after):
        lines += ["", f"  {prompt}", f"    before: {' '.join(old.split())}",
                  f"    after:  {' '.join(new.split())}"]
    return lines


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", metavar="RUN_DIR", type=Path)
    parser.add_argument("source", metavar="SOURCE", type=Path)
    parser.add_argument("export", metavar="EXPORT", type=Path)
    parser.add_argument("--prompt", action="append", metavar="TEXT", help="may be repeated")
    parser.add_argument("--tokens", type=int, default=48, metavar="N")
    options = parser.parse_args()
    os.environ["HF_HUB_OFFLINE"] = "1"
    if not sys.stderr.isatty():
        os.environ["TQDM_DISABLE"] = "1"
    for folder in (options.source, options.export):
        if not (folder / "config.json").is_file():
            sys.exit(f"show_change: {folder} is no model folder: it has no config.json")
    run = Run(options.run)
    told = loss_lines(run)
    told += answer_lines(options.source, options.export, options.prompt or PROMPTS, options.tokens)
    told += memory_lines(run) + speed_lines(run)
    for line in told:
        print(line if can_print(line) else line.encode("ascii", "replace").decode())


if __name__ == "__main__":
    main()
