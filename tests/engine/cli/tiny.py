"""What the tests of the program share: tiny models and data, and the program run as a user runs it.

A model is a Llama of two layers with a byte-level BPE of its own and a small chat template. Files
of weights are written here byte by byte, so that they can also be written wrongly.
"""
import json
import os
import random
import signal
import struct
import subprocess
from pathlib import Path

import tokenizers

HIDDEN, LAYERS, HEADS, KV_HEADS, INTERMEDIATE = 64, 2, 4, 2, 128
TALK = ["the gate is open and the water runs", "who closed the gate", "the miller closed it",
        "then the wheel stands still", "a wheel turns when the water runs", "so open the gate"]
CHAT_TEMPLATE = ("{% for m in messages %}{{ '<|begin|>' + m['role'] + '\n' + m['content'] + "
                 "'<|end|>' }}{% endfor %}"
                 "{% if add_generation_prompt %}{{ '<|begin|>assistant\n' }}{% endif %}")


def write_tokenizer(folder):
    """Trains a BPE on the talk; returns the size of its vocabulary."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=300, special_tokens=["<|begin|>", "<|end|>"], show_progress=False,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(TALK * 3, trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(
        {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<|begin|>",
         "eos_token": "<|end|>", "chat_template": CHAT_TEMPLATE}))
    return tokenizer.get_vocab_size()


def config_of(vocabulary_count, tied):
    return {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
            "hidden_size": HIDDEN, "intermediate_size": INTERMEDIATE, "num_hidden_layers": LAYERS,
            "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS,
            "vocab_size": vocabulary_count, "max_position_embeddings": 128, "rms_norm_eps": 1e-5,
            "rope_theta": 10000.0, "tie_word_embeddings": tied, "torch_dtype": "float32",
            "bos_token_id": 0, "eos_token_id": 1}


def shapes_of(vocabulary_count, tied):
    kv_width = HIDDEN // HEADS * KV_HEADS
    shapes = {"model.embed_tokens.weight": (vocabulary_count, HIDDEN)}
    for layer in range(LAYERS):
        name = f"model.layers.{layer}."
        shapes |= {name + "input_layernorm.weight": (HIDDEN,),
                   name + "self_attn.q_proj.weight": (HIDDEN, HIDDEN),
                   name + "self_attn.k_proj.weight": (kv_width, HIDDEN),
                   name + "self_attn.v_proj.weight": (kv_width, HIDDEN),
                   name + "self_attn.o_proj.weight": (HIDDEN, HIDDEN),
                   name + "post_attention_layernorm.weight": (HIDDEN,),
                   name + "mlp.gate_proj.weight": (INTERMEDIATE, HIDDEN),
                   name + "mlp.up_proj.weight": (INTERMEDIATE, HIDDEN),
                   name + "mlp.down_proj.weight": (HIDDEN, INTERMEDIATE)}
    shapes["model.norm.weight"] = (HIDDEN,)
    if not tied:
        shapes["lm_head.weight"] = (vocabulary_count, HIDDEN)
    return shapes


def random_weights(shapes):
    """{name: bytes} of fp32; norms are ones."""
    chance = random.Random(7)
    weights = {}
    for name, shape in shapes.items():
        count = 1
        for extent in shape:
            count *= extent
        values = ([1.0] * count if "norm" in name
                  else [chance.gauss(0, 0.05) for _ in range(count)])
        weights[name] = struct.pack(f"<{count}f", *values)
    return weights


def write_weights(path, shapes, weights):
    """A file of safetensors: the header's size, the header, the bytes of the tensors."""
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, stored in weights.items():
        header[name] = {"dtype": "F32", "shape": list(shapes[name]),
                        "data_offsets": [at, at + len(stored)]}
        at += len(stored)
    write_with_header(path, json.dumps(header), b"".join(weights.values()))


def write_with_header(path, header_text, stored):
    header = header_text.encode()
    header += b" " * (-len(header) % 8)
    path.write_bytes(struct.pack("<Q", len(header)) + header + stored)


def read_header(path):
    """(the header's text, the bytes after it)"""
    stored = path.read_bytes()
    size = struct.unpack("<Q", stored[:8])[0]
    return stored[8:8 + size].decode(), stored[8 + size:]


def write_model(folder, tied=True, shard_count=1):
    folder.mkdir(parents=True)
    vocabulary_count = write_tokenizer(folder)
    (folder / "config.json").write_text(json.dumps(config_of(vocabulary_count, tied), indent=1))
    shapes = shapes_of(vocabulary_count, tied)
    weights = random_weights(shapes)
    if shard_count == 1:
        write_weights(folder / "model.safetensors", shapes, weights)
        return
    weight_map = {}
    for shard in range(shard_count):
        name = f"model-{shard + 1:05}-of-{shard_count:05}.safetensors"
        kept = dict(list(weights.items())[shard::shard_count])
        write_weights(folder / name, shapes, kept)
        weight_map |= dict.fromkeys(kept, name)
    (folder / "model.safetensors.index.json").write_text(json.dumps(
        {"metadata": {"total_size": sum(map(len, weights.values()))}, "weight_map": weight_map}))


def write_lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def write_data(folder):
    """chat.jsonl, text.jsonl, prompt.jsonl and tokens.jsonl, four samples each."""
    folder.mkdir(parents=True)
    pairs = [(TALK[i], TALK[(i + 1) % len(TALK)]) for i in range(4)]
    write_lines(folder / "chat.jsonl", [
        {"messages": [{"role": "user", "content": question},
                      {"role": "assistant", "content": answer}]} for question, answer in pairs])
    write_lines(folder / "text.jsonl", [{"text": question} for question, _ in pairs])
    write_lines(folder / "prompt.jsonl", [{"prompt": question + " ", "completion": answer}
                                          for question, answer in pairs])
    write_lines(folder / "tokens.jsonl", [
        {"input_ids": [(7 * i + j) % 256 + 2 for j in range(12 + i)]} for i in range(4)])


class Outcome:
    """How a run of the program ended."""

    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err

    def __str__(self):
        return f"exit code {self.code}\n{self.out}{self.err}"

    def fact(self, name):
        """The value of the last `name=value` that was said, or None."""
        for line in reversed(self.out.splitlines()):
            for word in line.split():
                if word.startswith(name + "="):
                    return word[len(name) + 1:]
        return None


class Program:
    """The built program, with an environment in which nothing but this Python is chosen."""

    def __init__(self, path, python, home, **environment):
        self.path = str(path)
        self.environment = {"PATH": os.environ.get("PATH", ""), "HOME": str(home),
                            "HEADRACE_PYTHON": python, "TOKENIZERS_PARALLELISM": "false",
                            **environment}
        if "LD_LIBRARY_PATH" in os.environ:
            self.environment["LD_LIBRARY_PATH"] = os.environ["LD_LIBRARY_PATH"]

    def command(self, *words):
        return [self.path, *map(str, words)]

    def run(self, *words, prefix=(), folder=None, timeout_s=60, **environment):
        ended = subprocess.run([*prefix, *self.command(*words)], capture_output=True, text=True,
                               errors="replace", timeout=timeout_s, stdin=subprocess.DEVNULL,
                               cwd=folder, env={**self.environment, **environment})
        return Outcome(ended.returncode, ended.stdout, ended.stderr)

    def start(self, *words, **environment):
        """A run that goes on beside the test, with its output in a pipe."""
        return subprocess.Popen(self.command(*words), stdout=subprocess.PIPE, text=True,
                                stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
                                env={**self.environment, **environment})


def wait_for_step(process, number):
    """Reads the output of a started run up to the line of that step; what was read."""
    said = []
    for line in process.stdout:
        said.append(line)
        if f" step={number}/" in line:
            return said
    raise AssertionError(f"the run ended before step {number}:\n" + "".join(said)
                         + process.stderr.read())


def end(process, signal_number=signal.SIGKILL):
    """Sends the signal and waits; (exit code, the rest of stdout, stderr)."""
    process.send_signal(signal_number)
    out, err = process.communicate(timeout=30)
    return Outcome(process.returncode, out, err)


def tree_of(folder):
    """{path below the folder: bytes of a file, None for a folder}; None if it is not there."""
    folder = Path(folder)
    if not folder.exists():
        return None
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
            for path in sorted(folder.rglob("*"))}
