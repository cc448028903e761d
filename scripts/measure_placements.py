#!/usr/bin/env python3
"""Step time and memory over the share of weights and states that lives in ram, and over the share
of the updates that are computed twice.

usage: measure_placements.py HEADRACE MODEL --nvme FOLDER [--layers N] [--steps N] [--rounds N]
                             [--ram 0,10,...] [--twice auto,0,0.5] [--emulate MACHINE]
                             [--json FILE] [key=value ...]

Rehearses N blocks of MODEL (a config.json will do), which is what `train` does with made-up tokens,
for each share of ram (in percent; the rest is on the drive) and each share updated twice (`auto`:
the planner's choice). Rounds are interleaved and change direction. Prints a Markdown table of
medians: seconds a step, tokens a second, that of the first row's, the peak of the process beside
the bytes of its slots, and the step against its longest lane, alone, at the planner's rates.
With --emulate the card is pretended, and the table says so.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path


def homes(percent):
    shares = {"ram": percent, "nvme": 100 - percent}
    return "{" + ", ".join(f"{tier}: {share}%" for tier, share in shares.items() if share) + "}"


def rehearse(options, row, folder):
    percent, twice = row
    settings = [f"offload.nvme_paths=[{options.nvme}]", f"output_dir={folder}/out",
                f"parameters={homes(percent)}", f"optimizer={homes(percent)}", "commit=at_saves",
                *options.settings]
    if twice != "auto":
        settings.append(f"update_twice={twice}")
    if options.emulate:
        settings.append(f"emulate={options.emulate}")
    command = [options.headrace, "rehearse", options.model, "--layers", str(options.layers),
               "--steps", str(options.steps), "--json", *settings]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} left with {done.returncode}:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout)


def longest_lane_s(rehearsal):
    """Reading and writing are one lane: a drive does one or the other."""
    alone = {name: lane["predicted_alone_s"] for name, lane in rehearsal["lanes"].items()}
    drives = alone.pop("nvme_read") + alone.pop("nvme_write")
    return max(drives, *alone.values())


def table(measured):
    lines = ["| ram | updated twice | step s | tokens/s | of the first | peak RSS | its slots | "
             "step / longest lane |", "|---|---|---|---|---|---|---|---|"]
    first = None
    for (percent, twice), found in measured.items():
        step_s = statistics.median(one["step_s"] for one in found)
        first = first or step_s
        needs = found[0]["part"]
        slots = needs["ram_bytes"] + (0 if found[0]["emulated"] else needs["gpu_bytes"])
        peak = max(one["peak_rss_bytes"] for one in found)
        ratio = statistics.median(one["step_s"] / longest_lane_s(one) for one in found)
        lines.append(f"| {percent}% | {twice} | {step_s:.2f} | {found[0]['tokens'] / step_s:.1f} | "
                     f"{first / step_s:.2f} | {peak / 1e9:.2f} GB | {slots / 1e9:.2f} GB | "
                     f"{ratio:.2f} |")
    return "\n".join(lines)


def parse(arguments):
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("headrace")
    parser.add_argument("model")
    parser.add_argument("settings", nargs="*")
    parser.add_argument("--nvme", required=True)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ram", default="0,10,20,30,40,50,60,70,80,90,100")
    parser.add_argument("--twice", default="auto")
    parser.add_argument("--emulate", default="")
    parser.add_argument("--json", default="")
    return parser.parse_intermixed_args(arguments)


def main(arguments):
    options = parse(arguments)
    rows = [(int(percent), twice) for percent in options.ram.split(",")
            for twice in options.twice.split(",")]
    measured = {row: [] for row in rows}
    with tempfile.TemporaryDirectory() as folder:
        for round_number in range(options.rounds):
            for row in rows if round_number % 2 == 0 else reversed(rows):
                measured[row].append(rehearse(options, row, folder))
                print(f"round {round_number + 1}, {row[0]}% in ram, {row[1]} updated twice: "
                      f"{measured[row][-1]['step_s']:.2f} s", file=sys.stderr)
    if options.json:
        kept = [{"ram_percent": row[0], "twice": row[1], "rehearsals": found}
                for row, found in measured.items()]
        Path(options.json).write_text(json.dumps(kept, indent=2) + "\n", encoding="utf-8")
    emulated = measured[rows[0]][0]["emulated"]
    print(f"{f'EMULATED {emulated}: ' if emulated else ''}{Path(options.model).stem}, "
          f"{options.layers} blocks, {options.rounds} interleaved rounds of {options.steps} steps"
          f"\n\n{table(measured)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
