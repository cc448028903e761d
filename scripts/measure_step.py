#!/usr/bin/env python3
"""How near a step comes to its longest lane, and what overlapping and the order of passes bring.

usage: measure_step.py HEADRACE MODEL --nvme FOLDER [--emulate MACHINE] [--layers N] [--steps N]
                       [--rounds N] [--batches ROWSxMICRO_BATCHES,...] [--json FILE] [key=value ...]

Rehearses a part of MODEL (a config.json will do) for each batch, in four ways: as the planner says;
no update computed twice; one op at a time (overlap=false); and the classic order (one micro-batch
a pass, one layer in flight, no update twice). Rounds are interleaved. Before each rehearsal `bench
nvme` and `bench adam` tell what the drives and the update can do then. The longest lane is

    max(FLOP / the card's rate, bytes / the link's rate each way,
        read bytes / read rate + written bytes / write rate, parameters / update rate)

With --emulate the card is pretended, and the table says so: it is no measurement of that card, and
stands beside no other trainer's.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

WAYS = {"as planned": [],
        "no update twice": ["update_twice=0"],
        "one op at a time": ["overlap=false"],
        "classic order": ["micro_batches_per_pass=1", "layers_in_flight=1", "update_twice=0"]}
LANES = ("gpu", "h2d", "d2h", "drives", "update")


def run(command):
    """The JSON that the command prints, or None, with its last words on stderr."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return json.loads(done.stdout)
    print(f"{' '.join(command)} left with {done.returncode}:\n{done.stderr[-2000:]}",
          file=sys.stderr)
    return None


def rates(options, threads):
    """Of the drives and of the update, now."""
    drives = run([options.headrace, "bench", "nvme", "--path", options.nvme, "--pattern",
                  "read,write", "--rounds", "1", "--json"])
    adam = run([options.headrace, "bench", "adam", "--parameters", "64M", "--states", "fp32",
                "--threads", str(threads), "--rounds", "1", "--json"])
    if drives is None or adam is None:
        return None
    # Buffers as a step has them: a few that are used again at once flatter the drive.
    best = {pattern: max(row["achieved"] for row in drives
                         if row["name"].startswith(pattern) and "pool" in row["name"])
            for pattern in ("read", "write")}
    update = next(row["achieved"] for row in adam if row["name"] == "update and page sums")
    return {"read": best["read"] * 1e9, "write": best["write"] * 1e9, "update": update * 1e9}


def lanes_of(rehearsal, rate):
    """Seconds that each lane needs for a step of the part, at these rates."""
    part = rehearsal["part"]
    seconds = {lane: rehearsal["lanes"][lane]["foretold_alone_s"] for lane in LANES[:3]}
    seconds["drives"] = (part["read_bytes"] / rate["read"] +
                         part["written_bytes"] / rate["write"])
    seconds["update"] = part["updated_parameters"] / rate["update"]
    return seconds


def measure(options, batch, way, folder):
    threads = next((int(one.split("=")[1]) for one in options.settings
                    if one.split("=")[0].endswith("update_threads")), 1)
    rate = rates(options, threads)
    if rate is None:
        return None
    rows, micro_batches = batch.split("x")
    settings = [f"offload.nvme_paths=[{options.nvme}]", f"output_dir={folder}/out",
                f"per_device_train_batch_size={rows}",
                f"gradient_accumulation_steps={micro_batches}", *options.settings, *WAYS[way]]
    if options.emulate:
        settings.append(f"emulate={options.emulate}")
    rehearsal = run([options.headrace, "rehearse", options.model, "--layers", str(options.layers),
                     "--steps", str(options.steps), "--json", *settings])
    if rehearsal is None:
        return None
    seconds = lanes_of(rehearsal, rate)
    longest = max(seconds, key=seconds.get)
    return {"batch": batch, "way": way, "tokens": rehearsal["tokens"],
            "step_s": rehearsal["step_s"], "longest": longest, "lane_s": seconds[longest],
            "ratio": rehearsal["step_s"] / seconds[longest], "rates": rate, "lanes_s": seconds,
            "peak_rss_bytes": rehearsal["peak_rss_bytes"], "emulated": rehearsal["emulated"]}


def table(measured):
    """Medians over the rounds; a row that failed in every round is said to have."""
    lines = ["| tokens a step | way | step s | longest lane s | ratio | of one op at a time | "
             "of the classic order |", "|---|---|---|---|---|---|---|"]
    batches = dict.fromkeys(one["batch"] for one in measured)
    for batch in batches:
        rows = {way: [one for one in measured if one["batch"] == batch and one["way"] == way]
                for way in WAYS}
        median = {way: statistics.median(one["step_s"] for one in found)
                  for way, found in rows.items() if found}
        for way, found in rows.items():
            if not found:
                lines.append(f"| {batch} | {way} | failed | | | | |")
                continue
            against = [f"{median[way] / median[other]:.2f}" if other in median else ""
                       for other in ("one op at a time", "classic order")]
            lines.append(f"| {found[0]['tokens']} | {way} | {median[way]:.2f} | "
                         f"{found[0]['longest']} "
                         f"{statistics.median(one['lane_s'] for one in found):.2f} | "
                         f"{statistics.median(one['ratio'] for one in found):.2f} | "
                         f"{against[0]} | {against[1]} |")
    return "\n".join(lines)


def title(options, measured):
    names = {one["emulated"] for one in measured if one["emulated"]}
    mark = f"EMULATED {', '.join(sorted(names))}: " if names else ""
    return (f"{mark}{Path(options.model).stem}, {options.layers} blocks at full width, "
            f"{options.rounds} interleaved rounds of {options.steps} steps")


def parse(arguments):
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("headrace")
    parser.add_argument("model")
    parser.add_argument("settings", nargs="*")
    parser.add_argument("--nvme", required=True)
    parser.add_argument("--emulate", default="")
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batches", default="1x8,4x32")
    parser.add_argument("--json", default="")
    return parser.parse_intermixed_args(arguments)


def main(arguments):
    options = parse(arguments)
    measured = []
    with tempfile.TemporaryDirectory() as folder:
        for round_number in range(options.rounds):
            for batch in options.batches.split(","):
                for way in WAYS:
                    one = measure(options, batch, way, folder)
                    print(f"round {round_number + 1}, {batch}, {way}: "
                          f"{'failed' if one is None else format(one['step_s'], '.2f') + ' s'}",
                          file=sys.stderr)
                    if one is not None:
                        measured.append(one)
    if options.json:
        Path(options.json).write_text(json.dumps(measured, indent=2) + "\n", encoding="utf-8")
    if not measured:
        return 1
    print(title(options, measured) + "\n\n" + table(measured))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
