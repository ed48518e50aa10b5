"""Loads a model directory with one loader, in a process whose CUDA context exists:
one JSON line with the GB/s of the first load and of those after it.

    loader.py LOADER DIRECTORY LATER
"""
import gc
import glob
import json
import os
import sys
import time

sys.path.insert(0, os.environ["SITE"])
import torch


def culvert_files(directory):
    import culvert.torch

    return lambda: culvert.torch.load_file(directory, "cuda:0")


def instanttensor_files(directory, backend=None):
    import instanttensor

    files = sorted(glob.glob(directory + "/*.safetensors"))
    chosen = instanttensor.Backend[backend] if backend else None

    def load():
        with instanttensor.safe_open(files, framework="pt", device=0, backend=chosen) as f:
            return dict(f.tensors())

    return load


def fastsafetensors_files(directory, nogds):
    import fastsafetensors

    files = sorted(glob.glob(directory + "/*.safetensors"))

    def load():
        with fastsafetensors.fastsafe_open(files, device="cuda:0", nogds=nogds) as f:
            return {name: f.get_tensor(name) for name in f.keys()}

    return load


def safetensors_files(directory):
    import safetensors.torch

    def load():
        tensors = {}
        for path in sorted(glob.glob(directory + "/*.safetensors")):
            tensors.update(safetensors.torch.load_file(path, "cuda:0"))
        return tensors

    return load


LOADERS = {
    "culvert": culvert_files,
    "instanttensor": instanttensor_files,
    "instanttensor-mmap": lambda d: instanttensor_files(d, "MMAP"),
    "instanttensor-cufile": lambda d: instanttensor_files(d, "CUFILE"),
    "fastsafetensors": lambda d: fastsafetensors_files(d, True),
    "fastsafetensors-gds": lambda d: fastsafetensors_files(d, False),
    "safetensors": safetensors_files,
}


def main(name, directory, later):
    torch.zeros(1, device="cuda:0").cpu()  # makes the context
    load = LOADERS[name](directory)
    rates = []
    for _ in range(1 + int(later)):
        begin = time.perf_counter()
        tensors = load()
        torch.cuda.synchronize()
        seconds = time.perf_counter() - begin
        rates.append(sum(t.nbytes for t in tensors.values()) / seconds / 1e9)
        del tensors
        gc.collect()
        torch.cuda.empty_cache()
        time.sleep(0.1)  # a GPU clears freed memory in the background
    print(json.dumps({"first": rates[0], "rates": rates[1:]}), flush=True)
    os._exit(0)  # what the libraries do at exit is no part of this


main(*sys.argv[1:])
