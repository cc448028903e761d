#!/usr/bin/env python3
"""How fast PyTorch multiplies matrices here, in fp32 and in bf16: the estimate of compare.py.

usage: rate.py WIDTH INNER TOKENS THREADS      prints {"fp32": flops per s, "bf16": flops per s}

The product and both its gradients, as a linear layer of the model does them: hosts without bf16
arithmetic may do one of the three at a tenth of the speed of another.
"""

import json
import sys
import time

import torch

SECONDS_MIN = 0.3  # per dtype; a single pass may take longer


def flops_per_s(dtype, width, inner, tokens):
    linear = torch.nn.Linear(width, inner, bias=False, dtype=dtype)
    source = torch.ones(tokens, width, dtype=dtype, requires_grad=True)
    upstream = torch.ones(tokens, inner, dtype=dtype)
    linear(source).backward(upstream)  # the first pass is slower
    began, passes = time.perf_counter(), 0
    while passes == 0 or time.perf_counter() - began < SECONDS_MIN:
        linear(source).backward(upstream)
        passes += 1
    return 3 * 2 * width * inner * tokens * passes / (time.perf_counter() - began)


def main():
    width, inner, tokens, threads = (int(word) for word in sys.argv[1:])
    torch.set_num_threads(threads)
    print(json.dumps({name: flops_per_s(dtype, width, inner, tokens)
                      for name, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16))}))


if __name__ == "__main__":
    main()
