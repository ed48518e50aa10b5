"""Loading: which part of a model goes where, and into what kind of tensor."""

from __future__ import annotations

import contextlib
import importlib.util
import math
import operator
import os
import time
from typing import TYPE_CHECKING, Any

from . import _core
from ._device import DeviceTensor, Memory
from ._dtypes import bits
from ._errors import RequestError
from ._receipt import remember, remember_segment
from ._software import on_cpu

if TYPE_CHECKING:
    from . import _types


def framework():
    """Returns culvert.torch if torch is installed, otherwise culvert.numpy."""
    if importlib.util.find_spec("torch") is not None:
        from . import torch as found
    elif importlib.util.find_spec("numpy") is not None:
        from . import numpy as found
    else:
        raise ModuleNotFoundError("neither torch nor numpy is installed (fix: pip install numpy)", name="numpy")
    return found


_MOST_GPUS = 1 << 16  # any number that the core can decode


def parse_device(device):
    """Returns the number of a GPU, or None for the CPU."""
    gpu = -1
    if isinstance(device, str) or type(device).__name__ == "device":  # torch.device prints itself
        kind, _, number = str(device).partition(":")
        if kind == "cpu" and not number.strip("0"):
            return None
        if kind == "cuda" and ((number.isascii() and number.isdecimal()) or number == ""):
            gpu = int(number or 0)
    else:
        with contextlib.suppress(TypeError):
            gpu = -1 if isinstance(device, bool) else operator.index(device)
    if 0 <= gpu < _MOST_GPUS:
        return gpu
    raise RequestError(f"device {device!r}: want 'cpu', or 'cuda:N', or a list of them")


# Up to this size a read of a local file is not worth a second thread, nor a receipt
# that nobody asks for.
_QUICK = 1 << 20


class Model(_core.Handle):
    """An open model: the headers of its files."""

    def __init__(self, filename):
        self.path = absolute(_core.path_of(filename))
        answer = _core.call("open", path=self.path)
        super().__init__(answer["model"])
        self.metadata = answer["metadata"]
        self.files = answer["files"]
        self.tensors = answer["tensors"]
        self._stored = "://" in self.files[0]
        for number, info in enumerate(self.tensors):
            info["number"] = number

    def to_host(self, into, verify=False, **part):
        """Loads into tensors that the framework allocates on the CPU."""
        return to_host(into, verify, model=self.number, **part)

    def one_to_host(self, into, info, ranges=None, squeeze=()):
        """Loads one tensor, or a slice of it, into a tensor on the CPU, by one call."""
        shape = info["shape"]
        begin, size = (0, info["bytes"]) if ranges is None else stretch(shape, ranges, bits(info["dtype"]) // 8)
        if ranges is not None:
            shape = [end - begin for i, (begin, end) in enumerate(ranges) if i not in squeeze]
        tensor, address = into._empty(info["dtype"], shape)
        quick = size <= _QUICK and not self._stored
        if quick and begin is not None:
            start = time.perf_counter()
            _core.read(self, info["number"], begin, address, size)
            file = self.files[info.get("file", 0)]
            remember_segment(model=self.path, file=file, bytes=size, seconds=time.perf_counter() - start)
            return tensor
        answer = _core.call(
            "read", quick, model=self.number, tensor=info["name"], ranges=ranges, squeeze=squeeze, address=address if size else 0, bytes=size
        )
        remember(answer["receipt"])
        return tensor

    def to_gpus(self, gpus, into, verify=False, **part):
        """Loads to GPUs."""
        return to_gpus(into, model=self.number, gpus=gpus, verify=verify, **part)


def absolute(path):
    """The path for files that are opened later: until then the program may change its
    directory. It is not normalized, because ".." behind a symbolic link leads elsewhere."""
    if "://" in path or os.path.isabs(path):
        return path
    return os.path.join(os.getcwd(), path)


def stretch(shape, ranges, width):
    """The offset of a slice in its tensor, None if it is not one stretch, and its size,
    in bytes. Elements have that many."""
    begin, size, step = 0, width, width
    for dim, (first, end) in zip(reversed(shape), reversed(ranges)):
        if size != step and end - first != 1:
            begin = None
        if begin is not None:
            begin += first * step
        size, step = size * (end - first), step * dim
    return begin, size


def to_host(into, verify=False, known_as=None, **request):
    """Loads into tensors that the framework allocates on the CPU. The receipt may have
    another name than the path, where that one means nothing to a caller."""
    answer = _core.call("plan", gpus=[], **request)
    plan, infos = _core.Handle(answer["plan"]), answer["tensors"]
    made = [into._empty(info["dtype"], info["shape"]) for info in infos]
    receipt = _core.call("fill", plan=plan.number, addresses=[address for _, address in made], verify=verify)["receipt"]
    if known_as is not None:
        receipt["model"] = known_as
        for file in receipt["files"]:
            file["path"] = known_as
    remember(receipt)
    return [tensor for tensor, _ in made], infos


def to_gpus(into, progress=None, **request):
    """Loads to GPUs. The tensors are created while their bytes are in flight."""
    answer = _core.call("load", **request)
    memory, infos = Memory(answer), answer["tensors"]
    tensors = on_device(memory, infos, into)
    if progress is not None:
        for _ in arrivals(memory, progress):
            pass
    remember(_core.call("finish", memory=memory.number)["receipt"])
    return given(tensors, into), infos


_PROGRESS_MS = 100


def arrivals(memory, progress=None):
    """Yields lists of the numbers of tensors that are complete, until the load has
    ended. progress is called with the bytes read so far, and with all bytes."""
    seen, ended = 0, False
    while not ended:
        answer = _core.call("arrived", memory=memory.number, seen=seen, milliseconds=_PROGRESS_MS)
        seen, ended = seen + len(answer["arrived"]), answer["ended"]
        if progress is not None:
            progress(answer["bytes"], answer["total"])
        if answer["arrived"]:
            yield answer["arrived"]


def on_device(memory, infos, into, first=0):
    """Returns loaded tensors as tensors of the framework. No framework can access
    the software machine's memory."""
    if memory.soft:
        return [DeviceTensor(memory, i, info) for i, info in enumerate(infos, first)]
    return into._on_device(memory, infos, first)


def given(tensors, into):
    """Returns what the caller gets of tensors whose bytes have arrived: copies on
    the CPU if software() says so."""
    if not (tensors and isinstance(tensors[0], DeviceTensor) and tensors[0]._memory.soft and on_cpu()):
        return tensors
    return [tensor._copy(into) for tensor in tensors]


BACKENDS = ("mmap", "pread")


def check_backend(backend):
    """Rejects a backend that the safetensors package would reject. All mean the
    same here: Culvert chooses a route."""
    if backend not in BACKENDS:
        raise RequestError(f"backend {backend!r}: want one of {', '.join(BACKENDS)}")


def load(into, filename, device, verify, backend="mmap", progress=None, **part):
    """load_file for a framework."""
    check_backend(backend)
    several = isinstance(device, (list, tuple))
    gpus = [parse_device(d) for d in (device if several else [device])]
    if several and (None in gpus or not gpus or len(set(gpus)) < len(gpus)):
        raise RequestError(f"device {device!r}: several devices must be different GPUs")
    if None in gpus:
        tensors, infos = to_host(into, verify, path=_core.path_of(filename), **part)
        if progress is not None:
            progress(*[sum(info["bytes"] for info in infos)] * 2)
    else:
        tensors, infos = to_gpus(into, progress, path=_core.path_of(filename), gpus=gpus, verify=verify, **part)
    shares = {gpu: {} for gpu in gpus}
    for info, tensor in zip(infos, tensors):
        shares[info["gpu"] if gpus != [None] else None][info["name"]] = tensor
    return [shares[gpu] for gpu in gpus] if several else shares[gpus[0]]


def load_file(
    filename: _types.Path, device: _types.Devices = "cuda:0", *, plan: str = "", only: _types.Patterns = (), rules: _types.Patterns = (),
    order: str = "file", verify: bool = False, per_tensor: bool = False, cache: str = "auto", progress: _types.Progress | None = None,
) -> Any:
    """Loads a model: a safetensors file, an index of shards, or a directory.

    Returns a dict of torch tensors if torch is installed, otherwise of numpy arrays.
    On a GPU that no framework can access they are DeviceTensors. device is "cpu" or
    "cuda:N"; for a list of GPUs the result is a list of dicts.

    plan selects a part of the model ("tp=4,rank=1", "pp=2,stage=0", "layers=0-16"),
    only the tensors whose name matches a pattern. rules set the split of unusual
    names for tensor parallelism ("*.c_fc.weight=1"). order="layer" reads the first
    layers first. verify checks tensors against the manifests beside the files.
    per_tensor allocates GPU memory for each tensor, which is freed with it;
    otherwise all share one allocation per GPU, which is faster. cache says how the
    files use the page cache: "auto" (they stay there if they fit), "keep" or "avoid".
    progress is called with the bytes read so far and with all bytes; culvert.bar()
    returns one for terminals.
    """
    return load(
        framework(), filename, device, verify, progress=progress,
        plan=plan, only=patterns(only), rules=patterns(rules), order=order, per_tensor=per_tensor, cache=cache,
    )


def patterns(value):
    """Returns a list of one pattern or several."""
    return [value] if isinstance(value, str) else list(value)


def literal(name):
    """A pattern that matches one name."""
    return "".join("\\" + c if c in "*?[\\" else c for c in name)
