"""What a comparison says of the machine and the commit that it ran on."""

import os
import subprocess
import sys
from pathlib import Path

from contest import ROOT


def machine_line(script):
    """`script`: its path from the root of the project."""
    def said(*words):
        return subprocess.run(words, capture_output=True, text=True).stdout.strip()
    commit = said("git", "-C", str(ROOT), "rev-parse", "--short", "HEAD") or "unknown"
    if said("git", "-C", str(ROOT), "status", "--porcelain", "--untracked-files=no"):
        commit += ", with changes"
    cpu = [line.split(":", 1)[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
           if line.startswith("model name")]
    return (f"{(cpu or ['unknown CPU'])[0]}, {len(os.sched_getaffinity(0))} cores, kernel "
            f"{os.uname().release}. Commit {commit}: `{script} {' '.join(sys.argv[1:])}`")
