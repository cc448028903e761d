"""fio on one file that was written before: the command, and what its JSON says."""

import json
import subprocess

READ_PERCENT = 53  # 16 bytes read for 14 written, as a step of Headrace has them
PATTERNS = {"read": ["--rw=read"], "write": ["--rw=write"],
            "mixed": ["--rw=rw", f"--rwmixread={READ_PERCENT}"]}


class Failed(Exception):
    """fio could not run, or refused; the text says why."""


def command(file, pattern, engine, huge, options):
    """Its fastest way of the same work: direct, buffers and file registered where it can, none of
    its own work on what it writes."""
    words = ["fio", "--name=peer", f"--filename={file}", *PATTERNS[pattern],
             f"--bs={options.block}", f"--iodepth={options.depth}", f"--ioengine={engine}",
             "--direct=1", f"--size={options.size}", "--time_based",
             f"--runtime={max(1, round(options.seconds))}", "--scramble_buffers=0",
             "--gtod_reduce=1", "--thread", "--allow_file_create=0", "--output-format=json"]
    if engine == "io_uring":
        words += ["--fixedbufs", "--registerfiles"]
    if huge:
        words += ["--mem=mmaphuge"]
    return words


def run(file, pattern, engine, huge, options):
    """{"read_bytes", "write_bytes", "seconds", "cpu_seconds"} of one run."""
    try:
        done = subprocess.run(command(file, pattern, engine, huge, options), capture_output=True,
                              text=True, timeout=options.timeout)
    except FileNotFoundError:
        raise Failed("fio is not installed: scripts/peers/setup") from None
    except subprocess.TimeoutExpired:
        raise Failed(f"fio took more than {options.timeout:g} s") from None
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise Failed(f"fio: exit code {done.returncode}: {(said or [''])[-1][:160]}")
    job = json.loads(done.stdout[done.stdout.index("{"):])["jobs"][0]
    if job["error"] != 0:
        raise Failed(f"fio: error {job['error']}")
    seconds = max(job["read"]["runtime"], job["write"]["runtime"]) / 1e3
    return {"read_bytes": job["read"]["io_bytes"], "write_bytes": job["write"]["io_bytes"],
            "seconds": seconds,
            "cpu_seconds": (job["usr_cpu"] + job["sys_cpu"]) / 100 * seconds}
