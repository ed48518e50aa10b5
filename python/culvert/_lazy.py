"""Torch tensors that are read when they are used, and then only the part that is."""

import torch
from torch.utils._pytree import tree_map

from . import _dtypes, _load
from .torch import _dtype


def lazy(opened, name):
    """Returns a tensor of an open file. narrow() of it reads nothing; whatever else is
    done with it reads what is left, once, to the device of the file."""
    info = opened._infos[name]
    dtype = _dtype(info["dtype"])
    if dtype is None or _dtypes.bits(info["dtype"]) < 8:
        return opened.get_tensor(name)  # a dimension of packed elements cannot be cut anywhere
    return Lazy(opened, name, [[0, n] for n in info["shape"]], dtype)


class Lazy(torch.Tensor):
    """A part of a tensor in a file: a range for each dimension."""

    @staticmethod
    def __new__(cls, opened, name, ranges, dtype):
        device = "cpu" if opened._gpu is None or _load.on_cpu() else f"cuda:{opened._gpu}"
        return torch.Tensor._make_wrapper_subclass(cls, [b - a for a, b in ranges], dtype=dtype, device=device)

    def __init__(self, opened, name, ranges, dtype):
        self._opened, self._name, self._ranges, self._read = opened, name, ranges, None

    def _cut(self, dim, start, length):
        dim, start, length = int(dim), int(start), int(length)
        if not -len(self._ranges) <= dim < len(self._ranges):
            raise IndexError(f"tensor {self._name!r}: dimension {dim} of {len(self._ranges)}")
        begin, end = self._ranges[dim]
        if start < 0:
            start += end - begin
        if length < 0 or start < 0 or start + length > end - begin:
            raise IndexError(f"tensor {self._name!r}: {length} elements from {start} of {end - begin}")
        ranges = list(self._ranges)
        ranges[dim] = [begin + start, begin + start + length]
        return Lazy(self._opened, self._name, ranges, self.dtype)

    def read(self):
        """The part as an ordinary tensor."""
        if self._read is None:
            self._read = self._opened._get(self._name, ranges=self._ranges)
        return self._read

    @classmethod
    def __torch_function__(cls, function, types, arguments=(), named=None):
        named = named or {}
        if function in _METADATA:
            with torch._C.DisableTorchFunctionSubclass():
                return function(*arguments, **named)
        if function in _NARROW and isinstance(arguments[0], Lazy) and arguments[0]._read is None:
            return _narrow(*arguments, **named)
        return function(*tree_map(_ordinary, arguments), **tree_map(_ordinary, named))

    @classmethod
    def __torch_dispatch__(cls, function, types, arguments=(), named=None):
        return function(*tree_map(_ordinary, arguments), **tree_map(_ordinary, named or {}))


def _narrow(tensor, dim, start, length):
    return tensor._cut(dim, start, length)


def _ordinary(value):
    return value.read() if isinstance(value, Lazy) else value


_NARROW = {torch.Tensor.narrow, torch.narrow}

# What says something about a tensor without its bytes.
_METADATA = {
    torch.Tensor.shape.__get__, torch.Tensor.dtype.__get__, torch.Tensor.device.__get__, torch.Tensor.ndim.__get__,
    torch.Tensor.size, torch.Tensor.dim, torch.Tensor.numel, torch.Tensor.element_size, torch.Tensor.is_floating_point,
    torch.Tensor.__len__,
}
