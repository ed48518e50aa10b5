"""Save tensors of any kind, from any memory, to one file."""

from __future__ import annotations

import operator
import sys
from typing import TYPE_CHECKING, Any

from . import _core
from ._device import DeviceTensor
from ._errors import FormatError
from ._receipt import remember

if TYPE_CHECKING:
    from . import _types


def save_file(tensors: dict[str, Any], filename: _types.Path, metadata: _types.Metadata = None) -> None:
    """Saves a dict of tensors to a safetensors file.

    The tensors are torch tensors (on the CPU or on GPUs), numpy arrays or
    DeviceTensors. The file is replaced atomically once all data is on stable
    storage: a crash leaves the old file or the new one. A manifest of checksums is
    beside it (filename + ".culvert.json"), for verify=True and culvert verify.
    """
    check(tensors, metadata)
    write(tensors, filename, metadata)


def save_step(tensors: dict[str, Any], directory: _types.Path, step: int, metadata: _types.Metadata = None, keep: int = 0) -> str:
    """Saves a dict of tensors as a checkpoint, and returns the path of its file.

    The directory, which may be a prefix of a store (s3://bucket/run), has one directory
    per step: step-000001000/model.safetensors. A step is complete or not there, and is
    never overwritten: FileExistsError. Only when it is there are the steps removed that
    keep does not cover, those that were saved first; 0 keeps all.
    load_file(directory + "/latest") loads the step that was saved last.
    """
    check(tensors, metadata)
    return write(tensors, directory, metadata, step=operator.index(step), keep=operator.index(keep))


def write(tensors, filename, metadata, **more):
    """Saves tensors that were checked, and returns the path of the file."""
    keep, specs = [], []  # the core reads the tensors, so they must stay alive
    for name, tensor in tensors.items():
        tensor, spec = describe(name, tensor)
        keep.append(tensor)
        specs.append(spec)
    answer = _core.call("save", path=_core.path_of(filename), metadata=metadata, tensors=specs, **more)
    remember(answer["receipt"])
    return answer["receipt"]["file"]


def check(tensors, metadata):
    """Rejects what cannot be saved, whatever its destination."""
    if not isinstance(tensors, dict):
        raise ValueError(f"want a dict of tensors, not {type(tensors).__name__}")
    if metadata is not None:
        if not isinstance(metadata, dict):
            raise TypeError(f"metadata must be a dict, not {type(metadata).__name__}")
        for key, value in metadata.items():
            if not isinstance(key, str) or not isinstance(value, str):
                raise TypeError(f"metadata must map strings to strings, not {key!r} to {value!r}")
            _check_text("metadata", key + value)
    for name in tensors:
        if not isinstance(name, str):
            raise TypeError(f"the name of a tensor must be a string, not {name!r}")
        _check_text("the name of a tensor", name)
    _check_shared(tensors)


def _check_text(what, text):
    """Rejects surrogates: the request would have other characters in their place."""
    try:
        text.encode()
    except UnicodeEncodeError as e:
        raise FormatError(f"{what} {text!r} is not Unicode text: {e.reason}") from None


def describe(name, tensor):
    """Returns the object that owns a tensor's bytes, and its description for the core."""
    if isinstance(tensor, DeviceTensor):
        return tensor, {
            "name": name, "dtype": tensor.dtype, "shape": list(tensor.shape), "bytes": tensor.nbytes,
            "memory": tensor._memory.number, "index": tensor._index,
        }
    if isinstance(tensor, _torch_tensor()):
        from . import torch as kind
    else:
        from . import numpy as kind
    tensor, dtype, shape, spec = kind._source(name, tensor)
    if dtype is None:
        raise FormatError(f"tensor {name!r}: the format has no element type for {tensor.dtype}")
    spec.update(name=name, dtype=dtype, shape=list(shape))
    return tensor, spec


def _torch_tensor():
    """torch.Tensor if torch is imported, otherwise no type at all. While another thread
    imports torch, nobody has tensors yet."""
    return getattr(sys.modules.get("torch"), "Tensor", ())


def _check_shared(tensors):
    """Rejects torch tensors that overlap: the file would have their bytes twice,
    and loaded tensors would not share memory."""
    kind = _torch_tensor()
    ranges = []
    for name, tensor in tensors.items():
        if not isinstance(tensor, kind):
            continue
        if tensor.is_nested:
            raise ValueError(f"tensor {name!r} is nested (fix: save to_padded_tensor() of it, or its parts)")
        if tensor.layout != sys.modules["torch"].strided:
            raise ValueError(f"tensor {name!r} is sparse (fix: save to_dense() of it)")
        if not tensor.is_contiguous():
            raise ValueError(f"tensor {name!r} is not contiguous (fix: save contiguous() of it)")
        size = tensor.numel() * tensor.element_size()
        if size and not tensor.is_meta:  # those have no address, and are refused when they are described
            ranges.append((str(tensor.device), tensor.data_ptr(), size, name))
    ranges.sort()
    for (device, address, size, name), (other, begin, _, second) in zip(ranges, ranges[1:]):
        if device == other and begin < address + size:
            raise RuntimeError(f"tensors {name!r} and {second!r} share memory (fix: save one of them, or a clone)")


