#!/usr/bin/env python3
"""Writes smollm2.json: the loss that transformers gives a fixed batch of text with SmolLM2-135M.

    python tests/engine/goldens/make_smollm2_golden.py models/smollm2-135m-instruct

The model is what scripts/prepare_model.py makes. Losses are means over trained tokens, eager
attention, in fp32 and in bf16, logits widened to fp32 for the softmax.
"""
import json
import pathlib
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

TEXTS = [
    "In the beginning God created the heaven and the earth. And the earth was without form, and "
    "void; and darkness was upon the face of the deep. And the Spirit of God moved upon the face "
    "of the waters. And God said, Let there be light: and there was light. And God saw the light, "
    "that it was good.",
    "A headrace is the channel that brings water to a turbine. It is dug along the hillside with "
    "hardly any slope, so that the water arrives high above the wheel, and falls only where its "
    "fall is wanted.",
]
COLUMNS = 72


def main():
    folder = sys.argv[1]
    tokenizer = AutoTokenizer.from_pretrained(folder)
    inputs = torch.zeros((len(TEXTS), COLUMNS), dtype=torch.long)
    targets = torch.full_like(inputs, -100)
    for row, text in enumerate(TEXTS):
        ids = tokenizer(text)["input_ids"][:COLUMNS]
        inputs[row, :len(ids)] = torch.tensor(ids)
        targets[row, :len(ids) - 1] = torch.tensor(ids[1:])
    losses = {}
    for name, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype,
                                                     attn_implementation="eager")
        with torch.no_grad():
            logits = model(input_ids=inputs).logits.float()
        losses[name] = float(torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), targets.flatten(), ignore_index=-100))
    out = {"rows": len(TEXTS), "columns": COLUMNS, "loss_fp32": losses["fp32"],
           "loss_bf16": losses["bf16"], "input_ids": inputs.flatten().tolist(),
           "targets": targets.flatten().tolist()}
    path = pathlib.Path(__file__).parent / "smollm2.json"
    path.write_text(json.dumps(out) + "\n")
    print(losses)


if __name__ == "__main__":
    main()
