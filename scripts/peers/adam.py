#!/usr/bin/env python3
"""Updates of peers on one flat run of parameters, for compare_adam.py: a process that measures what
it is asked for. One name per line on stdin, one JSON line {"name", "parameters_per_s"} for each.

usage: adam.py --parameters N --threads T [--seconds S]

NAME is OPTIMIZER-WORK. OPTIMIZER: torch (fused AdamW), deepspeed (DeepSpeedCPUAdam). WORK:
  fp32       the bare kernel: fp32 weights, states and gradients
  mixed      what a mixed-precision step with fp32 masters does around it: gradients from bf16 to
             fp32, their global norm, the clip, the update, weights from fp32 to bf16; each over all
             parameters before the next, as peers do
  blocked-K  the same with everything but the norm done block by block, K Ki parameters each, so
             that the blocks stay in cache; nobody ships it, it is what could be had with their
             kernels
and deepspeed-engine: engine.step() of a real run with ZeRO stage 2 and its optimizer on the CPU, a
chain of linear layers in bf16 with as many parameters. Its backward, which is not timed, has done
the conversion of the gradients; the step still has norm, clip, update and copying back.
"""

import argparse
import json
import os
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import torch

SETTINGS = {"lr": 1e-5, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.01}


class Kernel:
    """One optimizer's update of a slice of a flat run, with its states."""

    def __init__(self, optimizer, weight):
        self.weight = weight
        self.m, self.v = torch.zeros_like(weight), torch.zeros_like(weight)
        self.step = torch.tensor(1000.0)
        self.update = getattr(self, f"update_{optimizer}")
        if optimizer == "deepspeed":
            from deepspeed.ops.adam import DeepSpeedCPUAdam
            self.deepspeed = DeepSpeedCPUAdam([torch.nn.Parameter(torch.zeros(1))], **SETTINGS)

    def update_torch(self, gradient, part):
        torch._fused_adamw_(
            [self.weight[part]], [gradient], [self.m[part]], [self.v[part]], [], [self.step],
            lr=SETTINGS["lr"], beta1=SETTINGS["betas"][0], beta2=SETTINGS["betas"][1],
            weight_decay=SETTINGS["weight_decay"], eps=SETTINGS["eps"], amsgrad=False,
            maximize=False)

    def update_deepspeed(self, gradient, part):
        self.deepspeed.ds_opt_adam.adam_update(
            self.deepspeed.opt_id, 1000, SETTINGS["lr"], *SETTINGS["betas"], SETTINGS["eps"],
            SETTINGS["weight_decay"], True, self.weight[part], gradient, self.m[part],
            self.v[part])


class Peers:
    """All works of both optimizers, over memory that they share where they can."""

    def __init__(self, parameter_count, threads):
        self.threads = threads
        generator = torch.Generator().manual_seed(1)
        weight = torch.rand(parameter_count, generator=generator).sub_(0.5).mul_(0.1)
        self.gradient = torch.rand(parameter_count, generator=generator).sub_(0.5).mul_(2e-3)
        self.narrow_gradient = self.gradient.bfloat16()
        self.narrow_weight = weight.bfloat16()
        self.weight = weight
        self.kernels = {}
        self.engine = None

    def kernel(self, optimizer):
        if optimizer not in self.kernels:
            self.kernels[optimizer] = Kernel(optimizer, self.weight.clone())
        return self.kernels[optimizer]

    def work(self, name):
        """A function that does one update and returns the seconds it took."""
        if name == "deepspeed-engine":
            self.engine = self.engine or Engine(self.gradient.numel())
            return self.engine.step
        return timed(self.untimed_work(name))

    def untimed_work(self, name):
        optimizer, _, kind = name.partition("-")
        kernel = self.kernel(optimizer)
        whole = slice(None)
        if kind == "fp32":
            return lambda: kernel.update(self.gradient, whole)
        if kind == "mixed":
            return lambda: self.mixed(kernel)
        block = 1024 * int(kind.removeprefix("blocked-"))
        return lambda: self.blocked(kernel, block)

    def mixed(self, kernel):
        whole = slice(None)
        self.gradient.copy_(self.narrow_gradient)
        norm = float(torch.linalg.vector_norm(self.gradient))
        self.gradient.mul_(min(1.0, 1e9 / norm))
        kernel.update(self.gradient, whole)
        self.narrow_weight.copy_(kernel.weight)

    def blocked(self, kernel, block):
        """Every thread goes over blocks of its own, without waiting for the others."""
        count = self.narrow_gradient.numel()
        each = -(-count // (self.threads.count * block)) * block
        shares = [[slice(at, min(at + block, count))
                   for at in range(first, min(first + each, count), block)]
                  for first in range(0, count, each)]

        def squares_of(parts):
            scratch, squares = torch.empty(block), 0.0
            for part in parts:
                gradient = scratch[:part.stop - part.start].copy_(self.narrow_gradient[part])
                squares += float(torch.dot(gradient, gradient))
            return squares

        factor = min(1.0, 1e9 / sum(self.threads.map(squares_of, shares)) ** 0.5)

        def update(parts):
            scratch = torch.empty(block)
            for part in parts:
                gradient = scratch[:part.stop - part.start].copy_(self.narrow_gradient[part])
                kernel.update(gradient.mul_(factor), part)
                self.narrow_weight[part].copy_(kernel.weight[part])

        list(self.threads.map(update, shares))


class Threads:
    """Python threads, each of which computes alone; gradients are not recorded in them."""

    def __init__(self, count):
        self.count = count
        self.pool = ThreadPoolExecutor(count, initializer=self.prepare)

    @staticmethod
    def prepare():
        torch.set_num_threads(1)
        torch.set_grad_enabled(False)

    def map(self, work, shares):
        return self.pool.map(work, shares)


class Engine:
    """A real DeepSpeed run of about this many parameters, one rank, without a launcher."""

    WIDTH = 2048

    def __init__(self, parameter_count):
        import deepspeed
        with socket.socket() as probe:  # the port is asked of the system
            probe.bind(("127.0.0.1", 0))
            os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(probe.getsockname()[1]),
                              RANK="0", WORLD_SIZE="1", LOCAL_RANK="0")
        layers = [torch.nn.Linear(self.WIDTH, self.WIDTH, bias=False)
                  for _ in range(max(1, round(parameter_count / self.WIDTH ** 2)))]
        model = torch.nn.Sequential(*layers).bfloat16()
        self.parameter_count = sum(one.numel() for one in model.parameters())
        settings = {"lr": SETTINGS["lr"], "weight_decay": SETTINGS["weight_decay"]}
        self.engine, *_ = deepspeed.initialize(
            model=model, model_parameters=model.parameters(), config={
                "train_micro_batch_size_per_gpu": 1, "gradient_clipping": 1.0,
                "bf16": {"enabled": True}, "steps_per_print": 1 << 30,
                "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}},
                "optimizer": {"type": "AdamW", "params": settings}})

    def step(self):
        with torch.enable_grad():
            source = torch.ones(1, self.WIDTH, dtype=torch.bfloat16)
            self.engine.backward(self.engine(source).float().square().mean())
        began = time.perf_counter()
        self.engine.step()
        return time.perf_counter() - began


def timed(work):
    def run():
        began = time.perf_counter()
        work()
        return time.perf_counter() - began
    return run


def measure(work, seconds_min):
    work()  # caches, and pages that were not touched
    seconds, updates = 0.0, 0
    while updates == 0 or seconds < seconds_min:
        seconds += work()
        updates += 1
    return seconds, updates


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parameters", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--seconds", type=float, default=0.2, help="of each measurement, at least")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    with torch.no_grad():
        peers = Peers(options.parameters, Threads(options.threads))
        for line in sys.stdin:
            name = line.strip()
            seconds, updates = measure(peers.work(name), options.seconds)
            count = options.parameters
            if name == "deepspeed-engine":
                count = peers.engine.parameter_count
            print(json.dumps({"name": name, "parameters_per_s": updates * count / seconds}),
                  flush=True)


if __name__ == "__main__":
    main()
