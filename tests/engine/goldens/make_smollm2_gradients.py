#!/usr/bin/env python3
"""Writes smollm2_gradients.safetensors: how far transformers' bf16 gradients of SmolLM2 are from
fp64, per class of tensors, and what it takes to measure another program's distance.

    python tests/engine/goldens/make_smollm2_gradients.py models/smollm2-135m-instruct

The model is what scripts/prepare_model.py makes, the batch that of smollm2.json, the loss the mean
over trained tokens. The fp64 gradients (1 GB) are not stored: of each tensor there is a *sketch*,
BUCKETS sums of its elements with random signs, by a hash of name and element (buckets_of() here,
smollm2_test.cc there). A sketch is linear, and the squares of the sketch of a difference add up to
the square of the difference's norm on average, within a relative sqrt(2 / number of sums).

  distances (metadata)   JSON: class -> ||bf16 - fp64|| / ||fp64|| of all its tensors together: the
                         smaller one of transformers' two attentions, eager and sdpa
  norms (metadata)       JSON: class -> ||fp64||
  NAME                   the sketch of its fp64 gradient, fp64. RMSNorm and the softmax of
                         transformers are in fp32 whatever the model is in: 1e-6 of it is noise

Takes half a minute and 6 GB.
"""
import json
import pathlib
import sys

import numpy as np
import torch
from make_goldens import fnv1a
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

BUCKETS = {"embedding": 2048, "final_norm": 576}  # else 64: there are 30 tensors in a class
CLASSES = {"embed_tokens": "embedding", "q_proj": "query", "k_proj": "key", "v_proj": "value",
           "o_proj": "output", "gate_proj": "gate", "up_proj": "up", "down_proj": "down",
           "input_layernorm": "input_norm", "post_attention_layernorm": "post_norm",
           "model.norm": "final_norm"}


def class_of(name):
    return next(value for key, value in CLASSES.items() if f"{key}.weight" in name)


def buckets_of(name, element_count, bucket_count):
    """Bucket and sign of each element: splitmix64 of fnv1a(name) + element."""
    with np.errstate(over="ignore"):
        x = np.arange(element_count, dtype=np.uint64) + np.uint64(fnv1a(name))
        x = x + np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x = x ^ (x >> np.uint64(31))
    sign = 1.0 - 2.0 * (x & np.uint64(1)).astype(np.float64)
    return (x >> np.uint64(32)).astype(np.int64) % bucket_count, sign


def sketch(name, values):
    values = values.double().flatten().numpy()
    bucket_count = BUCKETS.get(class_of(name), 64)
    bucket, sign = buckets_of(name, values.size, bucket_count)
    return np.bincount(bucket, weights=sign * values, minlength=bucket_count)


def gradients(folder, golden, dtype, attention):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype,
                                                 attn_implementation=attention)
    shape = (golden["rows"], golden["columns"])
    logits = model(input_ids=torch.tensor(golden["input_ids"]).view(shape)).logits
    wide = logits if dtype == torch.float64 else logits.float()
    torch.nn.functional.cross_entropy(wide.flatten(0, 1), torch.tensor(golden["targets"]),
                                      ignore_index=-100).backward()
    return {name: parameter.grad for name, parameter in model.named_parameters()}


def norms_of(tensors):
    squares = {}
    for name, values in tensors:
        group = class_of(name)
        squares[group] = squares.get(group, 0.0) + float(values.square().sum())
    return {group: value ** 0.5 for group, value in squares.items()}


def main():
    folder = sys.argv[1]
    here = pathlib.Path(__file__).parent
    golden = json.loads((here / "smollm2.json").read_text())
    truth = gradients(folder, golden, torch.float64, "eager")
    norms = norms_of(truth.items())
    distances = {}
    for attention in ("eager", "sdpa"):
        rounded = gradients(folder, golden, torch.bfloat16, attention)
        away = norms_of((name, rounded[name].double() - exact) for name, exact in truth.items())
        for group, value in away.items():
            distances[group] = min(distances.get(group, np.inf), value / norms[group])
        # The sketch must tell the distance that it is for.
        told = {}
        for name, exact in truth.items():
            part = sketch(name, rounded[name].double() - exact)
            told[class_of(name)] = told.get(class_of(name), 0.0) + float((part ** 2).sum())
        for group, square in told.items():
            print(attention, group, away[group] / norms[group], square ** 0.5 / norms[group])
    save_file({name: torch.from_numpy(sketch(name, exact)) for name, exact in truth.items()},
              here / "smollm2_gradients.safetensors",
              metadata={"distances": json.dumps(distances), "norms": json.dumps(norms)})


if __name__ == "__main__":
    main()
