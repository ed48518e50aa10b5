"""Measures programs of others through Culvert, on a machine with a GPU.

    python3 hardware_programs.py DIRECTORY [--gb 7.2] [--runs 4]

Needs torch, transformers and accelerate beside the installed wheel. Makes a random Llama in
four shards in DIRECTORY, warms it, and prints JSON:

- "from_pretrained": transformers as it is, and patched, first time and median. For
  the patched runs "load_seconds" is what the receipts say of I/O; the rest is Python.
- "checkpoint": what hardware_checkpoint.py measures.
- "targets": patched >= 3 x faster, and those of the checkpoint, and whether they are
  met.

Without a GPU it runs small on the software machine, which tests this script: the
figures then mean nothing, "targets" is null, and "software_machine" is true.
"""

import argparse
import json
import os
import pathlib
import statistics
import sys

import torch
import transformers

import culvert
import hardware_checkpoint
from hardware_checkpoint import DEVICE, REAL, clock


def make_model(directory, gb):
    """A Llama of that size, in four shards."""
    layers = max(1, round(gb * 1e9 / 2 / 220e6)) if REAL else 2
    width = 4096 if REAL else 64
    config = transformers.LlamaConfig(
        vocab_size=32000 if REAL else 128, hidden_size=width, intermediate_size=width * 11 // 4, num_hidden_layers=layers,
        num_attention_heads=width // 32, num_key_value_heads=width // 32, tie_word_embeddings=False,
    )
    with torch.device(DEVICE):
        model = transformers.LlamaForCausalLM(config).to(torch.bfloat16)
    size = sum(p.numel() * p.element_size() for p in model.parameters())
    model.save_pretrained(directory, max_shard_size=size // 4 + 1)
    return size


class Total:
    """Sums the seconds of receipts, as a log for culvert.patch."""

    def __init__(self):
        self.seconds = 0.0

    def write(self, text):
        for line in text.splitlines():
            self.seconds += float(line.split(" time=")[1].split("ms")[0]) / 1e3


def load_model(directory, patched):
    """One load: seconds, and those of them that the receipts account for."""
    log = Total()
    if patched:
        culvert.patch("cuda:0", log=log)
    try:
        where = {"device_map": {"": DEVICE}} if REAL else {}  # needs the accelerate package
        seconds, model = clock(lambda: transformers.LlamaForCausalLM.from_pretrained(directory, dtype=torch.bfloat16, **where))
    finally:
        culvert.unpatch()
    first = next(model.parameters())
    assert first.device == torch.device(DEVICE), first.device
    return seconds, log.seconds, model


def measure_loads(directory, runs):
    answer, sums = {}, {}
    for name, patched in (("plain", False), ("patched", True)):
        seconds, inside = [], []
        for _ in range(runs + 1):
            took, load, model = load_model(directory, patched)
            sums[name] = [float(p.float().sum()) for p in model.parameters()]
            del model
            seconds.append(took)
            inside.append(load)
        answer[name] = {"first": seconds[0], "median": statistics.median(seconds[1:])}
        if patched:
            answer[name]["load_seconds"] = statistics.median(inside[1:])
    assert sums["plain"] == sums["patched"], "the weights differ"
    answer["ratio"] = answer["plain"]["median"] / answer["patched"]["median"]
    return answer


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("--gb", type=float, default=7.2, help="size of the model in GB (default 7.2)")
    parser.add_argument("--runs", type=int, default=4, help="runs after the first (default 4)")
    options = parser.parse_args()
    options.directory.mkdir(parents=True, exist_ok=True)
    if not REAL:
        os.environ.setdefault("CULVERT_MACHINE", "soft")
        culvert.software(tensors="cpu")
    transformers.utils.logging.disable_progress_bar()
    size = make_model(options.directory / "model", options.gb)
    answer = {
        "software_machine": not REAL, "device": torch.cuda.get_device_name(0) if REAL else "none", "torch": torch.__version__,
        "transformers": transformers.__version__, "model_bytes": size,
        "from_pretrained": measure_loads(options.directory / "model", options.runs),
        "checkpoint": hardware_checkpoint.measure(options.directory, 8 << 30 if REAL else 8 << 20, options.runs),
        "targets": None,
    }
    if REAL:
        faster = answer["from_pretrained"]["ratio"] >= 3
        answer["targets"] = {"patched at least 3 x faster": faster, **hardware_checkpoint.targets(answer["checkpoint"])}
    json.dump(answer, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
