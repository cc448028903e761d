#!/usr/bin/env python3
"""Two unequal drives together: striping by their measured rates against striping evenly.

usage: check_striping.py --path FOLDER [--rates 600,200] [--size 512MiB] [--rounds 2]

Makes two drives of this machine's own: files in FOLDER as loop devices with ext4, each held to its
rate (MB/s, reads and writes alike) by a blkio control group, so it needs root and cgroup v1, and
says so where they are missing (exit code 2). `headrace bench nvme` then measures each drive alone
and both together, by weights and evenly, in interleaved rounds. Prints a Markdown table. Exit code
1 if the weighted stripes reach less than 0.9 of the sum of the drives in any pattern.
"""

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BLKIO = Path("/sys/fs/cgroup/blkio")
LEAST_SHARE = 0.9
SECONDS = 3  # of a row: a throttled drive gives up to a tenth of a second for nothing at the start


class Missing(Exception):
    """What this machine lacks; the text says it."""


def run(*words, **more):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, **more)
    if done.returncode != 0:
        raise Missing(f"{' '.join(str(word) for word in words[:2])}: {done.stderr.strip()[:300]}")
    return done.stdout.strip()


def bytes_of(text):
    return int(text.removesuffix("MiB")) << 20 if text.endswith("MiB") else int(text)


def check_machine():
    if os.geteuid() != 0:
        raise Missing("root is needed, for loop devices and control groups")
    if not (BLKIO / "cgroup.procs").exists():
        raise Missing(f"{BLKIO} is not there: cgroup v1's blkio is what holds a drive to a rate")
    for program in ("losetup", "mkfs.ext4", "mount"):
        if shutil.which(program) is None:
            raise Missing(f"{program} is not installed")


def make_drive(folder, name, size_bytes, undo):
    """A mounted ext4 on a loop device over a file that was written once; (mount point, device)."""
    image = folder / f"{name}.img"
    with open(image, "wb") as file:
        os.posix_fallocate(file.fileno(), 0, size_bytes)
        for _ in range(0, size_bytes, 16 << 20):
            file.write(b"\xa5" * (16 << 20))
    device = run("losetup", "--find", "--show", "--direct-io=on", image)
    undo.callback(run, "losetup", "--detach", device)
    run("mkfs.ext4", "-q", "-O", "^has_journal", "-E", "nodiscard,lazy_itable_init=0", device)
    place = folder / name
    place.mkdir()
    run("mount", device, place)
    undo.callback(run, "umount", place)
    return place, device


def make_group(devices, rates, undo):
    """A blkio group that holds each device to its rate; its cgroup.procs."""
    group = Path(tempfile.mkdtemp(prefix="headrace-striping-", dir=BLKIO))
    undo.callback(group.rmdir)
    for device, rate in zip(devices, rates):
        facts = os.stat(device)
        line = f"{os.major(facts.st_rdev)}:{os.minor(facts.st_rdev)} {int(rate * 1e6)}"
        for side in ("read", "write"):
            (group / f"blkio.throttle.{side}_bps_device").write_text(line)
    return group / "cgroup.procs"


def measure(places, procs, options, folder):
    command = [options.headrace, "bench", "nvme", "--json", "--engine", "uring",
               "--rounds", options.rounds, "--size", options.size, "--seconds", SECONDS,
               "--sustained-bytes", options.size]
    for place in places:
        command += ["--path", place]
    # In the group before the first byte moves. Made-up drives are not remembered.
    done = run("/bin/sh", "-c", 'echo $$ > "$0" && exec "$@"', procs, *command,
               env=dict(os.environ, HEADRACE_CACHE=str(folder)))
    return json.loads(done)


def table(rows, places):
    """(lines, the least share of a weighted stripe)."""
    names = [str(place) for place in places]
    lines = ["| pattern | " + " | ".join(place.name + " alone" for place in places) +
             " | sum | by weights | evenly |", "|---|" + "---|" * (len(places) + 3)]
    least = None
    for pattern in ("read", "write", "mixed"):
        # Those that stand beside the stripes: the last of each.
        alone = {row["path"]: row["achieved"] for row in rows
                 if row["pattern"] == pattern and row["path"] in names and
                 row.get("buffers") == "pool"}
        together = [row for row in rows if row["pattern"] == pattern and row["path"] not in names]
        by_weights, evenly = together[0], (together[1:] or [together[0]])[0]
        share = by_weights["ratio"]
        least = share if least is None else min(least, share)
        weights = by_weights["name"].split("weights ")[1]
        lines.append(
            f"| {pattern} | " + " | ".join(f"{alone[name]:.2f}" for name in names) +
            f" | {by_weights['ceiling']:.2f} | {by_weights['achieved']:.2f} ({share:.2f}, "
            f"{weights}) | {evenly['achieved']:.2f} ({evenly['ratio']:.2f}) |")
    return lines, least


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--path", type=Path, required=True, help="a folder on a fast drive")
    parser.add_argument("--rates", default="600,200", help="MB/s of each drive")
    parser.add_argument("--size", type=bytes_of, default=512 << 20)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--headrace", type=Path, default=ROOT / "build" / "release" / "headrace")
    options = parser.parse_args()
    rates = [float(rate) for rate in options.rates.split(",")]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        check_machine()
        with contextlib.ExitStack() as undo:
            folder = Path(undo.enter_context(
                tempfile.TemporaryDirectory(prefix="striping-", dir=options.path)))
            # The drive alone, its share of the weighted and of the even stripe, and room to spare.
            size_bytes = (4 * options.size + (64 << 20)) >> 24 << 24
            drives = [make_drive(folder, f"drive{index}", size_bytes, undo)
                      for index in range(len(rates))]
            procs = make_group([device for _, device in drives], rates, undo)
            places = [place for place, _ in drives]
            lines, least = table(measure(places, procs, options, folder), places)
    except Missing as missing:
        print(f"check_striping.py: {missing}", file=sys.stderr)
        sys.exit(2)
    print(f"GB/s; drives held to {options.rates} MB/s by cgroup v1 blkio; in brackets: of the sum")
    print()
    print("\n".join(lines))
    if least < LEAST_SHARE:
        sys.exit(f"check_striping.py: {least:.2f} of the sum, at least {LEAST_SHARE} is wanted")


if __name__ == "__main__":
    main()
