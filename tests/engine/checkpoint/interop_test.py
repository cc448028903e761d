"""Goal: what this program exports, others open, and what others save, this program reads (CKPT-6).
Method: tiny Llamas made by transformers, copied by copy_model, opened by safetensors and
transformers: same names, shapes, values and logits; a tied weight is stored once.
Usage: interop_test.py COPY_MODEL
"""
import json
import os
import subprocess
import sys
import tempfile

import torch
from safetensors import safe_open
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
LLAMA3 = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0,
          "high_freq_factor": 4.0, "original_max_position_embeddings": 64}


def tiny_model(tied, dtype):
    torch.manual_seed(7)
    config = LlamaConfig(
        vocab_size=259, hidden_size=64, intermediate_size=172, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256,
        tie_word_embeddings=tied, rope_parameters=LLAMA3 if tied else None,
        attn_implementation="eager")
    return LlamaForCausalLM(config).to(dtype)


def weights_in(folder):
    """{name: tensor} over all files, and the number of files; a name twice is an error."""
    tensors = {}
    files = sorted(name for name in os.listdir(folder) if name.endswith(".safetensors"))
    for name in files:
        with safe_open(os.path.join(folder, name), "pt") as stored:
            assert stored.metadata()["format"] == "pt"
            for key in stored.keys():
                assert key not in tensors, key
                tensors[key] = stored.get_tensor(key)
    return tensors, files


def hi_half(tensor):
    """bf16 by rounding half away from zero, as the fp32 master is split."""
    bits = tensor.float().contiguous().view(torch.int32).to(torch.int64) & 0xFFFFFFFF
    return ((((bits + 0x8000) >> 16) << 16) & 0xFFFFFFFF).to(torch.uint32).view(torch.float32)


def check(copy_model, folder, tied, source_dtype, target_dtype, shard_bytes):
    source, target = os.path.join(folder, "source"), os.path.join(folder, "target")
    tiny_model(tied, DTYPES[source_dtype]).save_pretrained(source, max_shard_size="100KB")
    subprocess.run([copy_model, source, target, target_dtype, shard_bytes], check=True)
    want, source_files = weights_in(source)
    have, target_files = weights_in(target)
    assert len(source_files) > 1
    assert (len(target_files) > 1) == (shard_bytes != "5GB"), target_files
    assert have.keys() == want.keys()
    assert ("lm_head.weight" in have) == (not tied)
    for name, tensor in have.items():
        assert tensor.dtype == DTYPES[target_dtype] and tensor.shape == want[name].shape, name
        exact = (hi_half(want[name]) if (source_dtype, target_dtype) == ("fp32", "bf16")
                 else want[name].to(DTYPES[target_dtype]).float())
        assert torch.equal(tensor.float(), exact), name
    if len(target_files) > 1:
        with open(os.path.join(target, "model.safetensors.index.json")) as text:
            index = json.load(text)
        assert index["metadata"]["total_size"] == sum(t.nbytes for t in have.values())
        assert index["weight_map"].keys() == have.keys()
    with open(os.path.join(target, "config.json")) as text:
        assert json.load(text)["tie_word_embeddings"] == tied
    size_bytes = sum(os.path.getsize(os.path.join(target, name)) for name in target_files)
    slack_bytes = 4096 * len(target_files)
    assert size_bytes - slack_bytes <= 1.01 * sum(t.nbytes for t in have.values())

    opened, report = AutoModelForCausalLM.from_pretrained(
        target, output_loading_info=True, attn_implementation="eager")
    assert not report["missing_keys"] and not report["unexpected_keys"], report
    assert opened.dtype == DTYPES[target_dtype], opened.dtype
    if tied:
        assert opened.lm_head.weight.data_ptr() == opened.model.embed_tokens.weight.data_ptr()
    if source_dtype == target_dtype:
        original = AutoModelForCausalLM.from_pretrained(source, attn_implementation="eager")
        tokens = torch.arange(40).reshape(2, 20)
        with torch.no_grad():
            assert torch.equal(opened.eval()(tokens).logits, original.eval()(tokens).logits)


def main():
    torch.set_num_threads(1)
    cases = [
        (True, "bf16", "bf16", "5GB"),
        (False, "bf16", "bf16", "100KB"),
        (True, "fp32", "fp32", "60KB"),
        (False, "fp32", "bf16", "5GB"),
        (True, "fp32", "fp16", "5GB"),
        (False, "bf16", "fp32", "5GB"),
    ]
    for case in cases:
        with tempfile.TemporaryDirectory() as folder:
            check(sys.argv[1], folder, *case)
        print("ok", *case, flush=True)


if __name__ == "__main__":
    main()
