"""Measures asynchronous distributed checkpoints, on a machine with a GPU.

    python3 hardware_checkpoint.py DIRECTORY [--gib 8] [--runs 4]

Needs torch beside the installed wheel. Prints JSON:

- "blocked_seconds": how long async_save blocks the training, beside a pinned copy of
  the same bytes.
- "written_seconds": from the staged copy to the published checkpoint, beside plain
  O_DIRECT writes of as many bytes to one file: one at a time ("o_direct_seconds") and
  as many at a time as a save does ("o_direct_deep_seconds"). They take turns, because
  disks of virtual machines are shared.
- "phases": the medians of the steps of "written_seconds", and of the removal of the
  former checkpoint, which follows it.
- "runs": the figures of each run; the medians leave out the first.
- "targets": blocked <= 1.2 x the copy, written >= 0.9 of the faster plain writes, and
  whether they are met.

Without a GPU it runs small, which tests this script: the figures then mean nothing,
and "targets" is null.
"""

import argparse
import concurrent.futures
import json
import mmap
import os
import pathlib
import statistics
import sys
import time

import torch
from torch.distributed import checkpoint

from culvert import _former, _receipt
from culvert.checkpoint import Stager, Writer

REAL = torch.cuda.is_available()
DEVICE = "cuda:0" if REAL else "cpu"
DEEP = 8  # writes that a save has in flight
PIECE = 4 << 20


def clock(do):
    """Seconds that do() takes, with all kernels, and its result."""
    if REAL:
        torch.cuda.synchronize()
    begin = time.perf_counter()
    result = do()
    if REAL:
        torch.cuda.synchronize()
    return time.perf_counter() - begin, result


def direct_writes(path, size, depth, piece=PIECE):
    """Seconds to write that many bytes by O_DIRECT, so many pieces at a time; None if
    the file system has no O_DIRECT."""
    buffers = [mmap.mmap(-1, piece) for _ in range(depth)]
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_DIRECT)
    except OSError:
        return None

    def write(worker):
        for offset in range(worker * piece, size // piece * piece, depth * piece):
            os.pwrite(descriptor, buffers[worker], offset)

    try:
        for buffer in buffers:
            buffer.write(os.urandom(piece))
        begin = time.perf_counter()
        os.posix_fallocate(descriptor, 0, size)
        with concurrent.futures.ThreadPoolExecutor(depth) as threads:
            list(threads.map(write, range(depth)))
        os.fsync(descriptor)
        return time.perf_counter() - begin
    finally:
        os.close(descriptor)
        os.unlink(path)


class Receipts(list):
    """Keeps what is done while it is entered."""

    def __enter__(self):
        _receipt.observers.append(self.append)
        return self

    def __exit__(self, *error):
        _receipt.observers.remove(self.append)


def one_run(directory, state, pinned, stager):
    """Saves a checkpoint, and writes as many bytes plainly."""
    size = sum(t.numel() * t.element_size() for t in state.values())
    copied, _ = clock(lambda: [p.copy_(t, non_blocking=True) for p, t in zip(pinned, state.values())])
    saved = lambda: checkpoint.async_save(state, storage_writer=Writer(directory / "checkpoint"), async_stager=stager)
    with Receipts() as receipts:
        blocked, saving = clock(saved)
        begin = time.perf_counter()
        saving.result()
        written = time.perf_counter() - begin
    removal, _ = clock(lambda: _former.wait(directory / "checkpoint"))  # not beside the plain writes
    steps = receipts[-1]["phases"]
    return {
        "pinned_copy_seconds": copied, "blocked_seconds": blocked, "written_seconds": written,
        # torch's planning, the metadata, and what else is outside the steps of the file
        "phases": {**steps, "other": written - sum(steps.values()), "removal": removal},
        "o_direct_seconds": direct_writes(directory / "plain", size, 1),
        "o_direct_deep_seconds": direct_writes(directory / "plain", size, DEEP),
    }


def median(values):
    return None if None in values else statistics.median(values)


def summarise(size, runs):
    """The medians of all runs but the first, and what they are compared with."""
    rest = runs[1:]
    answer = {"bytes": size}
    answer.update({name: median([run[name] for run in rest]) for name in runs[0] if name != "phases"})
    answer["phases"] = {name: median([run["phases"][name] for run in rest]) for name in runs[0]["phases"]}
    answer["blocked_ratio"] = answer["blocked_seconds"] / answer["pinned_copy_seconds"]
    plain = answer["o_direct_seconds"] and min(answer["o_direct_seconds"], answer["o_direct_deep_seconds"])
    answer["written_ratio"] = plain / answer["written_seconds"] if plain else None
    answer["runs"] = runs
    return answer


def measure(directory, size, runs):
    state = {f"w{i}": torch.randn(size // 8 // 4, device=DEVICE) for i in range(8)}
    size = sum(t.numel() * t.element_size() for t in state.values())
    pinned = [torch.empty_like(t, device="cpu", pin_memory=REAL) for t in state.values()]
    stager = Stager()
    done = []
    for _ in range(runs + 1):
        done.append(one_run(directory, state, pinned, stager))
        print(json.dumps(done[-1]), file=sys.stderr, flush=True)  # each takes a quarter of a minute
    stager.close()
    return summarise(size, done)


def targets(answer):
    """Whether the goals are met, or None without a GPU."""
    if not REAL:
        return None
    written = answer["written_ratio"]
    return {
        "blocked at most 1.2 x the pinned copy": answer["blocked_ratio"] <= 1.2,
        "written at 0.9 of O_DIRECT or faster": written is not None and written >= 0.9,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("--gib", type=float, default=8, help="size of the state in GiB (default 8)")
    parser.add_argument("--runs", type=int, default=4, help="runs after the first (default 4)")
    options = parser.parse_args()
    options.directory.mkdir(parents=True, exist_ok=True)
    if not REAL:
        os.environ.setdefault("CULVERT_MACHINE", "soft")
    answer = measure(options.directory, int(options.gib * (1 << 30)) if REAL else 8 << 20, options.runs)
    device = torch.cuda.get_device_name(0) if REAL else "none"
    answer = {"software_machine": not REAL, "device": device, "torch": torch.__version__, **answer, "targets": targets(answer)}
    json.dump(answer, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
