"""patch: programs that use the safetensors package load through Culvert, unchanged."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from typing import TYPE_CHECKING, TextIO

from . import _load, _open, _receipt
from ._device import DeviceTensor
from ._dtypes import dtype_of

if TYPE_CHECKING:
    from . import _types

_lock = threading.Lock()
_active = None  # the Patch in effect


def patch(device: _types.Device | None = None, *, save: bool = False, log: _types.Path | TextIO | None = None) -> None:
    """Makes the functions of the safetensors package those of Culvert, also in
    modules that have imported them: safe_open, load_file, load_model and load of
    safetensors, safetensors.torch and safetensors.numpy.

    device is a GPU ("cuda:0") for what is opened for the CPU: programs such as
    transformers open files for the CPU and then move each tensor to the GPU. With a
    device, the first tensor that is requested loads its file to the GPU at once, and
    moving it is nothing. save also replaces save_file, save_model and save. log is a
    file, or its path, to which the receipts are written at exit.
    """
    global _active
    if device is not None and _load.parse_device(device) is None:
        raise ValueError(f"device {device!r}: want a GPU, such as 'cuda:0'")
    unpatch()
    with _lock:
        _active = Patch(device, save, log)
        _active.apply()


def unpatch() -> None:
    """Makes the functions of the safetensors package its own again."""
    global _active
    with _lock:
        if _active is not None:
            _active.undo()
            _active = None


class Patch:
    def __init__(self, device, save, log):
        try:
            import safetensors
            import safetensors.numpy
        except ModuleNotFoundError as e:
            why = f"culvert.patch replaces functions of the safetensors package, and {e.name} is not installed (fix: pip install {e.name})"
            raise ModuleNotFoundError(why, name=e.name) from None
        self.log = Log(log) if log is not None else None
        self.exchanged = [(safetensors.safe_open, _opener(device, safetensors.safe_open))]
        self._exchange(safetensors.numpy, "numpy", save)
        if "torch" in sys.modules or _installed("torch"):
            import safetensors.torch

            self._exchange(safetensors.torch, "torch", save)

    def _exchange(self, theirs, name, save):
        from importlib import import_module

        ours = import_module(f"{__package__}.{name}")
        for function in ("load_file", "load_model", "load", *(("save_file", "save_model", "save") if save else ())):
            if hasattr(theirs, function):
                loads_arrays = name == "numpy" and function in ("load_file", "load")
                self.exchanged.append((getattr(theirs, function), _alias(getattr(ours, function), _arrays if loads_arrays else None)))
        if name == "torch":
            opener = self.exchanged[0][1]
            if opener.ahead is not None:
                loader = theirs.load_file
                self.exchanged = [(a, b if a is not loader else _load_ahead(opener)) for a, b in self.exchanged]

    def apply(self):
        replace(self.exchanged)
        if self.log:
            self.log.start()

    def undo(self):
        replace([(ours, theirs) for theirs, ours in self.exchanged])
        if self.log:
            self.log.stop()


def _installed(name):
    import importlib.util

    return importlib.util.find_spec(name) is not None


def _alias(function, change=None):
    """A function of its own: unpatch must not touch names that a program has
    imported from Culvert. Its result may be changed."""

    def alias(*arguments, **named):
        result = function(*arguments, **named)
        return result if change is None else change(result)

    alias.__name__, alias.__doc__, alias.__wrapped__ = function.__name__, function.__doc__, function
    return alias


def _array(tensor):
    """Returns bfloat16 as the safetensors package does to programs that have imported
    ml_dtypes: they do not look for a tag, and would take the bits for numbers."""
    known = getattr(sys.modules.get("ml_dtypes"), "bfloat16", None)
    if known is None or isinstance(tensor, DeviceTensor) or dtype_of(tensor) != "BF16":
        return tensor
    return tensor.view(known)


def _arrays(tensors):
    return {name: _array(tensor) for name, tensor in tensors.items()}


def _load_ahead(opener):
    def load_file(filename, device="cpu", *, backend="mmap"):
        with opener(filename, framework="pt", device=device, backend=backend) as f:
            return f.get_tensors()

    return load_file


def replace(pairs):
    """Replaces functions wherever a module has them."""
    new = {id(old): function for old, function in pairs}
    for name, module in list(sys.modules.items()):
        # The dict: attributes of lazy modules would import more.
        for key, value in list(getattr(module, "__dict__", {}).items()):
            if id(value) in new and not name.startswith(__package__ + "."):
                module.__dict__[key] = new[id(value)]


def _opener(device, theirs):
    """safe_open, a class of its own for each patch."""
    return type("safe_open", (Ahead,), {"ahead": device, "theirs": theirs, "__doc__": _open.safe_open.__doc__})


class Ahead(_open.safe_open):
    """safe_open whose tensors for the CPU are loaded to a GPU, all at the first
    request."""

    ahead = theirs = None

    def __new__(cls, filename, framework=None, device="cpu", *, backend="mmap"):
        """Culvert has no tensors of jax and others: what is opened for them is opened by
        the safetensors package, as without the patch."""
        if framework is not None and framework not in _open.FRAMEWORKS:
            return cls.theirs(filename, framework, device, backend=backend)
        return super().__new__(cls)

    def __init__(self, filename, framework=None, device="cpu", *, backend="mmap"):
        super().__init__(filename, framework, device, backend=backend)
        whole = self._gpu is None and self.ahead is not None and self._into.__name__.endswith(".torch")
        self._tensors, self._guard = None, threading.Lock() if whole else None
        if whole:
            self._gpu = _load.parse_device(self.ahead)

    def _load(self, model, **part):
        if self._guard is None:
            tensors, infos = super()._load(model, **part)
            return ([_array(t) for t in tensors] if self._into.__name__.endswith(".numpy") else tensors), infos
        with self._guard:
            if self._tensors is None:
                self._tensors = super()._load(model)
        tensors, infos = self._tensors
        if not part:
            return tensors, infos
        for tensor, info in zip(tensors, infos):
            if info["name"] == part["tensor"] and (part.get("ranges") is None or not isinstance(tensor, DeviceTensor)):
                return [_part(tensor, part)], [info]
        return super()._load(model, **part)  # a slice that torch cannot cut, or the error


def _part(tensor, part):
    """The slice of a loaded tensor that a request describes."""
    if part.get("ranges") is None:
        return tensor
    squeeze = part.get("squeeze", ())
    index = tuple(limits[0] if i in squeeze else slice(*limits) for i, limits in enumerate(part["ranges"]))
    return tensor[index].contiguous()


class Log:
    """Receipts of a process, summed by model, and written at exit."""

    def __init__(self, out):
        self._out, self._lock, self._lines = out, threading.Lock(), {}
        if not hasattr(out, "write"):
            open(out, "a").close()  # an error now, not at exit

    def start(self):
        _receipt.observers.append(self.add)
        atexit.register(self.stop)

    def stop(self):
        if self.add in _receipt.observers:
            _receipt.observers.remove(self.add)
            atexit.unregister(self.stop)
            self.write()

    def add(self, receipt):
        with self._lock:
            path = receipt.get("model") or receipt.get("file", "")
            line = self._lines.setdefault((receipt["op"], path), {"calls": 0, "tensors": 0, "bytes": 0, "seconds": 0.0, "routes": set()})
            line["calls"] += 1
            line["tensors"] += receipt["tensors"]
            line["bytes"] += receipt["read_bytes"] if receipt["op"] == "load" else receipt["bytes"]
            line["seconds"] += receipt["seconds"]
            line["routes"].update(f["receipt"]["route"] for f in receipt.get("files") or () if f["receipt"].get("route"))
            line["soft"] = line.get("soft") or receipt.get("software_machine", False)

    def write(self):
        text = "".join(
            f"culvert: {op} {os.path.basename(path)} calls={n['calls']} tensors={n['tensors']} bytes={n['bytes']} "
            f"time={n['seconds'] * 1e3:.1f}ms route={','.join(sorted(n['routes'])) or 'host'}{' SOFTWARE-MACHINE' if n['soft'] else ''}\n"
            for (op, path), n in self._lines.items()
        )
        if hasattr(self._out, "write"):
            self._out.write(text)
        else:
            with open(self._out, "a") as f:
                f.write(text)
