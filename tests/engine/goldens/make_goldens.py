#!/usr/bin/env python3
"""Writes the goldens: what transformers and torch say about tiny Llamas.

    python tests/engine/goldens/make_goldens.py        (torch 2.11, transformers 5.24, safetensors)

Run by hand; the results are committed, so that the C++ tests need no Python. Weights are not
stored: both sides compute them from a hash of name and element (weight() here, golden.cc there).
Everything is fp32 with eager attention. Each file holds, for one model:

  config (metadata)   the config.json
  inputs.M, targets.M micro-batch M: (rows, columns) int32, targets shifted, -100 where not trained
  logits              of the first micro-batch, (tokens, vocabulary)
  loss                sum over trained tokens of both micro-batches / their number, fp64
  grad.NAME           gradient of that loss
  step.losses, step.norms, step.NAME   5 AdamW steps over the same two micro-batches, with clipping:
                      loss and norm (before clipping) of each step, weights after the last

The two micro-batches train different numbers of tokens, so a mean of means would be seen.
"""
import json
import pathlib

import numpy as np
import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM

MODELS = {
    "tied": dict(hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
                 num_key_value_heads=2, vocab_size=259, tie_word_embeddings=True,
                 rms_norm_eps=1e-5, rope_parameters=dict(rope_type="default", rope_theta=10000.0)),
    "untied_llama3": dict(hidden_size=32, intermediate_size=56, num_hidden_layers=3,
                          num_attention_heads=4, num_key_value_heads=1, vocab_size=131,
                          tie_word_embeddings=False, rms_norm_eps=1e-6,
                          rope_parameters=dict(rope_type="llama3", rope_theta=500.0, factor=8.0,
                                               low_freq_factor=1.0, high_freq_factor=4.0,
                                               original_max_position_embeddings=64)),
    "wide_heads": dict(hidden_size=40, intermediate_size=72, num_hidden_layers=2,
                       num_attention_heads=5, num_key_value_heads=5, head_dim=14, vocab_size=67,
                       tie_word_embeddings=False, rms_norm_eps=1e-5,
                       rope_parameters=dict(rope_type="default", rope_theta=10000.0)),
}
ADAMW = dict(lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.1)
STEP_COUNT = 5
MASK = (1 << 64) - 1


def fnv1a(text):
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = ((value ^ byte) * 0x100000001B3) & MASK
    return value


def weight(name, shape):
    """Uniform in [-0.1, 0.1) (norms: 1 + that), by splitmix64 of fnv1a(name) + element."""
    count = int(np.prod(shape))
    with np.errstate(over="ignore"):
        x = np.arange(count, dtype=np.uint64) + np.uint64(fnv1a(name))
        x = (x + np.uint64(0x9E3779B97F4A7C15))
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x = x ^ (x >> np.uint64(31))
    unit = (x >> np.uint64(40)).astype(np.float64) / 2.0**24
    values = (unit - 0.5) * 0.2 + (1.0 if "norm" in name else 0.0)
    return torch.from_numpy(values.astype(np.float32)).reshape(shape)


def micro_batches(vocab_size):
    generator = torch.Generator().manual_seed(7)
    result = []
    for rows, columns in ((2, 13), (1, 21)):
        inputs = torch.randint(0, vocab_size, (rows, columns), generator=generator)
        targets = torch.full_like(inputs, -100)
        targets[:, :-1] = inputs[:, 1:]
        targets[0, :4] = -100  # a prompt
        result.append((inputs, targets))
    inputs, targets = result[0]  # the second row is padded from column 9 on
    inputs[1, 9:] = 0
    targets[1, 8:] = -100
    return result


def loss_of(model, batches):
    trained = sum(int((targets != -100).sum()) for _, targets in batches)
    total = 0
    for inputs, targets in batches:
        logits = model(input_ids=inputs).logits.float()
        total = total + torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), targets.flatten(), ignore_index=-100, reduction="sum")
    return total / trained


def main():
    folder = pathlib.Path(__file__).parent
    torch.set_num_threads(1)
    for name, fields in MODELS.items():
        config = LlamaConfig(max_position_embeddings=256, attn_implementation="eager", **fields)
        model = LlamaForCausalLM(config).float()
        with torch.no_grad():
            for tensor_name, parameter in model.named_parameters():
                parameter.copy_(weight(tensor_name, tuple(parameter.shape)))
        model.tie_weights()
        batches = micro_batches(config.vocab_size)
        out = {}
        for index, (inputs, targets) in enumerate(batches):
            out[f"inputs.{index}"] = inputs.int()
            out[f"targets.{index}"] = targets.int()
        loss = loss_of(model, batches)
        loss.backward()
        out["loss"] = loss.detach().double().reshape(1)
        with torch.no_grad():
            out["logits"] = model(input_ids=batches[0][0]).logits.float().flatten(0, 1)
        for tensor_name, parameter in model.named_parameters():
            out[f"grad.{tensor_name}"] = parameter.grad.clone()
        norm = float(torch.nn.utils.get_total_norm([p.grad for p in model.parameters()]))
        max_norm = round(norm * 0.5, 3)  # clips at every step
        optimizer = torch.optim.AdamW(model.parameters(), **ADAMW)
        losses, norms = [], []
        for _ in range(STEP_COUNT):
            optimizer.zero_grad()
            loss = loss_of(model, batches)
            loss.backward()
            norms.append(float(torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)))
            losses.append(float(loss.detach()))
            optimizer.step()
        assert all(value > max_norm for value in norms), (norms, max_norm)
        out["step.losses"] = torch.tensor(losses, dtype=torch.float64)
        out["step.norms"] = torch.tensor(norms, dtype=torch.float64)
        out["step.max_norm"] = torch.tensor([max_norm], dtype=torch.float64)
        for tensor_name, parameter in model.named_parameters():
            out[f"step.{tensor_name}"] = parameter.detach().clone()
        text = json.dumps({**config.to_dict(), "architectures": ["LlamaForCausalLM"]})
        save_file({key: value.contiguous() for key, value in out.items()},
                  folder / f"{name}.safetensors", metadata={"config": text})
        print(name, losses, norms, max_norm)


if __name__ == "__main__":
    main()
