#!/usr/bin/env python3
"""Training steps of a causal language model on the CPU by a peer; one JSON line per step, and
{"ready": true} before the first.

usage: peer.py MODE MODEL_DIR DATA.jsonl SCRATCH_DIR --steps N --micro-batches M --threads T

MODE:
  pytorch-bf16         everything in memory; weights and both moments in bf16, no master weights
  pytorch-master       everything in memory; weights and moments in fp32, bf16 autocast
  pytorch-fp32         everything in memory; weights, moments and compute in fp32
  deepspeed-cpu        ZeRO-3, parameters and optimizer in memory (bf16, fp32 master)
  deepspeed-nvme       ZeRO-3, both in files in SCRATCH_DIR, with its fastest settings
  deepspeed-nvme-lean  the same, with the settings that take the least memory
  deepspeed-...-fp32   each of the three in fp32
DATA.jsonl holds {"input_ids": [...]} lines, one a micro-batch, every token trained. All modes:
fused or native AdamW, lr 1e-4 constant, clipping at norm 1.0, activations recomputed per layer.
"""

import argparse
import json
import os
import socket
import time

CLIP_NORM = 1.0
LEARNING_RATE = 1e-4


def pytorch_step(model, micro_batches, autocast):
    """A function that does one optimizer step and returns the mean loss of its micro-batches."""
    import torch

    optimizer = torch.optim.AdamW(
        model.parameters(), lr=LEARNING_RATE, weight_decay=0.0, fused=True)

    def step(batch):
        total = 0.0
        for ids in batch:
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
                loss = model(input_ids=ids, labels=ids).loss
            (loss / micro_batches).backward()
            total += float(loss.detach())
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP_NORM)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return total / micro_batches

    return step


def deepspeed_config(device, lean, dtype, largest_tensor, micro_batches, scratch):
    """Two settings of its swapper. Fastest on SmolLM2-135M: sub-groups of one large tensor, its
    pipeline, and many buffers (with fewer than 12 the pipeline stops with an assertion). Leanest:
    no pipeline, and the four buffers that one update needs: weight, gradient and two moments.
    A buffer holds the largest tensor, which is the embedding."""
    optimizer = {"device": device, "buffer_count": 4 if lean else 16}
    parameters = {"device": device, "buffer_count": 5 if lean else 12,
                  "buffer_size": largest_tensor if lean else max(32_000_000, largest_tensor)}
    if device == "nvme":
        optimizer |= {"nvme_path": scratch, "pipeline_read": not lean, "pipeline_write": not lean}
        parameters |= {"nvme_path": scratch}
    return {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": micro_batches,
        "bf16": {"enabled": dtype == "bf16"},
        "gradient_clipping": CLIP_NORM,
        "zero_optimization": {
            "stage": 3,
            "sub_group_size": max(29_000_000, largest_tensor),
            "stage3_max_live_parameters": 10_000_000,
            "stage3_prefetch_bucket_size": 10_000_000,
            "offload_optimizer": optimizer,
            "offload_param": parameters,
        },
        "aio": {"block_size": 1 << 20, "queue_depth": 32, "intra_op_parallelism": 1,
                "single_submit": False, "overlap_events": True},
        "optimizer": {"type": "AdamW", "params": {"lr": LEARNING_RATE, "weight_decay": 0.0}},
        "steps_per_print": 1 << 30,
    }


def deepspeed_step(model, mode, dtype, micro_batches, scratch):
    import deepspeed

    device, _, lean = mode.removeprefix("deepspeed-").removesuffix("-fp32").partition("-")
    largest_tensor = max(parameter.numel() for parameter in model.parameters())
    engine, *_ = deepspeed.initialize(
        model=model, model_parameters=model.parameters(),
        config=deepspeed_config(device, lean == "lean", dtype, largest_tensor, micro_batches,
                                scratch))

    def step(batch):
        total = 0.0
        for ids in batch:
            loss = engine(input_ids=ids, labels=ids).loss
            engine.backward(loss)
            engine.step()  # updates at the last micro-batch only
            total += float(loss.detach())
        return total / micro_batches

    return step


def parse_options():
    deepspeed = ["deepspeed-cpu", "deepspeed-nvme", "deepspeed-nvme-lean"]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", choices=[
        "pytorch-bf16", "pytorch-master", "pytorch-fp32", *deepspeed,
        *(f"{mode}-fp32" for mode in deepspeed)])
    for name in ("model", "data", "scratch"):
        parser.add_argument(name)
    for name in ("--steps", "--micro-batches", "--threads"):
        parser.add_argument(name, type=int, required=True)
    return parser.parse_args()


def main():
    options = parse_options()
    # One rank, without a launcher; the port is asked of the system, so that two runs may coexist.
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK="0", WORLD_SIZE="1",
                      LOCAL_RANK="0", HF_HUB_OFFLINE="1")

    import torch
    import transformers

    torch.set_num_threads(options.threads)
    autocast = options.mode == "pytorch-master"
    dtype = "fp32" if options.mode.endswith("-fp32") else "bf16"
    model = transformers.AutoModelForCausalLM.from_pretrained(
        options.model, dtype=torch.bfloat16 if dtype == "bf16" and not autocast else torch.float32)
    model.gradient_checkpointing_enable()
    model.config.use_cache = False
    model.train()

    with open(options.data, encoding="utf-8") as lines:
        samples = [torch.tensor([json.loads(line)["input_ids"]]) for line in lines]
    count = options.micro_batches
    if options.mode.startswith("pytorch"):
        step = pytorch_step(model, count, autocast)
    else:
        step = deepspeed_step(model, options.mode, dtype, count, options.scratch)

    print(json.dumps({"ready": True}), flush=True)
    for index in range(options.steps):
        first = index * count % len(samples)
        began = time.perf_counter()
        loss = step(samples[first:first + count])
        print(json.dumps({"step": index + 1, "loss": loss,
                          "time_ms": 1e3 * (time.perf_counter() - began)}), flush=True)


if __name__ == "__main__":
    main()
