#!/usr/bin/env python3
"""Headrace beside its peers on this machine: tokens/s and peak memory, as a Markdown table.

usage: compare.py [MODEL_DIR] [--steps N] [--rounds R] [--only NAME,...] [--scratch DIR] ...

The same job for all: MODEL_DIR (default models/smollm2-135m-instruct) in bf16, 4 micro-batches of
512 random tokens a step, AdamW, clipping at norm 1.0, activations recomputed. Each contestant is a
process of its own; rounds are interleaved, so that a slow minute of the machine hits all; the
first step of each process is left out; the median of the others is shown. Peak memory is what the
kernel says of the process (ru_maxrss), the larger of the rounds. The loss of the first step is
shown: it must be nearly the same for all.

Contestants: headrace-nvme (gpu_budget 768MiB, ram_budget 256MiB), headrace-resident, pytorch-bf16,
pytorch-master, deepspeed-cpu, deepspeed-nvme. DeepSpeed runs where it is installed:
  pip install deepspeed==0.19.8 ninja
Hosts without AVX-512 compute bf16 in PyTorch many times slower: use --steps 2 --rounds 1 there.
"""

import argparse
import importlib.util
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PEER = Path(__file__).resolve().parent / "peer.py"
CONTESTANTS = {
    "headrace-nvme": "Headrace, everything on NVMe (768 MiB gpu, 256 MiB ram)",
    "headrace-resident": "Headrace, resident",
    "pytorch-bf16": "PyTorch, resident, bf16 weights and states, no master",
    "pytorch-master": "PyTorch, resident, fp32 weights and states, bf16 autocast",
    "deepspeed-cpu": "DeepSpeed ZeRO-3, parameters and optimizer on CPU",
    "deepspeed-nvme": "DeepSpeed ZeRO-3, parameters and optimizer on NVMe",
}
PLACEMENT = {
    "headrace-nvme": ["parameters=nvme", "optimizer=nvme", "gpu_budget=768MiB",
                      "ram_budget=256MiB"],
    "headrace-resident": ["parameters=gpu", "optimizer=ram", "gpu_budget=8GiB",
                          "ram_budget=8GiB"],
}
BASELINE = "pytorch-bf16"


class Failed(Exception):
    """A contestant that could not run; the text is shown in its row."""


def write_data(path, options):
    """Random tokens, the same for all; every one is trained."""
    config = json.loads((options.model / "config.json").read_text())
    generator = random.Random(0)
    with open(path, "w", encoding="utf-8") as file:
        for _ in range(options.micro_batches * options.steps):
            ids = [generator.randrange(config["vocab_size"]) for _ in range(options.tokens)]
            file.write(json.dumps({"input_ids": ids}) + "\n")


def run_process(command, log):
    """Runs to the end; its peak resident bytes. What it says goes to the log file."""
    environment = dict(os.environ, PATH=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    with open(log, "w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT,
                                   env=environment, cwd=ROOT)
        try:
            _, status, usage = os.wait4(process.pid, 0)  # as wait(), and tells the usage
        except BaseException:
            process.kill()
            process.wait()
            raise
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        last = [line for line in log.read_text(errors="replace").splitlines() if line.strip()][-1:]
        raise Failed(f"exit code {process.returncode}: {''.join(last)[:160]}")
    return usage.ru_maxrss * 1024


def step_records(path):
    """The lines of a log or of metrics.jsonl that record a step."""
    records = []
    for line in path.read_text(errors="replace").splitlines():
        if line.startswith("{"):
            record = json.loads(line)
            if "time_ms" in record and "loss" in record:
                records.append(record)
    return records


def run_headrace(name, options, folder):
    if not options.headrace.is_file():
        raise Failed(f"{options.headrace} is not built: scripts/build")
    command = [
        options.headrace, "train", options.model, folder.parent / "data.jsonl",
        "--nvme", options.scratch, f"output_dir={folder}/run", "dtype=bf16", "device=host",
        f"max_length={options.tokens}", "per_device_train_batch_size=1",
        f"gradient_accumulation_steps={options.micro_batches}", f"max_steps={options.steps}",
        "learning_rate=1e-4", "lr_scheduler_type=constant", "warmup_ratio=0", "shuffle=false",
        f"compute_threads={options.threads}", *PLACEMENT[name], *options.set]
    peak_bytes = run_process([str(word) for word in command], folder / "log")
    return peak_bytes, step_records(folder / "run" / "metrics.jsonl")


def run_peer(name, options, folder):
    if name.startswith("deepspeed") and importlib.util.find_spec("deepspeed") is None:
        raise Failed("not installed: pip install deepspeed==0.19.8 ninja")
    scratch = options.scratch / "deepspeed"
    scratch.mkdir(exist_ok=True)
    command = [sys.executable, PEER, name, options.model, folder.parent / "data.jsonl", scratch,
               "--steps", options.steps, "--micro-batches", options.micro_batches,
               "--threads", options.threads]
    try:
        peak_bytes = run_process([str(word) for word in command], folder / "log")
    finally:
        shutil.rmtree(scratch)
    return peak_bytes, step_records(folder / "log")


class Result:
    def __init__(self):
        self.times_ms, self.peak_bytes, self.first_loss, self.failure = [], 0, None, None


def run_rounds(options, names, folder):
    results = {name: Result() for name in names}
    for turn in range(options.rounds):
        for name in names:
            result = results[name]
            if result.failure:
                continue
            print(f"round {turn + 1} of {options.rounds}: {name}", file=sys.stderr, flush=True)
            own = folder / f"{name}-{turn}"
            own.mkdir()
            run = run_headrace if name in PLACEMENT else run_peer
            try:
                peak_bytes, records = run(name, options, own)
            except Failed as failure:
                result.failure = str(failure)
                continue
            if len(records) != options.steps:
                result.failure = f"{len(records)} steps recorded of {options.steps}"
                continue
            result.times_ms += [record["time_ms"] for record in records[1:]]
            result.peak_bytes = max(result.peak_bytes, peak_bytes)
            result.first_loss = records[0]["loss"]
    return results


def machine_text():
    """CPU, cores and the instruction sets that decide the speed of bf16."""
    cpu = Path("/proc/cpuinfo").read_text()
    field = {line.split(":")[0].strip(): line.split(":", 1)[1].strip()
             for line in cpu.splitlines() if ":" in line}
    sets = [name for name in ("avx2", "avx512f", "avx512_bf16", "amx_bf16")
            if name in field.get("flags", "").split()]
    return f"{field.get('model name', 'unknown CPU')}, {os.cpu_count()} cores, {' '.join(sets)}"


def table(results, options):
    tokens = options.micro_batches * options.tokens
    speed = {name: 1e3 * tokens / statistics.median(result.times_ms)
             for name, result in results.items() if result.times_ms}
    lines = [f"| who | tokens/s | of {BASELINE} | peak RSS | first loss |",
             "|---|---|---|---|---|"]
    for name, result in results.items():
        if result.failure or name not in speed:
            lines.append(f"| {CONTESTANTS[name]} | {result.failure or 'no step timed'} | | | |")
            continue
        ratio = f"{speed[name] / speed[BASELINE]:.2f}" if BASELINE in speed else ""
        lines.append(f"| {CONTESTANTS[name]} | {speed[name]:.1f} | {ratio} | "
                     f"{result.peak_bytes / 1e9:.2f} GB | {result.first_loss:.4f} |")
    commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"],
                            capture_output=True, text=True).stdout.strip()
    command = " ".join(["scripts/peers/compare.py", *sys.argv[1:]])
    lines += ["", f"{options.model.name}, {options.micro_batches} micro-batches of {options.tokens}"
              f" tokens, clipping 1.0, {options.threads} threads; medians of {options.rounds} "
              f"interleaved rounds of {options.steps - 1} steps after a first. {machine_text()}. "
              f"Commit {commit or 'unknown'}: `{command}`"]
    return "\n".join(lines)


def parse_options():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", metavar="MODEL_DIR", type=Path, nargs="?",
                        default=ROOT / "models" / "smollm2-135m-instruct")
    parser.add_argument("--steps", type=int, default=4, help="per process, the first not counted")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--micro-batches", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=512, help="per micro-batch")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--only", metavar="NAME,...", default=",".join(CONTESTANTS))
    parser.add_argument("--scratch", type=Path, default=ROOT / "runs", help="a folder on the drive")
    parser.add_argument("--headrace", type=Path, default=ROOT / "build" / "release" / "headrace")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE",
                        help="passed to headrace; may be repeated")
    options = parser.parse_args()
    unknown = [name for name in options.only.split(",") if name not in CONTESTANTS]
    if unknown:
        parser.error(f"--only: unknown {', '.join(unknown)}; known: {', '.join(CONTESTANTS)}")
    if options.steps < 2 or options.rounds < 1:
        parser.error("--steps must be at least 2 (the first is not counted), --rounds at least 1")
    if not (options.model / "config.json").is_file():
        parser.error(f"{options.model} has no config.json; make it: scripts/prepare_model.py")
    options.model = options.model.resolve()
    return options


def main():
    options = parse_options()
    # Ended from outside, it ends its contestant and removes its files all the same.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    options.scratch.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="peers-", dir=options.scratch) as folder:
        options.scratch = Path(folder)
        write_data(options.scratch / "data.jsonl", options)
        print(table(run_rounds(options, options.only.split(","), options.scratch), options))


if __name__ == "__main__":
    main()
