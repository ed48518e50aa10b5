"""Torch tensors that are read when they are used, and then only the part that is."""

import operator

import torch
from torch.utils._pytree import tree_map

from . import _dtypes, _load
from .torch import _dtype


def lazy(opened, name):
    """Returns a tensor of an open file. Views of it that select a part, such as
    narrow(), chunk() and [2:5], read nothing; whatever else is done with it reads what
    is left, once, to the device of the file."""
    info = opened._infos[name]
    dtype = _dtype(info["dtype"])
    if dtype is None or _dtypes.bits(info["dtype"]) < 8:
        return opened.get_tensor(name)  # a dimension of packed elements cannot be cut anywhere
    return Lazy(opened, name, [[0, n] for n in info["shape"]], range(len(info["shape"])), dtype)


class Lazy(torch.Tensor):
    """A part of a tensor in a file: a range for each dimension of the file, and which of
    them the tensor has, in their order. None is a dimension of one that the file lacks."""

    @staticmethod
    def __new__(cls, opened, name, ranges, dims, dtype):
        device = "cpu" if opened._gpu is None or _load.on_cpu() else f"cuda:{opened._gpu}"
        return torch.Tensor._make_wrapper_subclass(cls, _shape(ranges, dims), dtype=dtype, device=device)

    def __init__(self, opened, name, ranges, dims, dtype):
        self._opened, self._name, self._ranges, self._dims, self._read = opened, name, ranges, list(dims), None

    def _view(self, ranges, dims):
        return Lazy(self._opened, self._name, ranges, dims, self.dtype)

    def _dim(self, dim, more=0):
        """Returns a dimension, which may count from the last, as an index."""
        dim, n = operator.index(dim), len(self._dims) + more
        if not -n <= dim < n:
            raise IndexError(f"tensor {self._name!r}: dimension {dim} of {n}")
        return dim % n

    def _cut(self, dim, start, length):
        dim, start, length = self._dim(dim), operator.index(start), operator.index(length)
        begin, end = [0, 1] if self._dims[dim] is None else self._ranges[self._dims[dim]]
        if start < 0:
            start += end - begin
        if length < 0 or start < 0 or start + length > end - begin:
            raise IndexError(f"tensor {self._name!r}: {length} elements from {start} of {end - begin}")
        if self._dims[dim] is None:
            return self if length else self.read().narrow(dim, start, length)
        ranges = list(self._ranges)
        ranges[self._dims[dim]] = [begin + start, begin + start + length]
        return self._view(ranges, self._dims)

    def _chunk(self, chunks, dim=0):
        size = self.shape[self._dim(dim)]
        step = max(-(-size // operator.index(chunks)), 1)
        return tuple(self._cut(dim, i, min(step, size - i)) for i in range(0, max(size, 1), step))

    def _select(self, dim, index):
        dim, one = self._dim(dim), self._cut(dim, index, 1)
        return one._view(one._ranges, [d for i, d in enumerate(one._dims) if i != dim])

    def _unbind(self, dim=0):
        return tuple(self._select(dim, i) for i in range(self.shape[self._dim(dim)]))

    def _unsqueeze(self, dim):
        dims = list(self._dims)
        dims.insert(self._dim(dim, more=1), None)
        return self._view(self._ranges, dims)

    def _item(self, index):
        """self[index] for integers and slices without a step; others read."""
        index = index if isinstance(index, tuple) else (index,)
        if len(index) > len(self._dims) or not all(type(i) is int or (isinstance(i, slice) and i.step in (None, 1)) for i in index):
            return self.read()[index]
        part, dim = self, 0
        for i in index:
            if type(i) is int:
                part = part._select(dim, i)
            else:
                begin, end, _ = i.indices(part.shape[dim])
                part, dim = part._cut(dim, begin, max(end - begin, 0)), dim + 1
        return part

    def read(self):
        """The part as an ordinary tensor."""
        if self._read is None:
            self._read = self._opened._get(self._name, ranges=self._ranges).reshape(_shape(self._ranges, self._dims))
        return self._read

    @classmethod
    def __torch_function__(cls, function, types, arguments=(), named=None):
        named = named or {}
        if function in _METADATA:
            with torch._C.DisableTorchFunctionSubclass():
                return function(*arguments, **named)
        view = _VIEWS.get(function)
        if view is not None and isinstance(arguments[0], Lazy) and arguments[0]._read is None:
            return view(*arguments, **named)
        return function(*tree_map(_ordinary, arguments), **tree_map(_ordinary, named))

    @classmethod
    def __torch_dispatch__(cls, function, types, arguments=(), named=None):
        return function(*tree_map(_ordinary, arguments), **tree_map(_ordinary, named or {}))


def _shape(ranges, dims):
    return [1 if d is None else ranges[d][1] - ranges[d][0] for d in dims]


def _ordinary(value):
    return value.read() if isinstance(value, Lazy) else value


# torch's functions by what they are here. Their parameters have torch's names.
_VIEWS = {
    torch.Tensor.narrow: lambda tensor, dim, start, length: tensor._cut(dim, start, length),
    torch.Tensor.chunk: Lazy._chunk,
    torch.Tensor.select: Lazy._select,
    torch.Tensor.unbind: Lazy._unbind,
    torch.Tensor.unsqueeze: Lazy._unsqueeze,
    torch.Tensor.__getitem__: Lazy._item,
}
for _function in list(_VIEWS):
    if hasattr(torch, _function.__name__):
        _VIEWS[getattr(torch, _function.__name__)] = _VIEWS[_function]

# What says something about a tensor without its bytes.
_METADATA = {
    *(getattr(torch.Tensor, name).__get__ for name in ("shape", "dtype", "device", "ndim")),
    torch.Tensor.size, torch.Tensor.dim, torch.Tensor.numel, torch.Tensor.element_size, torch.Tensor.is_floating_point,
    torch.Tensor.__len__,
}
