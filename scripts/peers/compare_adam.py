#!/usr/bin/env python3
"""The update of Headrace beside PyTorch's and DeepSpeed's on this machine's CPU, as a table.

usage: compare_adam.py [--parameters 64M] [--threads N]... [--rounds 3] [--json]

Headrace runs as `headrace bench adam`: bf16 gradient to bf16 weight with the states in fp32, bf16
and int8, and plain fp32; beside each the best loop that only moves its bytes. The peers run in one
process of their own (scripts/peers/adam.py says what of them): their bare fp32 kernels, the step
that a mixed-precision run does around it, the same in blocks that stay in cache, and engine.step()
of a real DeepSpeed run with its optimizer on the CPU. Of the blocked ones the best size counts.

Every round runs all of them, every other one backwards; medians are shown. Ratios are medians over
the rounds, each of two measurements of one round. Needs scripts/peers/setup, once, and about 90
bytes of memory per parameter.
"""

import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
from pathlib import Path

from contest import PEERS_VENV, ROOT
from machine import machine_line

PEER = Path(__file__).resolve().parent / "adam.py"
OPTIMIZERS = {"torch": "PyTorch, fused AdamW", "deepspeed": "DeepSpeedCPUAdam"}
BLOCKS = [64, 256, 1024]
UNITS = {"K": 10 ** 3, "M": 10 ** 6, "G": 10 ** 9}
HEADRACE = {  # by name: options of bench adam
    "fp32": ["--states", "fp32"],
    "bf16": ["--states", "bf16"],
    "int8": ["--states", "int8"],
    "plain": ["--states", "fp32", "--weight", "fp32", "--gradient", "fp32"],
}


class Failed(Exception):
    """A contestant that could not run; the text is shown below the table."""


def say(text):
    print(text, file=sys.stderr, flush=True)


def count_of(text):
    factor = UNITS.get(text[-1:], 1)
    return int(float(text.rstrip("KMG")) * factor)


def titles():
    """What the table calls each contestant, in its order."""
    found = {}
    for states in ("fp32", "bf16", "int8"):
        found[f"headrace-{states}"] = f"Headrace, bf16 to bf16, states in {states}"
        found[f"headrace-{states}-alone"] = "the same, the new weight alone (for updating twice)"
        found[f"headrace-{states}-sums"] = "the same, with the page sums of a run that commits"
        found[f"stream-{states}"] = "a loop that only moves its bytes"
    found["headrace-plain"] = "Headrace, fp32 weights, states and gradients"
    found["stream-plain"] = "a loop that only moves its bytes"
    for name, who in OPTIMIZERS.items():
        found[f"{name}-fp32"] = f"{who}, fp32 weights, states and gradients"
        found[f"{name}-mixed"] = f"{who}, bf16 to bf16: convert, norm, update, copy back"
        for block in BLOCKS:
            found[f"{name}-blocked-{block}"] = f"the same, in blocks of {block} Ki parameters"
    found["deepspeed-engine"] = "DeepSpeed, engine.step() of a run (gradients converted before)"
    return found


TITLES = titles()
PEERS = [name for name in TITLES if name.split("-")[0] in OPTIMIZERS]


class Results:
    """Gparam/s by (contestant, threads, round)."""

    def __init__(self, rounds):
        self.rounds = rounds
        self.samples = {}
        self.notes = []

    def add(self, name, threads, turn, rate):
        self.samples[name, threads, turn] = rate

    def note(self, text):
        if text not in self.notes:
            say(text)
            self.notes.append(text)

    def of(self, name, threads):
        rates = [self.samples.get((name, threads, turn)) for turn in range(self.rounds)]
        return [rate for rate in rates if rate]

    def median(self, name, threads):
        rates = self.of(name, threads)
        return statistics.median(rates) if rates else None

    def best(self, names, threads):
        rates = {name: self.median(name, threads) for name in names}
        rates = {name: rate for name, rate in rates.items() if rate}
        return max(rates, key=rates.get) if rates else None

    def ratio(self, ours, theirs, threads):
        """The median over the rounds of one's rate by the other's in the same round."""
        pairs = [(self.samples.get((ours, threads, turn)),
                  self.samples.get((theirs, threads, turn))) for turn in range(self.rounds)]
        ratios = [one / other for one, other in pairs if one and other]
        return statistics.median(ratios) if ratios else None


def run_headrace(name, threads, turn, options, results):
    command = [options.headrace, "bench", "adam", "--json", "--rounds", 1, "--threads", threads,
               "--parameters", options.parameters, "--seconds", options.seconds, *HEADRACE[name]]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          timeout=options.timeout)
    if done.returncode != 0:
        raise Failed(f"headrace: exit code {done.returncode}: {done.stderr.strip()[:200]}")
    rows = {row["name"]: row for row in json.loads(done.stdout)}
    results.add(f"headrace-{name}", threads, turn, rows["update"]["achieved"])
    results.add(f"stream-{name}", threads, turn, rows["update"]["ceiling"])
    if name != "plain":
        results.add(f"headrace-{name}-sums", threads, turn,
                    rows["update and page sums"]["achieved"])
        results.add(f"headrace-{name}-alone", threads, turn,
                    rows["the new weight alone"]["achieved"])


class PeerProcess:
    """scripts/peers/adam.py, asked for one measurement at a time."""

    def __init__(self, threads, options):
        python = PEERS_VENV / "bin" / "python"
        if not (PEERS_VENV / "requirements.sha256").exists():
            raise Failed("the peers are not installed: scripts/peers/setup")
        environment = dict(os.environ, DS_ACCELERATOR="cpu", CUDA_VISIBLE_DEVICES="",
                           TORCH_EXTENSIONS_DIR=str(PEERS_VENV / "extensions"),
                           OMP_NUM_THREADS=str(threads),
                           PATH=f"{PEERS_VENV}/bin:{os.environ['PATH']}")
        self.process = subprocess.Popen(
            [python, PEER, "--parameters", str(options.parameters), "--threads", str(threads),
             "--seconds", str(options.seconds)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            env=environment)

    def measure(self, name):
        with contextlib.suppress(BrokenPipeError):  # it has ended; what it said is read below
            self.process.stdin.write(name + "\n")
            self.process.stdin.flush()
        for line in self.process.stdout:  # DeepSpeed says things of its own
            if line.startswith("{"):
                return json.loads(line)["parameters_per_s"] / 1e9
        raise Failed(f"{name}: the peers' process has ended, exit code {self.process.wait()}")

    def close(self):
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait()


def run_round(turn, threads, peers, options, results):
    def headrace(name):
        return lambda: run_headrace(name, threads, turn, options, results)

    def peer(name):
        return lambda: results.add(name, threads, turn, peers.measure(name))

    contestants = [(f"headrace-{name}", headrace(name)) for name in HEADRACE]
    contestants += [(name, peer(name)) for name in PEERS]
    for name, run in contestants if turn % 2 == 0 else reversed(contestants):
        say(f"round {turn + 1} of {options.rounds}, {threads} threads: {name}")
        try:
            run()
        except Failed as failure:
            results.note(str(failure))
        except subprocess.TimeoutExpired:
            results.note(f"{name}: took more than {options.timeout:g} s")


def run_rounds(options, results):
    for threads in options.threads:
        peers = PeerProcess(threads, options)
        try:
            for turn in range(options.rounds):
                run_round(turn, threads, peers, options, results)
        finally:
            peers.close()


def table(options, results):
    heads = [f"{threads} thread{'s' if threads > 1 else ''}" for threads in options.threads]
    lines = ["| Gparam/s | " + " | ".join(heads) + " |", "|---" * (len(heads) + 1) + "|"]
    for name, title in TITLES.items():
        rates = [results.median(name, threads) for threads in options.threads]
        if any(rates):
            cells = [f"{rate:.3f}" if rate else "" for rate in rates]
            lines.append(f"| {title} | " + " | ".join(cells) + " |")
    return lines


def verdicts(options, results):
    """The ratios that matter, with what is wanted of each."""
    mixed = [f"{name}-mixed" for name in OPTIMIZERS]
    bare = [f"{name}-fp32" for name in OPTIMIZERS]
    blocked = [name for name in PEERS if "-blocked-" in name]
    engine = ["deepspeed-engine"]
    wanted = [("fp32", mixed, "the best peer's mixed step", ">= 2.2"),
              ("bf16", mixed, "the best peer's mixed step", ">= 3"),
              ("int8", mixed, "the best peer's mixed step", ">= 3.5"),
              ("fp32", blocked, "the best of their steps in blocks", "for information"),
              ("fp32", engine, "DeepSpeed's engine.step()", "for information"),
              ("plain", bare, "the best peer's bare kernel", ">= 1.0"),
              ("fp32", ["stream-fp32"], "its stream", ">= 0.95"),
              ("bf16", ["stream-bf16"], "its stream", ">= 0.90"),
              ("int8", ["stream-int8"], "its stream", "for information"),
              ("plain", ["stream-plain"], "its stream", "for information"),
              ("fp32-sums", ["headrace-fp32"], "itself without page sums", "for information")]
    heads = [f"{threads} thread{'s' if threads > 1 else ''}" for threads in options.threads]
    lines = ["| Headrace | by | wanted | " + " | ".join(heads) + " |",
             "|---" * (len(heads) + 3) + "|"]
    for ours, theirs, text, aim in wanted:
        cells = []
        for threads in options.threads:
            other = results.best(theirs, threads)
            ratio = other and results.ratio(f"headrace-{ours}", other, threads)
            cells.append(f"{ratio:.2f}" if ratio else "")
        lines.append(f"| {ours} | {text} | {aim} | " + " | ".join(cells) + " |")
    return lines


def facts(options):
    return [machine_line("scripts/peers/compare_adam.py"),
            f"{options.parameters:,} parameters, medians of {options.rounds} interleaved rounds; "
            f"load {options.load:.1f} before it began."]


def parse_options():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parameters", type=count_of, default=64 * 10 ** 6, metavar="N")
    parser.add_argument("--threads", type=int, action="append", help="default: 1, and one per core")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.2, help="of each measurement, at least")
    parser.add_argument("--timeout", type=float, default=300, metavar="S")
    parser.add_argument("--headrace", type=Path, default=ROOT / "build" / "release" / "headrace")
    parser.add_argument("--json", action="store_true", help="print one JSON list instead")
    options = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    options.threads = options.threads or sorted({1, cores})
    options.load = os.getloadavg()[0]
    if min(options.parameters, options.rounds, *options.threads) < 1:
        parser.error("parameters, rounds and threads must be positive")
    if not options.headrace.is_file():
        parser.error(f"{options.headrace} is not built: scripts/build")
    return options


def main():
    options = parse_options()
    if options.load > len(os.sched_getaffinity(0)) / 4:
        say(f"this machine is busy (load {options.load:.1f}): the numbers will be low, not fair")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    results = Results(options.rounds)
    try:
        run_rounds(options, results)
    except Failed as failure:
        sys.exit(f"compare_adam.py: {failure}")
    if options.json:
        print(json.dumps([{"name": name, "threads": threads, "round": turn + 1,
                           "gparam_per_s": rate}
                          for (name, threads, turn), rate in results.samples.items()], indent=1))
        return
    lines = facts(options) + [""] + table(options, results) + [""] + verdicts(options, results)
    lines += [""] + [f"- {note}" for note in results.notes] if results.notes else []
    print("\n".join(lines))


if __name__ == "__main__":
    main()
