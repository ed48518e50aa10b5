"""save_model and load_model: torch modules whose parameters may share memory.

A file has each byte once. Of names that share memory, the one is saved whose tensor
is the whole of it; the metadata says for each other name which one that is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import _save

if TYPE_CHECKING:
    import torch

    from . import _types


def save_model(
    model: torch.nn.Module, filename: _types.Path, metadata: _types.Metadata = None, force_contiguous: bool = True
) -> None:
    """Saves the state of a torch module; see save_file."""
    state = model.state_dict()
    kept_by = _duplicates(state, ())
    metadata = dict(metadata or {})
    for name, kept in kept_by.items():
        metadata.setdefault(name, kept)
        del state[name]
    if force_contiguous:
        state = {name: tensor.contiguous() for name, tensor in state.items()}
    try:
        _save.save_file(state, filename, metadata or None)
    except ValueError as e:
        if force_contiguous:
            raise
        raise ValueError(f"{e}, or use save_model(..., force_contiguous=True)") from None


def load_model(load_file, model, filename, strict, device, backend):
    """Loads a file into a torch module. Returns the names of the module that the
    file lacks, and those of the file that the module lacks. If strict, either is an
    error."""
    state = load_file(filename, device=device, backend=backend)
    duplicates = _duplicates(model.state_dict(), state)
    missing, unexpected = model.load_state_dict(state, strict=False)
    unexpected = list(unexpected) + [name for name in duplicates if name not in missing]
    missing = set(missing) - set(duplicates)
    if strict and (missing or unexpected):
        raise RuntimeError("\n    ".join([
            f"Error(s) in loading state_dict for {type(model).__name__}:",
            *(f"{what} key(s) in state_dict: " + ", ".join(f'"{name}"' for name in sorted(names))
              for what, names in (("Missing", missing), ("Unexpected", unexpected)) if names),
        ]))
    return missing, unexpected


def _duplicates(state, preferred):
    """Returns the names to leave out, and for each the one that has its bytes."""
    kept_by = {}
    for group in _overlapping(state):
        whole = sorted(name for name in group if _is_whole(state[name]))
        if not whole:
            raise RuntimeError(f"tensors {sorted(group)} share memory, and none is the whole of it (fix: save clones of them)")
        kept = next((name for name in whole if name in preferred), whole[0])
        kept_by.update({name: kept for name in sorted(group) if name != kept})
    return kept_by


def _overlapping(state):
    """Yields groups of two or more names whose tensors overlap in memory."""
    group, storage, end = [], None, 0
    for where, begin, stop, name in sorted(_extent(name, t) for name, t in state.items() if t.device.type != "meta" and t.numel()):
        if where == storage and begin < end:
            group.append(name)
            end = max(end, stop)
            continue
        if len(group) > 1:
            yield group
        group, storage, end = [name], where, stop
    if len(group) > 1:
        yield group


def _extent(name, tensor):
    """Device and storage, the first and the last address of a tensor."""
    last = sum((n - 1) * stride for n, stride in zip(tensor.shape, tensor.stride()))
    begin = tensor.data_ptr()
    return (str(tensor.device), tensor.untyped_storage().data_ptr()), begin, begin + (last + 1) * tensor.element_size(), name


def _is_whole(tensor):
    storage = tensor.untyped_storage()
    return tensor.data_ptr() == storage.data_ptr() and tensor.numel() * tensor.element_size() == storage.nbytes()
