#!/usr/bin/env python3
"""Holds plans against runs: step time, memory and drive space of real runs on this machine.

usage: measure_forecast.py HEADRACE [--rounds N] [--steps N] [--probe-seconds S] [--drive FOLDER]
                           [--only TEXT] [--json FILE]

Fifteen configurations: SmolLM2 and a tiny wide model, over placements, budgets, passes and tokens.
For each: `doctor --probe` (with the model's shape and tokens), a run of N steps, the probe again;
then `plan` of the very run file on the means of the probes. None is dropped. With rounds all of
them are gone through as often, and a configuration has the probes and the steps of every round: a
machine that others share is another one a few minutes later. A step's time is the median of those
after a run's warm-up, at most three steps that are unlike the rest: one updates nothing, two find
places on the drive that were never written. Memory is the peak of a run's RSS beside the bytes of
its slots and of the program; space is what the store's files take beside what was planned; of the
round where they are farthest apart.
Prints a Markdown table, and median and worst errors. Takes about a minute a row and round.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SMOLLM2 = ROOT / "models/smollm2-135m-instruct"  # scripts/prepare_model.py
WIDE = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
        "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 2,
        "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64, "vocab_size": 4096,
        "max_position_embeddings": 2048, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
        "tie_word_embeddings": False}
NVME = {"parameters": "nvme", "optimizer": "nvme"}
LEAN = {"gpu_budget": "768MiB", "ram_budget": "256MiB"}
ROOMY = {"gpu_budget": "4GiB", "ram_budget": "4GiB"}
BATCHES = {"per_device_train_batch_size": 1}


def row(name, model, tokens, micro_batches, *settings):
    merged = {"max_length": tokens, "gradient_accumulation_steps": micro_batches, **BATCHES}
    for one in settings:
        merged |= one
    return name, model, tokens, merged


CONFIGURATIONS = [
    row("all on nvme", "smollm2", 128, 2, NVME, LEAN),
    row("all on nvme, 1 x 512 tokens", "smollm2", 512, 1, NVME, LEAN),
    row("all on nvme, 6 micro-batches", "smollm2", 64, 6, NVME, LEAN),
    row("all on nvme, one a pass", "smollm2", 64, 3, NVME, LEAN,
        {"offload.advanced.micro_batches_per_pass": 1}),
    row("all on nvme, updated twice", "smollm2", 128, 2, NVME, LEAN,
        {"offload.advanced.update_twice": 0.5}),
    row("half of the states in ram", "smollm2", 128, 2, {"parameters": "nvme"},
        {"optimizer": "{ram: 50%, nvme: 50%}", "gpu_budget": "1GiB", "ram_budget": "1GiB"}),
    row("weights in ram, states on nvme", "smollm2", 128, 2,
        {"parameters": "ram", "optimizer": "nvme", "gpu_budget": "1GiB", "ram_budget": "1GiB"}),
    row("all in ram", "smollm2", 128, 2, {"parameters": "ram", "optimizer": "ram"}, ROOMY),
    row("weights on the card, states in ram", "smollm2", 128, 2,
        {"parameters": "gpu", "optimizer": "ram"}, ROOMY),
    row("all on the card", "smollm2", 128, 2, {"parameters": "gpu", "optimizer": "gpu"}, ROOMY),
    row("states in bf16 on nvme", "smollm2", 128, 2, NVME, LEAN, {"optimizer_states": "bf16"}),
    row("states in int8 on nvme", "smollm2", 128, 2, NVME, LEAN, {"optimizer_states": "int8"}),
    row("nothing kept, on the card", "smollm2", 128, 2, {"parameters": "gpu", "optimizer": "gpu"},
        ROOMY, {"gradient_checkpointing": "true"}),
    row("all on nvme", "wide", 128, 2, NVME, {"gpu_budget": "1GiB", "ram_budget": "512MiB"}),
    row("all in ram", "wide", 128, 2, {"parameters": "ram", "optimizer": "ram"}, ROOMY),
]


def run(command, **options):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          cwd=ROOT, check=False, **options)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


class Space:
    """The most bytes that the files of a folder had on their drive, while it was watched."""

    def __init__(self, folder):
        self.folder, self.most, self.stopping = folder, 0, threading.Event()
        self.thread = threading.Thread(target=self.watch)

    def watch(self):
        while not self.stopping.wait(0.2):
            taken = 0
            for file in self.folder.rglob("*"):
                try:
                    taken += file.stat().st_blocks * 512
                except FileNotFoundError:
                    pass  # gone between two looks
            self.most = max(self.most, taken)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stopping.set()
        self.thread.join()


def mean_of(machines):
    """A machine file whose numbers are the means of several: of rates, what takes the mean time for
    the same work; sizes are the first one's."""
    lines = []
    for same_line in zip(*(machine.splitlines() for machine in machines)):
        match = re.match(r"(  (\w+): )[\d.e+-]+", same_line[0])
        if match and match.group(2) not in ("memory", "space"):
            values = [float(re.match(r"  \w+: ([\d.e+-]+)", line).group(1)) for line in same_line]
            is_rate = match.group(2) == "tflops" or match.group(2).endswith("per_s")
            mean = statistics.harmonic_mean if is_rate else statistics.fmean
            lines.append(f"{match.group(1)}{mean(values):.6g}")
        else:
            lines.append(same_line[0])
    return "\n".join(lines) + "\n"


def number(text, pattern, what):
    match = re.search(pattern, text)
    if not match:
        raise SystemExit(f"plan said nothing of the {what}:\n{text}")
    return float(match.group(1))


class Measurement:
    def __init__(self, arguments, folder, models):
        self.arguments, self.folder, self.models = arguments, folder, models
        self.drive = folder / "drive"
        self.drive.mkdir()

    def probe(self, model, tokens):
        path = self.folder / "machine.yaml"
        run([self.arguments.headrace, "doctor", "--probe", "--model", self.models[model],
             "--tokens", tokens, "--seconds", self.arguments.probe_seconds, "--nvme", self.drive,
             "--out", path])
        return path.read_text(encoding="utf-8")

    def data(self, model, tokens):
        """Samples that are all as long as max_length, so that a plan and a run see the same."""
        path = self.folder / f"{model}-{tokens}.jsonl"
        path.write_text("".join(
            json.dumps({"input_ids": [(i * 7 + j * 13) % 4000 + 2 for j in range(tokens)]}) + "\n"
            for i in range(64)), encoding="utf-8")
        return path

    def train(self, model, tokens, settings, machine):
        output = self.folder / f"out-{model}"  # an export replaces those of its own model alone
        words = [f"{key}={value}" for key, value in settings.items()]
        uses_drive = "nvme" in str(settings.get("parameters")) + str(settings.get("optimizer"))
        if uses_drive:
            words.append(f"nvme_paths=[{self.drive}]")
        run_words = [self.models[model], *words, f"max_steps={self.arguments.steps}"]
        cache = self.folder / "cache"
        rates = self.folder / "rates.yaml"
        rates.write_text(machine, encoding="utf-8")
        with Space(self.drive) as space:
            run([self.arguments.headrace, "train", run_words[0], self.data(model, tokens),
                 *run_words[1:], f"machine={rates}", f"output_dir={output}",
                 "overwrite_output_dir=true"], env=environment(cache))
        lines = (output / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        records = [json.loads(line) for line in lines]
        steps = [record["time_ms"] / 1e3 for record in records
                 if "time_ms" in record and not record["warm_up"]]
        if not steps:
            raise SystemExit(f"--steps {self.arguments.steps}: all of them were of the warm-up")
        return {"words": run_words, "steps": steps, "space_bytes": space.most, "end": records[-1]}

    def plan(self, measured, machine):
        path = self.folder / "mean.yaml"
        path.write_text(machine, encoding="utf-8")
        return run([self.arguments.headrace, "plan", *measured["words"], "--machine", path])


def environment(cache):
    return {**os.environ, "XDG_CACHE_HOME": str(cache)}


def bytes_of(run):
    """Of memory and of the drive, planned and taken."""
    end = run["end"]
    return {"slots_and_program_bytes":
                end["gpu_bytes"] + end["ram_bytes"] + end["baseline_rss_bytes"],
            "peak_rss_bytes": end["peak_rss_bytes"],
            "planned_space_bytes": end["nvme_bytes"], "space_bytes": run["space_bytes"]}


def excess(sizes):
    """How far beyond 3% and 50 MB memory or space is from its plan; 0: within."""
    return max(max(0.0, abs(sizes[taken] - sizes[planned]) - 0.03 * sizes[planned] - 50e6)
               for planned, taken in [("slots_and_program_bytes", "peak_rss_bytes"),
                                      ("planned_space_bytes", "space_bytes")])


class Configuration:
    """What was measured of one of them, in all rounds, and its plan by all probes."""

    def __init__(self, name, model, tokens, settings):
        self.name, self.model, self.tokens, self.settings = name, model, tokens, settings
        self.machines, self.runs = [], []

    def measure(self, measurement):
        before = measurement.probe(self.model, self.tokens)
        self.runs.append(measurement.train(self.model, self.tokens, self.settings, before))
        self.machines += [before, measurement.probe(self.model, self.tokens)]

    def compare(self, measurement):
        machine = mean_of(self.machines)
        plan = measurement.plan(self.runs[-1], machine)
        steps = [step for run in self.runs for step in run["steps"]]
        return {
            "configuration": f"{self.model}: {self.name}",
            "planned_s": number(plan, r"step\s+([\d.e+]+) s", "step"),
            "measured_s": statistics.median(steps), "steps_s": steps,
            **max((bytes_of(run) for run in self.runs), key=excess),
            "machines": self.machines, "plan": plan, "ends": [run["end"] for run in self.runs]}


def table(rows):
    lines = ["| configuration | planned s | measured s | ratio | planned / peak RSS, MB "
             "| planned / taken on the drive, MB |", "|---|---|---|---|---|---|"]
    errors = []
    for one in rows:
        ratio = one["planned_s"] / one["measured_s"]
        errors.append(abs(ratio - 1))
        mb = {key: one[key] / 1e6 for key in one if key.endswith("_bytes")}
        lines.append(
            f"| {one['configuration']} | {one['planned_s']:.3g} | {one['measured_s']:.3g} "
            f"| {ratio:.2f} | {mb['slots_and_program_bytes']:.0f} / {mb['peak_rss_bytes']:.0f} "
            f"| {mb['planned_space_bytes']:.0f} / {mb['space_bytes']:.0f} |")
    beyond = [one["configuration"] for one in rows if excess(one) > 0]
    lines += ["", f"Time: median error {100 * statistics.median(errors):.0f}%, worst "
              f"{100 * max(errors):.0f}%, of {len(rows)} configurations. Memory and space beyond "
              f"3% + 50 MB: {', '.join(beyond) or 'none'}."]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("headrace", type=lambda text: Path(text).resolve())
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--probe-seconds", type=float, default=6)
    parser.add_argument("--drive", type=lambda text: Path(text).resolve(), default=ROOT / "runs",
                        help="where stores are put")
    parser.add_argument("--only", default="", help="configurations that contain this text")
    parser.add_argument("--smollm2", type=Path, default=SMOLLM2, help="its folder")
    parser.add_argument("--json", type=Path, help="a file for everything that was measured")
    arguments = parser.parse_args()
    arguments.drive.mkdir(exist_ok=True)
    configurations = [Configuration(*one) for one in CONFIGURATIONS
                      if arguments.only in f"{one[1]}: {one[0]}"]
    with tempfile.TemporaryDirectory(prefix="forecast-", dir=arguments.drive) as temporary:
        folder = Path(temporary)
        shape = folder / "wide.json"
        shape.write_text(json.dumps(WIDE), encoding="utf-8")
        run([arguments.headrace, "random-model", shape, folder / "wide"])
        models = {"smollm2": arguments.smollm2.resolve(), "wide": folder / "wide"}
        measurement = Measurement(arguments, folder, models)
        for _ in range(arguments.rounds):
            for one in configurations:
                one.measure(measurement)
                print(table([one.compare(measurement)]).splitlines()[2], file=sys.stderr,
                      flush=True)
            rows = [one.compare(measurement) for one in configurations]
            if arguments.json:
                arguments.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    print(table(rows))


if __name__ == "__main__":
    sys.exit(main())
