#!/usr/bin/env python3
"""Headrace beside its peers on this machine: tokens/s and peak memory, as a Markdown table.

usage: compare.py [MODEL_DIR] [--dtype bf16|fp32|both] [--steps N] [--rounds R] [--only NAME,...]

The same job for all: MODEL_DIR (default models/smollm2-135m-instruct), 4 micro-batches of 512
random tokens a step, AdamW, clipping at norm 1.0. The peers recompute activations, Headrace keeps
those that its budgets have room for. Each contestant is a process of its own. Rounds are
interleaved, every other one backwards, so that a slow minute of the machine hits all. The first
step of a process is not timed, nor are two more of Headrace's on NVMe, which read what was never
written; the median of the others, as many for all, is shown. Peak RSS is what the kernel says
of the process (ru_maxrss), the larger of the rounds, reading the model included. The loss of the
first step must be nearly the same for all of one dtype. CPU seconds of a step, of all its threads,
stand beside its time: where other programs share the machine, they are the fairer measure, if
OMP_WAIT_POLICY=passive is set for all: torch's threads spin while they wait, which counts.

Contestants: headrace-nvme, headrace-resident, pytorch-bf16, pytorch-master (fp32 weights and
states, bf16 autocast), deepspeed-cpu, deepspeed-nvme, deepspeed-nvme-lean, and in fp32
headrace-nvme-fp32, headrace-resident-fp32, pytorch-fp32, deepspeed-cpu-fp32, deepspeed-nvme-fp32,
deepspeed-nvme-lean-fp32. DeepSpeed needs scripts/peers/setup, once.

On a CPU without bf16 arithmetic PyTorch multiplies bf16 matrices many times slower than fp32 ones,
and who knows that trains in fp32 there: so both are compared there unless --dtype says otherwise.
How long it will take is estimated, from a measured rate, before anything starts.
"""

import argparse
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import contest
from contest import CONTESTANTS, ROOT, Failed

RATE = Path(__file__).resolve().parent / "rate.py"


def say(text):
    print(text, file=sys.stderr, flush=True)


class Machine:
    """What decides the speed here."""

    def __init__(self):
        cpu = Path("/proc/cpuinfo").read_text()
        field = {line.split(":")[0].strip(): line.split(":", 1)[1].strip()
                 for line in cpu.splitlines() if ":" in line}
        flags = field.get("flags", "").split()
        self.cpu = field.get("model name", "unknown CPU")
        self.core_count = len(os.sched_getaffinity(0))
        self.isa = [name for name in ("avx2", "avx512f", "avx512_bf16", "amx_bf16")
                    if name in flags]
        self.memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        self.bf16_name = next((name for name in ("amx_bf16", "avx512_bf16") if name in flags), None)

    def text(self):
        return (f"{self.cpu}, {self.core_count} cores, {' '.join(self.isa) or 'no AVX2'}, "
                f"{self.memory_bytes / 2**30:.0f} GiB")


def write_data(path, options):
    """Random tokens, the same for all; every one is trained."""
    config = json.loads((options.model / "config.json").read_text())
    generator = random.Random(0)
    steps = max(contest.steps_of(CONTESTANTS[name], options) for name in options.only)
    with open(path, "w", encoding="utf-8") as file:
        for _ in range(options.micro_batches * steps):
            ids = [generator.randrange(config["vocab_size"]) for _ in range(options.tokens)]
            file.write(json.dumps({"input_ids": ids}) + "\n")


def model_parameter_count(config):
    """Of a Llama, without its norms: near enough for an estimate."""
    width, inner = config["hidden_size"], config["intermediate_size"]
    heads = config["num_attention_heads"]
    shared = config.get("num_key_value_heads", heads) / heads
    layer = 2 * width * width * (1 + shared) + 3 * width * inner
    return config["num_hidden_layers"] * layer + config["vocab_size"] * width


def estimated_s(options):
    """Seconds the whole comparison takes, about; None, and a word of why, where it is unknown."""
    try:
        config = json.loads((options.model / "config.json").read_text())
        words = [contest.PYTHON, RATE, config["hidden_size"], config["intermediate_size"],
                 min(options.tokens, 512), options.threads]
        done = subprocess.run([str(word) for word in words], capture_output=True, text=True,
                              check=True, timeout=120)
        rate = json.loads(done.stdout)
        parameter_count = model_parameter_count(config)
    except (OSError, KeyError, ValueError, subprocess.SubprocessError) as error:
        say(f"no estimate: {error}"[:300] + ("" if contest.PYTHON.exists() else
                                             "; scripts/setup makes the Python environment"))
        return None
    # Forward 2, its repetition 2, backward 4 operations per parameter and token.
    step_flops = 8 * parameter_count * options.micro_batches * options.tokens
    total_s = 0.0
    for name in options.only:
        one = CONTESTANTS[name]
        # Headrace multiplies bf16 as fp32 where the CPU lacks bf16 arithmetic.
        lacks_bf16 = one.placement and one.dtype == "bf16" and rate["bf16"] < rate["fp32"]
        flops_per_s = rate["fp32"] if lacks_bf16 else rate[one.dtype]
        steps = contest.steps_of(one, options)
        run_s = one.start_s + steps * one.overhead * step_flops / flops_per_s
        total_s += options.rounds * min(run_s, options.timeout)
    say(f"matrix products here: fp32 {rate['fp32'] / 1e9:.1f} GF/s, "
        f"bf16 {rate['bf16'] / 1e9:.1f} GF/s ({options.threads} threads)")
    return total_s


class Result:
    def __init__(self):
        self.times_ms = []        # of all rounds, first steps left out
        self.cpu_s = []           # the same, as far as they were seen
        self.peak_bytes = 0
        self.first_loss = None
        self.round_count = 0
        self.over_s = None        # the time limit came first: a step takes longer than this
        self.note = None          # why it did not finish

    def add(self, run, one, options):
        steps = contest.steps_of(one, options)
        self.times_ms += run.times_ms[one.untimed:]
        self.cpu_s += run.cpu_s[one.untimed - 1:]
        self.peak_bytes = max(self.peak_bytes, run.peak_bytes)
        self.first_loss = run.first_loss if self.first_loss is None else self.first_loss
        self.round_count += 1
        if run.stopped_after_s is not None:
            self.note = (f"stopped at the time limit of {options.timeout:g} s, "
                         f"{len(run.times_ms)} of {steps} steps done")
            if not self.times_ms:
                # The first step, though it is no fair measure, stands beside nothing else.
                self.over_s = run.unfinished_step_s
        elif len(run.times_ms) != steps:
            self.note = f"{len(run.times_ms)} steps recorded of {steps}"
            self.times_ms = []


def run_rounds(options, folder):
    results = {name: Result() for name in options.only}
    for turn in range(options.rounds):
        for name in options.only if turn % 2 == 0 else reversed(options.only):
            result = results[name]
            if result.note:
                continue
            say(f"round {turn + 1} of {options.rounds}: {name}")
            own = folder / f"{name}-{turn}"
            own.mkdir()
            os.sync()  # what the one before wrote is not this one's burden
            try:
                result.add(contest.run(name, options, own), CONTESTANTS[name], options)
            except Failed as failure:
                result.note = str(failure)
    return results


def rows_of(results, options):
    """The table as data. Against plain PyTorch of the same dtype, which needs its own row."""
    tokens = options.micro_batches * options.tokens
    median_s = {name: statistics.median(result.times_ms) / 1e3
                for name, result in results.items() if result.times_ms}
    cpu_s = {name: statistics.median(result.cpu_s)
             for name, result in results.items() if result.cpu_s}
    rows = []
    for name, result in results.items():
        one = CONTESTANTS[name]
        step_s, baseline_s = median_s.get(name), median_s.get(one.against)
        own_cpu_s, baseline_cpu_s = cpu_s.get(name), cpu_s.get(one.against)
        rows.append({
            "name": name, "who": one.who, "dtype": one.dtype,
            "tokens_per_s": tokens / step_s if step_s else None, "s_per_step": step_s,
            "s_per_step_over": result.over_s, "against": one.against,
            "ratio": baseline_s / step_s if step_s and baseline_s else None,
            "cpu_s_per_step": own_cpu_s,
            "cpu_ratio": baseline_cpu_s / own_cpu_s if own_cpu_s and baseline_cpu_s else None,
            "peak_rss_bytes": result.peak_bytes or None, "first_loss": result.first_loss,
            "rounds": result.round_count, "times_ms": result.times_ms, "note": result.note})
    return rows


def table(rows, options):
    lines = ["| who | tokens/s | s/step | of plain PyTorch, same dtype | peak RSS | first loss "
             "| CPU s/step | of PyTorch's |", "|---|---|---|---|---|---|---|---|"]
    for row in rows:
        speed, step = "", ""
        if row["s_per_step"]:
            speed, step = f"{row['tokens_per_s']:.1f}", f"{row['s_per_step']:.2f}"
        elif row["s_per_step_over"]:
            tokens = options.micro_batches * options.tokens
            speed = f"< {tokens / row['s_per_step_over']:.1f}"
            step = f"more than {row['s_per_step_over']:.1f}"
        ratio = f"{row['ratio']:.2f}" if row["ratio"] else ""
        peak = f"{row['peak_rss_bytes'] / 1e9:.2f} GB" if row["peak_rss_bytes"] else ""
        loss = f"{row['first_loss']:.4f}" if row["first_loss"] is not None else ""
        cpu = f"{row['cpu_s_per_step']:.2f}" if row["cpu_s_per_step"] else ""
        cpu_ratio = f"{row['cpu_ratio']:.2f}" if row["cpu_ratio"] else ""
        lines.append(f"| {row['who']} | {speed} | {step} | {ratio} | {peak} | {loss} "
                     f"| {cpu} | {cpu_ratio} |")
    notes = [f"- {row['who']}: {row['note']}" for row in rows if row["note"]]
    return "\n".join(lines + ([""] + notes if notes else []))


def facts_of(options, machine, load):
    """What the numbers are numbers of: the lines above the table, as data."""
    def git(*words):
        return subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True,
                              text=True).stdout.strip()
    commit = git("rev-parse", "--short", "HEAD") or "unknown"
    if git("status", "--porcelain", "--untracked-files=no"):
        commit += ", with changes"
    return {
        "machine": machine.text(), "commit": commit,
        "command": " ".join(["scripts/peers/compare.py", *sys.argv[1:]]),
        "model": options.model.name, "micro_batches": options.micro_batches,
        "tokens": options.tokens, "threads": options.threads, "steps": options.steps,
        "rounds": options.rounds, "dtype": options.dtype, "dtype_reason": options.dtype_reason,
        "load_before": load}


def facts_text(facts):
    lines = [
        f"{facts['machine']}. Commit {facts['commit']}: `{facts['command']}`", "",
        f"{facts['model']}, {facts['micro_batches']} micro-batches of {facts['tokens']} tokens, "
        f"AdamW, clipping 1.0, activations recomputed by the peers, {facts['threads']} threads, "
        f"CPU only; medians of {facts['rounds']} interleaved rounds of {facts['steps'] - 1} steps "
        f"after a first. {facts['dtype_reason']}", ""]
    return "\n".join(lines)


def add_arguments(parser):
    parser.add_argument("model", metavar="MODEL_DIR", type=Path, nargs="?",
                        default=ROOT / "models" / "smollm2-135m-instruct")
    parser.add_argument("--dtype", choices=["bf16", "fp32", "both"],
                        help="default: bf16 where the CPU computes in it, else both")
    parser.add_argument("--steps", type=int, default=4,
                        help="per process, the first not counted; Headrace on NVMe does two more")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--micro-batches", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=512, help="per micro-batch")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--only", metavar="NAME,...", help="these contestants, in this order")
    parser.add_argument("--timeout", type=float, default=900, metavar="S",
                        help="seconds for one process, start included; default 900")
    parser.add_argument("--scratch", type=Path, default=ROOT / "runs", help="a folder on the drive")
    parser.add_argument("--headrace", type=Path, default=ROOT / "build" / "release" / "headrace")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE",
                        help="passed to headrace; may be repeated")
    parser.add_argument("--estimate", action="store_true", help="say how long it takes, and stop")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")


def parse_options(machine):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    options = parser.parse_args()
    options.dtype_reason = ""
    if options.only:
        options.only = list(dict.fromkeys(options.only.split(",")))
        unknown = [name for name in options.only if name not in CONTESTANTS]
        if unknown:
            parser.error(f"--only: unknown {', '.join(unknown)}; known: {', '.join(CONTESTANTS)}")
    elif options.dtype is None:
        options.dtype = "bf16" if machine.bf16_name else "both"
        options.dtype_reason = (
            f"bf16 only: this CPU computes in it ({machine.bf16_name})." if machine.bf16_name else
            "bf16 and fp32: this CPU has neither avx512_bf16 nor amx_bf16, so PyTorch's bf16 is "
            "slow here and fp32 is what its user would choose.")
    options.only = [
        name for name in options.only or CONTESTANTS
        if options.dtype in (None, "both", CONTESTANTS[name].dtype)]
    if not options.only:
        parser.error(f"--only names no contestant of --dtype {options.dtype}")
    if options.steps < 2 or options.rounds < 1:
        parser.error("--steps must be at least 2 (the first is not counted), --rounds at least 1")
    if min(options.micro_batches, options.threads, options.timeout) <= 0 or options.tokens < 2:
        parser.error("--micro-batches, --threads and --timeout must be positive, --tokens over 1")
    if not (options.model / "config.json").is_file():
        parser.error(f"{options.model} has no config.json; make it: scripts/prepare_model.py")
    for name in ("model", "headrace", "scratch"):
        setattr(options, name, getattr(options, name).resolve())
    return options


def main():
    machine = Machine()
    options = parse_options(machine)
    load = os.getloadavg()[0]
    if load > machine.core_count / 4:
        say(f"this machine is busy (load {load:.1f} on {machine.core_count} cores): "
            "the numbers will be low, and not fair")
    if options.dtype_reason:
        say(options.dtype_reason)
    seconds = estimated_s(options)
    say(f"{len(options.only)} contestants, {options.rounds} rounds of {options.steps} steps: " +
        (f"about {max(1, round(seconds / 60))} minutes, " if seconds is not None else "") +
        f"at most {options.timeout * options.rounds * len(options.only) / 60:.0f} (--timeout)")
    if options.estimate:
        return
    # Ended from outside, it ends its contestant and removes its files all the same.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    options.scratch.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="peers-", dir=options.scratch) as folder:
        options.scratch = Path(folder)
        write_data(options.scratch / "data.jsonl", options)
        rows = rows_of(run_rounds(options, options.scratch), options)
    facts = facts_of(options, machine, load)
    if options.json:
        print(json.dumps({**facts, "rows": rows}, indent=1))
    else:
        print(facts_text(facts) + "\n" + table(rows, options))


if __name__ == "__main__":
    main()
