"""Measures programs of others through Culvert, on a machine with a GPU.

    python3 hardware_programs.py DIRECTORY [--gb 7.2] [--runs 4]

Needs torch, transformers and accelerate beside the installed wheel. Makes a random Llama in
four shards in DIRECTORY, warms it, and prints JSON:

- "from_pretrained": transformers as it is, and patched, first time and median. For
  the patched runs "load_seconds" is what the receipts say of I/O; the rest is Python.
- "checkpoint": how long async_save blocks the training, beside a pinned copy of the
  same bytes; the rate at which its file is written, beside plain O_DIRECT writes.
  "phases" are the seconds of the steps from the staged copy to the published
  checkpoint, and of the removal of the former one, which follows.
- "targets": patched >= 3 x faster, blocked <= 1.2 x the copy, written >= 0.9 of
  O_DIRECT, and whether they are met.

Without a GPU it runs small on the software machine, which tests this script: the
figures then mean nothing, "targets" is null, and "software_machine" is true.
"""

import argparse
import json
import mmap
import os
import pathlib
import statistics
import sys
import time

import torch
import transformers
from torch.distributed import checkpoint

import culvert
from culvert import _former, _receipt
from culvert.checkpoint import Stager, Writer

REAL = torch.cuda.is_available()
DEVICE = "cuda:0" if REAL else "cpu"


def clock(do):
    """Seconds that do() takes, with all kernels, and its result."""
    if REAL:
        torch.cuda.synchronize()
    begin = time.perf_counter()
    result = do()
    if REAL:
        torch.cuda.synchronize()
    return time.perf_counter() - begin, result


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


def direct_writes(path, size):
    """Seconds to write that many bytes by O_DIRECT, 4 MiB at a time."""
    piece = 4 << 20
    buffer = mmap.mmap(-1, piece)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_DIRECT)
    except OSError:  # a file system without it
        return None
    try:
        os.posix_fallocate(descriptor, 0, size)
        begin = time.perf_counter()
        for offset in range(0, size // piece * piece, piece):
            os.pwrite(descriptor, buffer, offset)
        os.fsync(descriptor)
        return time.perf_counter() - begin
    finally:
        os.close(descriptor)
        os.unlink(path)


def median_phases(receipts, written, removed):
    """The medians of the steps of a checkpoint. "other" is torch's planning, the
    metadata, and what else is outside the steps of the file."""
    runs = []
    for receipt, seconds, removal in zip(receipts, written, removed):
        steps = receipt["phases"]
        runs.append({**steps, "other": seconds - sum(steps.values()), "removal": removal})
    return {name: statistics.median(run[name] for run in runs) for name in runs[0]}


def measure_checkpoint(directory, size, runs):
    state = {f"w{i}": torch.randn(size // 8 // 4, device=DEVICE) for i in range(8)}
    size = sum(t.numel() * t.element_size() for t in state.values())
    pinned = [torch.empty_like(t, device="cpu", pin_memory=REAL) for t in state.values()]
    stager, blocked, copied, written, removed, plain, receipts = Stager(), [], [], [], [], [], []
    _receipt.observers.append(receipts.append)
    for run in range(runs + 1):
        copied.append(clock(lambda: [p.copy_(t, non_blocking=True) for p, t in zip(pinned, state.values())])[0])
        saved = lambda: checkpoint.async_save(state, storage_writer=Writer(directory / "checkpoint"), async_stager=stager)
        begin = time.perf_counter()
        seconds, saving = clock(saved)
        saving.result()
        blocked.append(seconds)
        written.append(time.perf_counter() - begin - seconds)
        removed.append(clock(lambda: _former.wait(directory / "checkpoint"))[0])  # not beside the plain writes
        plain.append(direct_writes(directory / "plain", size))  # in turns: the disk is shared
    _receipt.observers.remove(receipts.append)
    stager.close()
    plain = statistics.median(plain[1:]) if plain[0] else None
    answer = {
        "bytes": size, "pinned_copy_seconds": statistics.median(copied[1:]), "blocked_seconds": statistics.median(blocked[1:]),
        "written_seconds": statistics.median(written[1:]), "o_direct_seconds": plain,
        "phases": median_phases(receipts[1:], written[1:], removed[1:]),
    }
    answer["blocked_ratio"] = answer["blocked_seconds"] / answer["pinned_copy_seconds"]
    answer["written_ratio"] = plain / answer["written_seconds"] if plain else None
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
        "checkpoint": measure_checkpoint(options.directory, 8 << 30 if REAL else 8 << 20, options.runs),
        "targets": None,
    }
    if REAL:
        written = answer["checkpoint"]["written_ratio"]
        answer["targets"] = {
            "patched at least 3 x faster": answer["from_pretrained"]["ratio"] >= 3,
            "blocked at most 1.2 x the pinned copy": answer["checkpoint"]["blocked_ratio"] <= 1.2,
            "written at 0.9 of O_DIRECT or faster": written is not None and written >= 0.9,
        }
    json.dump(answer, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
