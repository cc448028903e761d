#!/usr/bin/env python3
"""The store of Headrace beside fio and DeepSpeed's ds_io on this machine's drive, as a table.

usage: compare_nvme.py --path FOLDER [--size 3GiB] [--depth N]... [--rounds 3] [--only NAME,...]

All move the same: direct I/O in blocks of --block (1 MiB) with --depth of them in flight, over a
file of --size that was written once before; reads, writes, and 16 bytes read for 14 written
together, as a step does. Headrace runs as `headrace bench nvme`: its ring and its threads, on few
buffers that are used again at once (as the peers do) and on a 256 MiB pool that goes round (as a
step does). fio runs with io_uring and libaio, on ordinary memory and on huge pages, which need
root: what is missing of them is reserved for the time of the comparison. ds_io runs with three
settings, its own depth of 32 among them; the best counts.

Rounds are interleaved pattern by pattern, every other one backwards; medians are shown. CPU is user
and system seconds of the process per 10^9 bytes. Needs scripts/peers/setup, once.
"""

import argparse
import contextlib
import dataclasses
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import fio
from contest import PEERS_VENV, ROOT
from machine import machine_line

PATTERNS = ["read", "write", "mixed"]
HUGE_PAGES = Path("/proc/sys/vm/nr_hugepages")
UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
DS_IO = Path(__file__).resolve().parent / "ds_io.py"


class Failed(Exception):
    """A contestant that could not run; the text is shown below the table."""


def say(text):
    print(text, file=sys.stderr, flush=True)


def bytes_of(text):
    for unit, factor in UNITS.items():
        if text.endswith(unit):
            return int(float(text.removesuffix(unit)) * factor)
    return int(text)


@dataclasses.dataclass(frozen=True)
class Row:
    who: str      # as the table names it
    kind: str     # ring, threads, fio, ds_io
    depth: int


class Results:
    """Samples by row and pattern: (GB/s, CPU seconds per GB)."""

    def __init__(self):
        self.samples = {}
        self.notes = []

    def add(self, row, pattern, gb_per_s, cpu):
        self.samples.setdefault(row, {}).setdefault(pattern, []).append((gb_per_s, cpu))

    def add_run(self, row, pattern, run):
        gigabytes = (run["read_bytes"] + run["write_bytes"]) / 1e9
        self.add(row, pattern, gigabytes / run["seconds"], run["cpu_seconds"] / gigabytes)

    def note(self, text):
        if text not in self.notes:
            say(text)
            self.notes.append(text)

    def median(self, row, pattern, field=0):
        samples = self.samples.get(row, {}).get(pattern)
        return statistics.median(sample[field] for sample in samples) if samples else None

    def best(self, kind, pattern):
        """(row, GB/s, CPU) of the fastest row of a kind, or None."""
        rows = [(self.median(row, pattern), row) for row in self.samples if row.kind == kind]
        rows = [(rate, row) for rate, row in rows if rate]
        if not rows:
            return None
        rate, row = max(rows, key=lambda pair: pair[0])
        return row, rate, self.median(row, pattern, 1)


def run_headrace(pattern, depth, options, results):
    command = [options.headrace, "bench", "nvme", "--path", options.folder, "--json", "--rounds", 1,
               "--size", options.size, "--block", options.block, "--depth", depth,
               "--pattern", pattern, "--sustained-bytes", 1]
    # Nothing of a comparison on a busy machine is to be remembered of the drive.
    environment = dict(os.environ, HEADRACE_CACHE=str(options.folder))
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          timeout=options.timeout, env=environment)
    if done.returncode != 0:
        raise Failed(f"headrace: exit code {done.returncode}: {done.stderr.strip()[:200]}")
    for row in json.loads(done.stdout):
        if "buffers" not in row:
            continue  # burst and sustained
        kind = "threads" if row["engine"] == "threads" else "ring"
        buffers = "few buffers" if row["buffers"] == "few" else "256 MiB pool"
        who = f"Headrace, {row['engine']}, {buffers}"
        results.add(Row(who, kind if row["buffers"] == "few" else f"{kind} pool", depth), pattern,
                    row["achieved"], row["cpu_seconds_per_gb"])


def run_fio(pattern, depth, engine, huge, options, results):
    memory = "huge pages" if huge else "ordinary memory"
    wanted = argparse.Namespace(block=options.block, depth=depth, size=options.size,
                                seconds=options.seconds, timeout=options.timeout)
    try:
        run = fio.run(options.file, pattern, engine, huge, wanted)
    except fio.Failed as failure:
        raise Failed(f"fio, {engine}, {memory}: {failure}") from None
    results.add_run(Row(f"fio, {engine}, {memory}", "fio", depth), pattern, run)


def run_ds_io(pattern, depth, parallel, options, results):
    python = PEERS_VENV / "bin" / "python"
    if not python.exists():
        raise Failed("ds_io is not installed: scripts/peers/setup")
    environment = dict(os.environ, DS_ACCELERATOR="cpu", CUDA_VISIBLE_DEVICES="",
                       TORCH_EXTENSIONS_DIR=str(PEERS_VENV / "extensions"),
                       PATH=f"{PEERS_VENV}/bin:{os.environ['PATH']}")
    command = [python, DS_IO, options.file, "--pattern", pattern, "--bytes", options.size,
               "--seconds", options.seconds, "--block", options.block, "--depth", depth,
               "--parallel", parallel]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          timeout=options.timeout, env=environment)
    if done.returncode != 0:
        last = [line for line in done.stderr.splitlines() if line.strip()][-1:]
        raise Failed(f"ds_io: exit code {done.returncode}: {''.join(last)[:200]}")
    run = json.loads(done.stdout.strip().splitlines()[-1])
    who = "DeepSpeed ds_io" + (f", {parallel} threads" if parallel > 1 else "")
    results.add_run(Row(who, "ds_io", depth), pattern, run)


def contestants(options):
    """Functions of (pattern, results) by name, in the order of the table."""
    found = {}
    for depth in options.depth:
        found[f"headrace-d{depth}"] = lambda pattern, results, depth=depth: run_headrace(
            pattern, depth, options, results)
    for engine in ("io_uring", "libaio"):
        for huge in (False, True):
            for depth in options.depth:
                name = f"fio-{engine}{'-huge' if huge else ''}-d{depth}"
                found[name] = lambda pattern, results, one=(depth, engine, huge): run_fio(
                    pattern, *one, options, results)
    for depth, parallel in dict.fromkeys([(32, 1), (32, 2), (max(options.depth), 1)]):
        found[f"ds_io-d{depth}-t{parallel}"] = lambda pattern, results, one=(depth, parallel): (
            run_ds_io(pattern, *one, options, results))
    return found


def run_rounds(options, results):
    everyone = contestants(options)
    for turn in range(options.rounds):
        for pattern in PATTERNS:
            for name in options.only if turn % 2 == 0 else reversed(options.only):
                say(f"round {turn + 1} of {options.rounds}: {pattern}, {name}")
                os.sync()
                try:
                    everyone[name](pattern, results)
                except Failed as failure:
                    results.note(str(failure))
                except subprocess.TimeoutExpired:
                    results.note(f"{name}: took more than {options.timeout:g} s")


@contextlib.contextmanager
def huge_pages(options, results):
    """Enough reserved huge pages for fio's buffers; what there was before is put back."""
    wanted = 2 * max(options.depth) * options.block // (2 << 20) + 16
    before = int(HUGE_PAGES.read_text()) if HUGE_PAGES.exists() else 0
    if before < wanted:
        try:
            HUGE_PAGES.write_text(str(wanted))
        except OSError:
            results.note(f"{before} huge pages are reserved and fio needs {wanted}; as root: "
                         f"echo {wanted} > {HUGE_PAGES}")
    try:
        yield
    finally:
        if before < wanted:
            with contextlib.suppress(OSError):
                HUGE_PAGES.write_text(str(before))


def write_once(options):
    """The peers' file, on space that is reserved; direct, so that none of it lies in memory."""
    descriptor = os.open(options.file, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        os.posix_fallocate(descriptor, 0, options.size)
        block = os.urandom(16 << 20)
        for offset in range(0, options.size, len(block)):
            os.pwrite(descriptor, block[:options.size - offset], offset)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def table(results):
    best = {pattern: results.best("fio", pattern) for pattern in PATTERNS}
    lines = ["| who | depth | read GB/s | write | mixed | of the best fio | CPU s/GB |",
             "|---|---|---|---|---|---|---|"]
    for row in results.samples:
        rates = [results.median(row, pattern) for pattern in PATTERNS]
        ratios = [f"{rate / best[pattern][1]:.2f}" if rate and best[pattern] else "-"
                  for rate, pattern in zip(rates, PATTERNS)]
        cpu = [results.median(row, pattern, 1) for pattern in PATTERNS]
        cells = [row.who, str(row.depth), *(f"{rate:.2f}" if rate else "" for rate in rates),
                 " / ".join(ratios), " / ".join(f"{one:.3f}" if one else "-" for one in cpu)]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def verdicts(results):
    """The ratios that matter, best row against best row, with what is wanted of each."""
    wanted = [("ring", "fio", 0, "of the best fio", ">= 0.95"),
              ("ring", "ds_io", 0, "of the best ds_io", ">= 1.4"),
              ("ring", "ds_io", 1, "of that ds_io's CPU seconds per GB", "<= 0.3"),
              ("threads", "ring", 0, "of the ring", ">= 0.9"),
              ("ring pool", "ring", 0, "of the ring on few buffers", "for information")]
    lines = ["| ratio | wanted | read | write | mixed |", "|---|---|---|---|---|"]
    for ours, theirs, field, text, aim in wanted:
        cells = []
        for pattern in PATTERNS:
            one, other = results.best(ours, pattern), results.best(theirs, pattern)
            has_both = one and other and other[1 + field]
            cells.append(f"{one[1 + field] / other[1 + field]:.2f}" if has_both else "")
        lines.append(f"| {ours}, {text} | {aim} | " + " | ".join(cells) + " |")
    return lines


def facts(options):
    return [machine_line("scripts/peers/compare_nvme.py"),
            f"Blocks of {options.block >> 10} KiB, a file of {options.size / (1 << 30):g} GiB, "
            f"medians of {options.rounds} interleaved rounds."]


def parse_options():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--path", type=Path, required=True, help="a folder on the drive")
    parser.add_argument("--size", type=bytes_of, default=3 << 30)
    parser.add_argument("--block", type=bytes_of, default=1 << 20)
    parser.add_argument("--depth", type=int, action="append", help="default: 4 and 8")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1, help="of each run, at least")
    parser.add_argument("--timeout", type=float, default=300, metavar="S")
    parser.add_argument("--only", metavar="NAME,...", help="these contestants, in this order")
    parser.add_argument("--headrace", type=Path, default=ROOT / "build" / "release" / "headrace")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")
    options = parser.parse_args()
    options.depth = options.depth or [4, 8]
    if min(options.size, options.block, options.rounds, *options.depth) < 1:
        parser.error("sizes, depths and rounds must be positive")
    if not options.headrace.is_file():
        parser.error(f"{options.headrace} is not built: scripts/build")
    known = list(contestants(options))
    options.only = options.only.split(",") if options.only else known
    unknown = [name for name in options.only if name not in known]
    if unknown:
        parser.error(f"--only: unknown {', '.join(unknown)}; known: {', '.join(known)}")
    return options


def main():
    options = parse_options()
    load = os.getloadavg()[0]
    if load > len(os.sched_getaffinity(0)) / 4:
        say(f"this machine is busy (load {load:.1f}): the numbers will be low, and not fair")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    results = Results()
    with tempfile.TemporaryDirectory(prefix="peers-", dir=options.path) as folder:
        options.folder = Path(folder)
        options.file = options.folder / "file"
        say(f"writing the peers' file of {options.size / (1 << 30):g} GiB once")
        write_once(options)
        with huge_pages(options, results):
            run_rounds(options, results)
    if options.json:
        print(json.dumps([{"who": row.who, "kind": row.kind, "depth": row.depth,
                           "pattern": pattern, "gb_per_s": results.median(row, pattern),
                           "cpu_seconds_per_gb": results.median(row, pattern, 1),
                           "samples": [sample[0] for sample in samples]}
                          for row, patterns in results.samples.items()
                          for pattern, samples in patterns.items()], indent=1))
        return
    lines = facts(options) + [""] + table(results) + [""] + verdicts(results)
    lines += [""] + [f"- {note}" for note in results.notes] if results.notes else []
    print("\n".join(lines))


if __name__ == "__main__":
    main()
