"""The functions of safetensors.torch.

Tensors on a GPU are in memory that Culvert allocated, outside torch's cache;
otherwise they are ordinary torch tensors. All tensors of one load share one
allocation per GPU, which is freed with the last of them.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.dlpack import from_dlpack

from . import _bytes, _core, _dtypes, _modules
from ._load import load as _load, patterns as _patterns
from ._modules import save_model
from ._save import save_file

if TYPE_CHECKING:
    from . import _types

__all__ = ["load", "load_file", "load_model", "save", "save_file", "save_model"]


def load_file(
    filename: _types.Path, device: _types.Devices | None = "cpu", *, backend: str = "mmap", plan: str = "", only: _types.Patterns = (),
    rules: _types.Patterns = (), order: str = "file", verify: bool = False, per_tensor: bool = False, cache: str = "auto",
    progress: _types.Progress | None = None,
) -> Any:
    """Loads a model as torch tensors; see culvert.load_file. backend is accepted for
    compatibility with safetensors, and has no effect."""
    device = "cpu" if device is None else device  # as safetensors has it
    return _load(
        sys.modules[__name__], filename, device, verify, backend, progress,
        plan=plan, only=_patterns(only), rules=_patterns(rules), order=order, per_tensor=per_tensor, cache=cache,
    )


def load(data: bytes) -> dict[str, torch.Tensor]:
    """Loads the content of a file, bytes, as torch tensors on the CPU."""
    return _bytes.load(sys.modules[__name__], data)


def save(tensors: dict[str, torch.Tensor], metadata: _types.Metadata = None) -> bytes:
    """Returns the content of a file with these tensors, as bytes."""
    return _bytes.save(tensors, metadata)


def load_model(
    model: torch.nn.Module, filename: _types.Path, strict: bool = True, device: _types.Device | None = "cpu", *, backend: str = "mmap"
) -> tuple[set[str], list[str]]:
    """Loads a file into a torch module, also one whose parameters share memory.
    Returns the names that the file lacks and those that the module lacks."""
    return _modules.load_model(load_file, model, filename, strict, device, backend)


# The interface of a framework to the loader: _empty, _on_device and _source.


def _dtype(name):
    """Returns the torch type, or None if this torch lacks it: then tensors are bytes."""
    attribute = _dtypes.torch_name(name)
    return getattr(torch, attribute, None) if attribute else None


def _as(tensor, name, shape):
    """Returns bytes as a tensor of the type and shape."""
    dtype = _dtype(name)
    if tensor.dtype != dtype and dtype is not None:
        tensor = tensor.view(dtype)
    shape = _dtypes.stored_shape(name, shape)
    return tensor if tensor.shape == shape else tensor.reshape(shape)


def _empty(name, shape):
    """A tensor in host memory, also where the program has another default device."""
    dtype = _dtype(name)
    shape = _dtypes.stored_shape(name, shape)
    if dtype is not None and _dtypes.bits(name) >= 8:
        tensor = torch.empty(shape, dtype=dtype, device="cpu")
        return tensor, tensor.data_ptr()
    if _dtypes.bits(name) > 8:
        raise TypeError(f"this torch has no type for {name} (fix: install a newer torch)")
    tensor = torch.empty(shape, dtype=torch.uint8, device="cpu")
    return tensor if dtype is None else tensor.view(dtype), tensor.data_ptr()


def _on_device(memory, infos, first):
    capsules = _core.capsules(memory, first, len(infos))
    return [_as(from_dlpack(capsule), info["dtype"], info["shape"]) for capsule, info in zip(capsules, infos)]


def _source(name, tensor):
    if tensor.is_meta:
        # The class and the words are those of torch, which programs know.
        raise NotImplementedError(f"tensor {name!r} has no data: Cannot copy out of meta tensor (fix: load or initialize the model first)")
    tensor = tensor.detach().resolve_conj().resolve_neg()  # their bytes are those of another tensor
    dtype = _dtypes.name_of_torch(tensor.dtype)
    shape = tuple(tensor.shape)
    if dtype == "F4":
        shape = _dtypes.logical_shape(dtype, shape)
    spec = {"address": tensor.data_ptr(), "bytes": tensor.numel() * tensor.element_size()}
    if tensor.device.type == "cuda":
        torch.cuda.synchronize(tensor.device)  # wait for kernels that still write it
        spec["gpu"] = tensor.device.index
    elif tensor.device.type != "cpu":
        tensor = tensor.cpu()
        spec["address"] = tensor.data_ptr()
    return tensor, dtype, shape, spec
