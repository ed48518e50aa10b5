"""load_file, save_file, load and save of safetensors.numpy.

numpy has no bfloat16, float8 or smaller floats. Arrays of those types have their
bits in uint16 or uint8, and a dtype with a tag. dtype_of and save_file read the tag,
so that a loaded array is saved with its type.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy

from . import _bytes, _dtypes, _save
from ._device import DeviceTensor
from ._dtypes import dtype_of
from ._load import load as _load, patterns as _patterns

if TYPE_CHECKING:
    from . import _types

__all__ = ["dtype_of", "load", "load_file", "save", "save_file"]


def load_file(
    filename: _types.Path, *, backend: str = "mmap", plan: str = "", only: _types.Patterns = (), rules: _types.Patterns = (),
    order: str = "file", verify: bool = False,
) -> dict[str, numpy.ndarray]:
    """Loads a model as numpy arrays; see culvert.load_file. backend is accepted for
    compatibility with safetensors, and has no effect."""
    return _load(
        sys.modules[__name__], filename, "cpu", verify, backend, plan=plan, only=_patterns(only), rules=_patterns(rules), order=order
    )


def save_file(tensor_dict: dict[str, Any], filename: _types.Path, metadata: _types.Metadata = None) -> None:
    """Saves a dict of tensors; see culvert.save_file."""
    _save.save_file(tensor_dict, filename, metadata)


def load(data: bytes) -> dict[str, numpy.ndarray]:
    """Loads the content of a file, bytes, as numpy arrays."""
    return _bytes.load(sys.modules[__name__], data)


def save(tensor_dict: dict[str, Any], metadata: _types.Metadata = None) -> bytes:
    """Returns the content of a file with these tensors, as bytes."""
    return _bytes.save(tensor_dict, metadata)


# The interface of a framework to the loader: _empty, _on_device and _source.


def _dtype(name, shape):
    code = _dtypes.numpy_code(name)
    if not _dtypes.tagged(name):
        return numpy.dtype(code)
    tag = {_dtypes.TAG: name}
    if _dtypes.bits(name) < 8 and _dtypes.logical_shape(name, _dtypes.stored_shape(name, shape)) != tuple(shape):
        tag["shape"] = tuple(shape)
    return numpy.dtype(code, metadata=tag)


def _empty(name, shape):
    array = numpy.empty(_dtypes.stored_shape(name, shape), _dtype(name, shape))
    return array, array.ctypes.data


def _on_device(memory, infos, first):
    return [DeviceTensor(memory, i, info) for i, info in enumerate(infos, first)]


def _source(name, array):
    if not isinstance(array, (numpy.ndarray, numpy.generic)):
        raise ValueError(f"tensor {name!r}: want a torch tensor, a numpy array or a DeviceTensor, not {type(array).__name__}")
    array = numpy.asarray(array)
    dtype = _dtypes.name_of_numpy(array.dtype)
    if not array.dtype.isnative and dtype is not None:
        array = array.astype(array.dtype.newbyteorder("="))
    if not array.flags.c_contiguous:
        array = array.copy(order="C")
    shape = array.shape
    if dtype is not None and _dtypes.bits(dtype) < 8:
        shape = (array.dtype.metadata or {}).get("shape") or _dtypes.logical_shape(dtype, shape)
    return array, dtype, shape, {"address": array.ctypes.data, "bytes": array.nbytes}
