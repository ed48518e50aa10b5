"""Saving: tensors of any kind, from any memory, into one file."""

import sys

from . import _core
from ._device import DeviceTensor
from ._errors import FormatError
from ._receipt import remember


def save_file(tensors, filename, metadata=None):
    """Saves a dict of tensors into a safetensors file.

    The tensors are torch's (on the CPU or on GPUs), numpy's, or DeviceTensors.
    The file appears under its name when it is complete and on stable storage: a
    crash leaves the old file or the new one. A manifest of checksums lies beside
    it (filename + ".culvert.json") for verify=True and for culvert verify.
    """
    if not isinstance(tensors, dict):
        raise ValueError(f"want a dict of tensors, not {type(tensors).__name__}")
    if metadata is not None:
        for key, value in metadata.items():
            if not isinstance(key, str) or not isinstance(value, str):
                raise TypeError(f"metadata maps strings to strings, not {key!r} to {value!r}")
    _check_shared(tensors)
    keep, specs = [], []  # what the core reads must not go away meanwhile
    for name, tensor in tensors.items():
        if not isinstance(name, str):
            raise TypeError(f"the name of a tensor is a string, not {name!r}")
        tensor, spec = _describe(name, tensor)
        keep.append(tensor)
        specs.append(spec)
    answer = _core.call("save", path=_core.path_of(filename), metadata=metadata, tensors=specs)
    remember(answer["receipt"])


def _describe(name, tensor):
    """What the core must know of a tensor, and the object that owns its bytes."""
    if isinstance(tensor, DeviceTensor):
        return tensor, {
            "name": name, "dtype": tensor.dtype, "shape": list(tensor.shape), "bytes": tensor.nbytes,
            "memory": tensor._memory.number, "index": tensor._index,
        }
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(tensor, torch.Tensor):
        from . import torch as kind
    else:
        from . import numpy as kind
    tensor, dtype, shape, spec = kind._source(name, tensor)
    if dtype is None:
        raise FormatError(f"tensor {name!r}: the format has no element type for {tensor.dtype}")
    spec.update(name=name, dtype=dtype, shape=list(shape))
    return tensor, spec


def _check_shared(tensors):
    """Refuses torch tensors that overlap: the file would have their bytes twice,
    and they would come back as strangers."""
    torch = sys.modules.get("torch")
    if torch is None:
        return
    ranges = []
    for name, tensor in tensors.items():
        if not isinstance(tensor, torch.Tensor):
            continue
        if tensor.layout != torch.strided:
            raise ValueError(f"tensor {name!r} is sparse: make it dense with to_dense() before saving")
        if not tensor.is_contiguous():
            raise ValueError(f"tensor {name!r} is not contiguous: pack it with contiguous() before saving")
        size = tensor.numel() * tensor.element_size()
        if size:
            ranges.append((str(tensor.device), tensor.data_ptr(), size, name))
    ranges.sort()
    for (device, address, size, name), (other, begin, _, second) in zip(ranges, ranges[1:]):
        if device == other and begin < address + size:
            raise RuntimeError(f"tensors {name!r} and {second!r} share memory: save one of them, or a clone")


