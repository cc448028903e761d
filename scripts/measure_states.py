#!/usr/bin/env python3
"""Shows what optimizer states in bf16 and int8 cost in loss: SmolLM2 on The Devil's Dictionary.

usage: measure_states.py HEADRACE [--steps N] [--every N] [--chats N] [--held-out N]
                         [--formats fp32,bf16,int8] [--json]

One run of each format from the same weights, with the same seed, data and order: all that differs
is how m and v are kept between steps. Everything in memory. The held-out loss, over the trained
tokens of the first --held-out chats, is taken before the first step and after every --every steps.
Prints a Markdown table of it, with the distance to fp32, and the state bytes per parameter.
On two cores the defaults take about five minutes a format.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MODEL = "models/smollm2-135m-instruct"  # scripts/prepare_model.py
TRAIN = "data/devil/train.jsonl"  # scripts/prepare_devil.py
HELD_OUT = "data/devil/held_out.jsonl"
SETTINGS = ["dtype=bf16", "max_length=128", "gradient_accumulation_steps=1", "learning_rate=5e-5",
            "lr_scheduler_type=constant", "warmup_ratio=0", "max_grad_norm=1.0", "seed=42",
            "parameters=gpu", "optimizer=ram", "gpu_budget=6GiB", "ram_budget=6GiB"]


def train(headrace, folder, held_out, states, arguments):
    """The held-out losses by step, and the last record of the run's metrics."""
    output = folder / states
    subprocess.run(
        [headrace, "train", MODEL, TRAIN, f"eval_data={held_out}", f"output_dir={output}",
         f"optimizer_states={states}", f"max_steps={arguments.steps}",
         f"eval_steps={arguments.every}", f"per_device_train_batch_size={arguments.chats}",
         "per_device_eval_batch_size=4", *SETTINGS],
        check=True, cwd=ROOT, stdout=sys.stderr)
    lines = (output / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    losses = {r["step"]: r["eval_loss"] for r in records if "eval_loss" in r}
    return losses, records[-1]


def table(losses, ends):
    """Markdown; the first format is the one that the others are compared with."""
    formats = list(losses)
    first, others = formats[0], formats[1:]
    head = ["step", *formats, *(f"{name} - {first}" for name in others)]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for step in losses[first]:
        row = [str(step), *(f"{losses[name][step]:.4f}" for name in formats),
               *(f"{losses[name][step] - losses[first][step]:+.4f}" for name in others)]
        lines.append("| " + " | ".join(row) + " |")
    bytes_each = [f"{ends[name]['state_bytes'] / ends[name]['parameter_count']:.3f}"
                  for name in formats]
    lines.append("")
    lines.append("Bytes of state per parameter beside the weight's two: "
                 + ", ".join(f"{name} {size}" for name, size in zip(formats, bytes_each)) + ".")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("headrace", type=Path)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--every", type=int, default=20)
    parser.add_argument("--chats", type=int, default=2, help="of a step")
    parser.add_argument("--held-out", type=int, default=24, help="chats")
    parser.add_argument("--formats", default="fp32,bf16,int8")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    losses, ends = {}, {}
    (ROOT / "runs").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="states-", dir=ROOT / "runs") as temporary:
        folder = Path(temporary)
        held_out = folder / "held_out.jsonl"
        chats = (ROOT / HELD_OUT).read_text(encoding="utf-8").splitlines(keepends=True)
        held_out.write_text("".join(chats[:arguments.held_out]), encoding="utf-8")
        for states in arguments.formats.split(","):
            losses[states], ends[states] = train(str(arguments.headrace.resolve()), folder,
                                                 held_out, states, arguments)
    if arguments.json:
        print(json.dumps({"losses": losses, "ends": ends}, indent=1))
    else:
        print(table(losses, ends))


if __name__ == "__main__":
    sys.exit(main())
