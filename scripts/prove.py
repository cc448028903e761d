#!/usr/bin/env python3
"""Trains again with everything in memory, and inside a small memory cgroup; compares the weights.

usage: prove.py HEADRACE RUN_FILE RUNS_DIR

RUNS_DIR/nvme holds the finished run of RUN_FILE. This adds RUNS_DIR/resident (weights on the
device, states in memory) and RUNS_DIR/confined (RUN_FILE as it is, under a cgroup of 1.2 GiB
without swap, so that the kernel itself is the witness that the run needs no more), and compares the
sha256 of the final weights that each run wrote into its metrics.jsonl. Where this machine lets no
cgroup be made that is said, and the other two are compared. Exit code 1 if any two differ or a run
fails.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from show_change import Run, size_text

LIMIT_BYTES = int(1.2 * (1 << 30))
RESIDENT = ["parameters=gpu", "optimizer=ram", "activations=gpu", "gpu_budget=4GiB",
            "ram_budget=4GiB"]
CGROUP_ROOT = Path("/sys/fs/cgroup")


class Cgroup:
    """A memory cgroup of our own; removed at the end."""

    def __init__(self, folder, limit_file, peak_file, swap_file):
        self.folder, self.peak_file = folder, peak_file
        folder.mkdir()
        try:
            (folder / limit_file).write_text(str(LIMIT_BYTES))
            if (folder / swap_file[0]).exists():
                (folder / swap_file[0]).write_text(str(swap_file[1]))
        except OSError:
            folder.rmdir()
            raise

    def enter(self):
        """In the child, before it becomes headrace."""
        (self.folder / "cgroup.procs").write_text(str(os.getpid()))

    def peak_bytes(self):
        path = self.folder / self.peak_file
        return int(path.read_text()) if path.exists() else None

    def remove(self):
        self.folder.rmdir()


def make_cgroup():
    """(cgroup, why not): version 1 where its memory controller is mounted, else version 2."""
    name = f"headrace-prove-{os.getpid()}"
    try:
        if (CGROUP_ROOT / "memory" / "memory.limit_in_bytes").exists():
            return Cgroup(CGROUP_ROOT / "memory" / name, "memory.limit_in_bytes",
                          "memory.max_usage_in_bytes",
                          ("memory.memsw.limit_in_bytes", LIMIT_BYTES)), None
        if not (CGROUP_ROOT / "cgroup.subtree_control").exists():
            return None, f"no memory controller is mounted at {CGROUP_ROOT}"
        if "memory" not in (CGROUP_ROOT / "cgroup.subtree_control").read_text().split():
            return None, f"{CGROUP_ROOT}/cgroup.subtree_control does not hand memory to children"
        return Cgroup(CGROUP_ROOT / name, "memory.max", "memory.peak", ("memory.swap.max", 0)), None
    except OSError as error:
        return None, f"{error.strerror} ({error.filename})"


def train(command, enter=None):
    done = subprocess.run(command, preexec_fn=enter)
    if done.returncode != 0:
        killed = " (killed: it needed more memory than it may have)" * (done.returncode == -9)
        sys.exit(f"prove: exit code {done.returncode}{killed} of: {' '.join(command)}")


def train_confined(command):
    """Returns what may be said about the confined run, or None where there was none."""
    cgroup, why_not = make_cgroup()
    if cgroup is None:
        print(f"prove: no memory cgroup can be made here: {why_not}; as root on a machine of your "
              "own it can", file=sys.stderr)
        return None
    try:
        train(command, cgroup.enter)
        peak_bytes = cgroup.peak_bytes()
    finally:
        cgroup.remove()
    if peak_bytes is None:
        return "the kernel does not tell the peak"
    return f"peak {size_text(peak_bytes)}, file cache included"


def main():
    if len(sys.argv) != 4 or sys.argv[1] == "--help":
        sys.exit(__doc__)
    headrace, run_file, runs = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    for name in ("resident", "confined"):
        shutil.rmtree(runs / name, ignore_errors=True)
    base = [headrace, "train", run_file, "overwrite_output_dir=true"]  # of an interrupted proof

    print("\nprove: everything in memory", file=sys.stderr)
    train([*base, f"output_dir={runs}/resident", *RESIDENT])
    print(f"\nprove: in a memory cgroup of {size_text(LIMIT_BYTES)}", file=sys.stderr)
    told = train_confined([*base, f"output_dir={runs}/confined"])

    rows = [("nvme", "all on the drive"), ("resident", "all in memory")]
    if told:
        rows.append(("confined", f"all on the drive, {size_text(LIMIT_BYTES)} cgroup: {told}"))
    hashes = {name: Run(runs / name).facts.get("weights_sha256") for name, _ in rows}
    print("\nsha256 of the final weights")
    for name, words in rows:
        peak = Run(runs / name).facts.get("peak_rss_bytes")
        print(f"  {hashes[name]}  {words}" + (f"; peak RSS {size_text(peak)}" if peak else ""))
    if None in hashes.values() or len(set(hashes.values())) != 1:
        sys.exit("prove: the weights differ, or a run recorded no weights_sha256: this is a bug; "
                 "please report it with the three metrics.jsonl")
    print("  the same bits")


if __name__ == "__main__":
    main()
