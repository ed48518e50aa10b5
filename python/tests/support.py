"""What the tests share: a small software machine, and random tensors of every type."""

import json
import os
import pathlib
import random
import struct
import tempfile
import unittest

os.environ["CULVERT_MACHINE"] = "soft"
os.environ["CULVERT_SOFT"] = "gpus=4,memory=64M,poison=1"

import culvert  # after the machine is chosen
from culvert import _dtypes

ROOT = pathlib.Path(__file__).resolve().parents[2]
CULVERT = os.environ.get("CULVERT_COMMAND") or str(ROOT / "bin" / "culvert")

DTYPES = sorted(_dtypes._TABLE)


def size_of(dtype, shape):
    bits = _dtypes.bits(dtype)
    for dim in shape:
        bits *= dim
    return bits // 8


def random_bytes(rng, dtype, shape):
    data = rng.randbytes(size_of(dtype, shape))
    return bytes(b & 1 for b in data) if dtype == "BOOL" else data


def random_tensors(seed, count=60):
    """Names, types, shapes and bytes: every type, scalars, empty ones, odd sizes."""
    rng = random.Random(seed)
    tensors = {}
    for i in range(count):
        dtype = DTYPES[i % len(DTYPES)]
        shape = [rng.choice([0, 1, 1, 2, 3, 5, 17, 64]) for _ in range(rng.randrange(5))]
        if _dtypes.bits(dtype) < 8:
            shape.append(8 * rng.randrange(4))  # whole bytes in each row
        tensors[f"layer.{i}.{dtype}"] = (dtype, shape, random_bytes(rng, dtype, shape))
    return tensors


def write_raw(path, tensors, metadata=None, header=None):
    """A safetensors file by hand, for types that no writer has, and broken ones."""
    entries, blob = {}, b""
    if metadata is not None:
        entries["__metadata__"] = metadata
    for name, (dtype, shape, data) in tensors.items():
        entries[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(blob), len(blob) + len(data)]}
        blob += data
    text = header if header is not None else json.dumps(entries).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + blob)


class Case(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory(prefix="culvert-")
        self.addCleanup(directory.cleanup)
        self.dir = pathlib.Path(directory.name)

    def path(self, name="model.safetensors"):
        return self.dir / name


__all__ = ["CULVERT", "DTYPES", "ROOT", "Case", "culvert", "random_bytes", "random_tensors", "size_of", "write_raw"]
