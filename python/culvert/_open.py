"""safe_open: read single tensors, or slices of them."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from . import _core, _load
from ._dtypes import bits
from ._errors import CulvertError, RequestError
from ._load import Model, check_backend, parse_device
from ._software import on_cpu

if TYPE_CHECKING:
    from . import _types

FRAMEWORKS = {"pt": "torch", "torch": "torch", "pytorch": "torch", "np": "numpy", "numpy": "numpy"}


def _framework(name):
    kind = FRAMEWORKS.get(name)
    if kind == "torch":
        from . import torch as found
    elif kind == "numpy":
        from . import numpy as found
    elif name is None:
        found = _load.framework()
    else:
        raise CulvertError(f"framework {name!r}: want one of {', '.join(sorted(FRAMEWORKS))}")
    return found


class safe_open:
    """An open model whose tensors are read on request, with the methods of
    safetensors.safe_open. filename may also be an index of shards or a directory."""

    def __init__(self, filename: _types.Path, framework: str | None = None, device: _types.Device | None = "cpu", *, backend: str = "mmap"):
        check_backend(backend)
        device = "cpu" if device is None else device  # as safetensors has it
        self._into = _framework(framework)
        self._gpu = parse_device(device)
        self._model: Model | None = Model(filename)
        self._infos = {info["name"]: info for info in self._model.tensors}
        self._name = self._model.path
        self._arguments = (filename, framework, str(device))

    def __repr__(self) -> str:
        state = f"{len(self._infos)} tensors" if self._model is not None else "closed"
        return f"safe_open({self._name!r}, {state})"

    def __reduce__(self):
        """Opens the file again, in a worker that was started by spawn."""
        self._open()
        return safe_open, self._arguments

    def __enter__(self) -> safe_open:
        return self

    def __exit__(self, *_: Any) -> None:
        self._model = None

    def _open(self):
        if self._model is None:
            raise CulvertError("the file is closed")
        return self._model

    def keys(self) -> list[str]:
        """The names, sorted."""
        self._open()
        return sorted(self._infos)

    def offset_keys(self) -> list[str]:
        """The names in the order of the files."""
        self._open()
        return list(self._infos)

    def metadata(self) -> _types.Metadata:
        """The metadata of the header, or None."""
        return self._open().metadata

    def get_tensor(self, name: str) -> Any:
        """The tensor of that name."""
        _check_name(name)
        return self._get(name)

    def get_tensors(self) -> dict[str, Any]:
        """All tensors, as a dict."""
        model = self._open()
        tensors, infos = self._load(model)
        return {info["name"]: tensor for info, tensor in zip(infos, tensors)}

    def get_slice(self, name: str) -> Slice:
        """The tensor of that name for slicing: only the slice is read."""
        self._open()
        _check_name(name)
        if name not in self._infos:
            self._get(name)  # raises the error
        return Slice(self, self._infos[name])

    def _get(self, name, model=None, **part):
        return self._load(model or self._open(), tensor=name, **part)[0][0]

    def _load(self, model, **part):
        if self._gpu is None:
            info = self._infos.get(part.get("tensor"))
            if info is not None and bits(info["dtype"]) >= 8:
                del part["tensor"]
                return [model.one_to_host(self._into, info, **part)], [info]
            return model.to_host(self._into, **part)
        return model.to_gpus([self._gpu], self._into, **part)


def _check_name(name):
    """None would be all tensors."""
    if not isinstance(name, str):
        raise TypeError(f"the name of a tensor must be a string, not {name!r}")


class Slice:
    """A tensor that is read when it is indexed. Of integers, slices and an ellipsis,
    only the bytes inside the ranges are read. With a step, what lies between is read,
    too, and left out on the device, unless it is large or nobody could leave it out.
    For any other index, such as a list or a mask, the whole tensor is read."""

    def __init__(self, opened, info):
        self._opened, self._info = opened, info
        self._model = opened._open()  # also after the file is closed, as safetensors has it

    def __reduce__(self):
        raise TypeError("a Slice cannot be pickled (fix: pickle the safe_open, and take its slice there)")

    def get_shape(self) -> list[int]:
        """The length of each dimension."""
        return list(self._info["shape"])

    def get_dtype(self) -> str:
        """The format's name of the element type."""
        return self._info["dtype"]

    def __getitem__(self, index: Any) -> Any:
        if not all(map(_is_range, index if isinstance(index, tuple) else (index,))):
            return self._pick(index)
        ranges, squeeze, steps = normalize(index, self._info["shape"], self._info["name"])
        later = any(step != slice(None) for step in steps)
        if later and self._reads_steps(ranges, squeeze, steps):
            ranges, later = with_steps(ranges, squeeze, steps), False
        tensor = self._opened._get(self._info["name"], self._model, ranges=ranges, squeeze=squeeze)
        if not later:
            return tensor
        tensor = tensor[tuple(steps)]
        return tensor.contiguous() if hasattr(tensor, "contiguous") else tensor.copy()

    def _pick(self, index):
        """Lets the framework index the whole tensor."""
        name = self._info["name"]
        if bits(self._info["dtype"]) < 8 or not self._indexable():
            raise RequestError(f"tensor {name!r}: index {index!r}: want integers, slices and an ellipsis")
        try:
            return self._opened._get(name, self._model)[index]
        except IndexError as e:
            raise OutOfRange(f"tensor {name!r}: {e}") from None
        except TypeError as e:
            raise RequestError(f"tensor {name!r}: {e}") from None

    def _indexable(self):
        """Whether a framework can index the memory that the tensor is read into."""
        if self._opened._gpu is None:
            return True
        return on_cpu() or (self._opened._into.__name__.endswith(".torch") and not _core.machine()["software_machine"])

    def _reads_steps(self, ranges, squeeze, steps):
        """Whether the elements are read one by one, or their rows."""
        if self._opened._gpu is None:
            return False
        if not self._indexable():
            return True
        row = bits(self._info["dtype"]) // 8
        for begin, end, step in reversed(with_steps(ranges, squeeze, steps)):
            if step > 1:
                break
            row *= end - begin
        return row >= _LARGE_ROW


_LARGE_ROW = 64 << 10


def _is_range(item):
    """Whether an index is an integer, a slice, an ellipsis, or an empty list, which
    numpy takes for an empty slice. An array with one element is none."""
    if isinstance(item, slice) or item is Ellipsis or (isinstance(item, list) and not item):
        return True
    if isinstance(item, bool) or not hasattr(item, "__index__"):
        return False
    return not getattr(item, "shape", ()) and "bool" not in str(getattr(item, "dtype", ""))


class OutOfRange(RequestError, IndexError):
    """An index that a tensor does not have. It ends a loop over a slice."""


def with_steps(ranges, squeeze, steps):
    """The ranges, each with its step."""
    left = iter(steps)
    return [[*pair, 1 if i in squeeze else next(left).step or 1] for i, pair in enumerate(ranges)]


def normalize(index, shape, name):
    """Returns an index as a range for each dimension, the dimensions that integers
    remove, and the steps in the others."""
    items = list(index) if isinstance(index, tuple) else [index]
    if sum(item is Ellipsis for item in items) > 1:
        raise RequestError(f"tensor {name!r}: more than one ellipsis")
    named = sum(item is not Ellipsis for item in items)
    if named > len(shape):
        raise RequestError(f"tensor {name!r} has {len(shape)} dimensions, the index {named}")
    if Ellipsis not in items:
        items.append(Ellipsis)
    at = items.index(Ellipsis)
    items[at : at + 1] = [slice(None)] * (len(shape) - named)
    ranges, squeeze, steps = [], [], []
    for i, (item, dim) in enumerate(zip(items, shape)):
        if isinstance(item, list) and not item:
            item = slice(0, 0)  # no elements, as numpy has it
        if isinstance(item, slice):
            begin, end, step = item.indices(dim)
            if step < 1:
                raise RequestError(f"tensor {name!r}: step {step} must be positive")
            step = min(step, max(dim, 1))  # the core's integers have 64 bits
            ranges.append([begin, max(begin, end)])
            steps.append(slice(None) if step == 1 else slice(None, None, step))
            continue
        try:
            n = operator.index(None if isinstance(item, bool) else item)  # True is a mask
        except TypeError:
            raise RequestError(f"tensor {name!r}: index {item!r}: want integers, slices and an ellipsis") from None
        if not -dim <= n < dim:
            raise OutOfRange(f"tensor {name!r}: index {n} is outside dimension {i} of {dim}")
        n %= dim
        ranges.append([n, n + 1])
        squeeze.append(i)
    return ranges, squeeze, steps
