"""The contestants of compare.py, and one run of one of them as a process with a time limit."""

import contextlib
import dataclasses
import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PEER = Path(__file__).resolve().parent / "peer.py"
CACHE = Path(os.environ.get("HEADRACE_CACHE") or Path(
    os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headrace")
VENV = Path(os.environ.get("HEADRACE_VENV") or CACHE / "venv")
PYTHON = Path(os.environ.get("HEADRACE_PYTHON") or VENV / "bin" / "python")
PEERS_VENV = Path(os.environ.get("HEADRACE_PEERS_VENV") or CACHE / "peers-venv")

NVME = ["parameters=nvme", "optimizer=nvme", "gpu_budget=768MiB", "ram_budget=256MiB"]
RESIDENT = ["parameters=gpu", "optimizer=ram", "gpu_budget=8GiB", "ram_budget=8GiB"]


@dataclasses.dataclass(frozen=True)
class Contestant:
    who: str                # as the table names it
    dtype: str              # what it computes in
    against: str            # the contestant that its ratio is of: plain PyTorch of its dtype
    placement: tuple = ()   # Headrace's settings; a peer has none
    # First steps that are unlike the others. On NVMe Headrace's first updates read places that were
    # never written, which costs a drive nothing.
    untimed: int = 1
    # Guesses for the estimate only: seconds before the first step, and a step's time as a multiple
    # of the time of its matrix products.
    start_s: int = 10
    overhead: float = 1.3


def contestants():
    """By name, in the order of the table."""
    def headrace(who, dtype, placement):
        return Contestant(f"Headrace, {who}", dtype, f"pytorch-{dtype}", tuple(placement),
                          untimed=3 if placement is NVME else 1)

    def pytorch(who, dtype):
        return Contestant(f"PyTorch, resident, {who}", dtype, f"pytorch-{dtype}")

    def deepspeed(who, dtype):
        return Contestant(f"DeepSpeed ZeRO-3, {who}", dtype, f"pytorch-{dtype}",
                          start_s=30, overhead=2.0)

    nvme, memory = "everything on NVMe (768 MiB gpu, 256 MiB ram)", "resident"
    on_nvme = "parameters and optimizer on NVMe"
    return {
        "headrace-nvme": headrace(f"bf16, {nvme}", "bf16", NVME),
        "headrace-resident": headrace(f"bf16, {memory}", "bf16", RESIDENT),
        "pytorch-bf16": pytorch("bf16 weights and states, no master", "bf16"),
        "pytorch-master": pytorch("fp32 weights and states, bf16 autocast", "bf16"),
        "deepspeed-cpu": deepspeed("bf16, parameters and optimizer on CPU", "bf16"),
        "deepspeed-nvme": deepspeed(f"bf16, {on_nvme}, its fastest settings", "bf16"),
        "deepspeed-nvme-lean": deepspeed(f"bf16, {on_nvme}, its leanest settings", "bf16"),
        "headrace-nvme-fp32": headrace(f"fp32, {nvme}", "fp32", NVME),
        "headrace-resident-fp32": headrace(f"fp32, {memory}", "fp32", RESIDENT),
        "pytorch-fp32": pytorch("fp32 weights, states and compute", "fp32"),
        "deepspeed-cpu-fp32": deepspeed("fp32, parameters and optimizer on CPU", "fp32"),
        "deepspeed-nvme-fp32": deepspeed(f"fp32, {on_nvme}, its fastest settings", "fp32"),
        "deepspeed-nvme-lean-fp32": deepspeed(f"fp32, {on_nvme}, its leanest settings", "fp32"),
    }


CONTESTANTS = contestants()


def steps_of(contestant, options):
    """Of one process: as many timed ones for all."""
    return options.steps - 1 + contestant.untimed


class Failed(Exception):
    """A contestant that could not run; the text is shown in its row."""


@dataclasses.dataclass
class Run:
    """What one process did before it ended, or was ended at the time limit."""
    times_ms: list         # of each step recorded, the first included
    first_loss: float | None
    peak_bytes: int        # ru_maxrss: the largest resident set of the process, ever
    cpu_s: list            # of all its threads, for each step after the first that was seen to end
    stopped_after_s: float | None = None    # the time limit ended it
    unfinished_step_s: float | None = None  # and its open step had taken this long, at least


def whole_records(path):
    """The whole JSON lines of a log or of metrics.jsonl that record a step, or say `ready`: the
    model is loaded and the first step begins."""
    text = path.read_text(errors="replace") if path.exists() else ""
    records = [json.loads(line) for line in text[:text.rfind("\n") + 1].splitlines()
               if line.startswith("{")]
    return [record for record in records
            if "ready" in record or ("time_ms" in record and "loss" in record)]


def cpu_s_of(pid):
    """User and system time of a process so far; None where it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class StepClock:
    """CPU time from the end of one step to that of the next, as far as polling saw both."""

    def __init__(self):
        self.cpu_s, self.step_count, self.at_s = [], 0, None

    def see(self, step_count, now_s):
        if step_count == self.step_count:
            return
        is_next = self.step_count > 0 and step_count == self.step_count + 1
        if is_next and None not in (self.at_s, now_s):
            self.cpu_s.append(now_s - self.at_s)
        self.step_count, self.at_s = step_count, now_s


def run_process(command, log, records_path, environment, timeout_s):
    """Runs to the end, or to the time limit. What it says goes to the log file."""
    began = newest = time.monotonic()
    count, stopped, clock = 0, False, StepClock()
    with open(log, "w") as output:
        process = subprocess.Popen([str(word) for word in command], stdout=output,
                                   stderr=subprocess.STDOUT, env=environment, cwd=ROOT,
                                   start_new_session=True)
    try:
        # wait4 tells the usage, which wait() does not.
        while (waited := os.wait4(process.pid, os.WNOHANG))[0] == 0:
            now = time.monotonic()
            if len(records := whole_records(records_path)) > count:
                count, newest = len(records), now
                clock.see(sum("loss" in record for record in records), cpu_s_of(process.pid))
            if now - began > timeout_s and not stopped:
                stopped = True
                os.killpg(process.pid, signal.SIGKILL)
            time.sleep(0.1)
    except BaseException:
        with contextlib.suppress(ProcessLookupError, ChildProcessError):  # it may have ended
            os.killpg(process.pid, signal.SIGKILL)
            os.wait4(process.pid, 0)
        process.returncode = -signal.SIGKILL  # or Popen's destructor would wait for it again
        raise
    process.returncode = os.waitstatus_to_exitcode(waited[1])
    ended = time.monotonic()
    if process.returncode != 0 and not stopped:
        last = [line for line in log.read_text(errors="replace").splitlines() if line.strip()][-1:]
        raise Failed(f"exit code {process.returncode}: {''.join(last)[:160]}")
    records = whole_records(records_path)
    began_steps = count == len(records) > 0
    records = [record for record in records if "loss" in record]
    run = Run([record["time_ms"] for record in records],
              records[0]["loss"] if records else None, waited[2].ru_maxrss * 1024, clock.cpu_s)
    if stopped:
        run.stopped_after_s = ended - began
        run.unfinished_step_s = ended - newest if began_steps else None
    return run


def run_headrace(contestant, options, folder):
    if not options.headrace.is_file():
        raise Failed(f"{options.headrace} is not built: scripts/build")
    command = [
        options.headrace, "train", options.model, options.scratch / "data.jsonl",
        "--nvme", options.scratch, f"output_dir={folder}/run", f"dtype={contestant.dtype}",
        f"max_length={options.tokens}", "per_device_train_batch_size=1",
        f"gradient_accumulation_steps={options.micro_batches}",
        f"max_steps={steps_of(contestant, options)}",
        "learning_rate=1e-4", "lr_scheduler_type=constant", "warmup_ratio=0", "shuffle=false",
        "device=host", f"compute_threads={options.threads}", *contestant.placement, *options.set]
    environment = dict(os.environ, HEADRACE_PYTHON=str(PYTHON))
    return run_process(command, folder / "log", folder / "run" / "metrics.jsonl", environment,
                       options.timeout)


def run_peer(name, options, folder):
    python = PYTHON
    environment = dict(os.environ, OMP_NUM_THREADS=str(options.threads))
    if name.startswith("deepspeed"):
        python = PEERS_VENV / "bin" / "python"
        if not (PEERS_VENV / "requirements.sha256").exists():
            raise Failed("not installed: scripts/peers/setup")
        # A card that is there must not help, and what was compiled by setup is not compiled again.
        environment |= {"DS_ACCELERATOR": "cpu", "CUDA_VISIBLE_DEVICES": "",
                        "TORCH_EXTENSIONS_DIR": str(PEERS_VENV / "extensions"),
                        "PATH": f"{PEERS_VENV}/bin:{os.environ['PATH']}"}
    if not python.exists():
        raise Failed(f"{python} is missing: scripts/setup")
    scratch = options.scratch / "deepspeed"
    scratch.mkdir(exist_ok=True)
    command = [python, PEER, name, options.model, options.scratch / "data.jsonl", scratch,
               "--steps", options.steps, "--micro-batches", options.micro_batches,
               "--threads", options.threads]
    try:
        return run_process(command, folder / "log", folder / "log", environment, options.timeout)
    finally:
        shutil.rmtree(scratch)


def run(name, options, folder):
    """One process of the contestant, its files in `folder`; a Run, or Failed is raised."""
    contestant = CONTESTANTS[name]
    if contestant.placement:
        return run_headrace(contestant, options, folder)
    return run_peer(name, options, folder)
