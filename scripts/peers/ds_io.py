#!/usr/bin/env python3
"""DeepSpeed's own I/O (the handle that its ds_io tool and its swapper use) on one file, as JSON.

usage: ds_io.py FILE --pattern read|write|mixed --bytes N --seconds S
                [--block BYTES] [--depth N] [--parallel N] [--chunk BYTES]

Runs in the environment of scripts/peers/setup. FILE exists and was written before. Transfers are
--chunk bytes at a time from a tensor that the handle locked, its fastest memory; it ends when both
--bytes are moved and --seconds have passed. mixed is two handles in two threads, as it has no other
way, held to 16 bytes read for 14 written as a step of Headrace has them.
"""

import argparse
import json
import os
import resource
import threading
import time

READ_SHARE, WRITE_SHARE = 16, 14


class Pace:
    """Who may go on: each side in turn, within two chunks of the ratio."""

    def __init__(self, pattern, options):
        self.pattern, self.options = pattern, options
        self.changed = threading.Condition()
        self.counts = {"read": 0, "write": 0}
        self.began = time.perf_counter()
        self.over = False

    def may_go(self, side):
        if self.pattern != "mixed":
            return True
        reads, writes = self.counts["read"], self.counts["write"]
        if side == "read":
            return reads * WRITE_SHARE <= (writes + 2) * READ_SHARE
        return writes * READ_SHARE <= (reads + 2) * WRITE_SHARE

    def begin(self, side):
        """The index of the side's next chunk, or None where there is none."""
        with self.changed:
            self.changed.wait_for(lambda: self.over or self.may_go(side))
            return None if self.over else self.counts[side]

    def end(self, side):
        with self.changed:
            self.counts[side] += 1
            moved = sum(self.counts.values()) * self.options.chunk
            passed = time.perf_counter() - self.began
            self.over |= moved >= self.options.bytes and passed >= self.options.seconds
            self.changed.notify_all()


def move(side, pace, handle, tensor, options, chunk_count):
    """One side's thread. In a mix the halves of the file are apart."""
    half = chunk_count // 2 if options.pattern == "mixed" else chunk_count
    first = half if options.pattern == "mixed" and side == "write" else 0
    call = handle.sync_pread if side == "read" else handle.sync_pwrite
    while (index := pace.begin(side)) is not None:
        offset = (first + index % half) * options.chunk
        if call(tensor, options.file, offset) == -1:
            raise RuntimeError(f"{side} of {options.chunk} bytes at {offset} of {options.file}")
        pace.end(side)


def parse_options():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--pattern", choices=["read", "write", "mixed"], required=True)
    parser.add_argument("--bytes", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--block", type=int, default=1 << 20)
    parser.add_argument("--depth", type=int, default=32)
    parser.add_argument("--parallel", type=int, default=1)
    parser.add_argument("--chunk", type=int, default=64 << 20)
    return parser.parse_args()


def main():
    options = parse_options()
    chunk_count = os.path.getsize(options.file) // options.chunk
    if chunk_count < 2:
        raise SystemExit(f"{options.file} has less than two chunks of {options.chunk} bytes")

    import torch
    from deepspeed.ops.op_builder import AsyncIOBuilder

    sides = ["read", "write"] if options.pattern == "mixed" else [options.pattern]
    module = AsyncIOBuilder().load(verbose=False)
    handles, tensors = {}, {}
    for side in sides:
        # Not single_submit; submission and completion overlap: its defaults, and its best.
        handles[side] = module.aio_handle(options.block, options.depth, False, True,
                                          options.parallel)
        tensors[side] = handles[side].new_cpu_locked_tensor(
            options.chunk, torch.empty(0, dtype=torch.uint8))
        tensors[side].random_(0, 256)

    pace = Pace(options.pattern, options)
    threads = [threading.Thread(target=move, args=(side, pace, handles[side], tensors[side],
                                                   options, chunk_count)) for side in sides]
    before = resource.getrusage(resource.RUSAGE_SELF)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - pace.began
    after = resource.getrusage(resource.RUSAGE_SELF)
    if not pace.over:
        raise SystemExit("a transfer failed; see above")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(json.dumps({"read_bytes": pace.counts["read"] * options.chunk,
                      "write_bytes": pace.counts["write"] * options.chunk,
                      "seconds": seconds, "cpu_seconds": cpu}))
    for side in sides:
        handles[side].free_cpu_locked_tensor(tensors[side])


if __name__ == "__main__":
    main()
