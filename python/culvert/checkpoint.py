"""Storage for torch.distributed.checkpoint: atomic, checksummed, from GPU memory.

    from torch.distributed import checkpoint
    from culvert.checkpoint import Reader, Stager, Writer

    checkpoint.save(state, storage_writer=Writer(path))
    checkpoint.load(state, storage_reader=Reader(path))
    checkpoint.async_save(state, storage_writer=Writer(path), async_stager=stager)

Each rank writes one safetensors file, with a manifest of checksums. The checkpoint
is the file .metadata, which names them and is replaced last, by a rename: whoever is
killed at whatever moment leaves the old checkpoint or the new one. Files of former
and of unfinished checkpoints are removed after the next one is complete: the save
does not wait for that, but the save after it does, and the end of the process.
"""

from __future__ import annotations

import ctypes
import dataclasses
import io
import os
import pickle
import uuid
from typing import TYPE_CHECKING, Any

import torch
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta
from torch.distributed.checkpoint.planner import LoadItemType, WriteItemType
from torch.distributed.checkpoint.storage import StorageReader, StorageWriter, WriteResult
from torch.futures import Future

from . import _core, _former, _load, _save
from ._errors import CulvertError, FormatError
from ._stager import Stager
from .torch import load_file

if TYPE_CHECKING:
    from . import _types

__all__ = ["Reader", "Stager", "Writer"]

METADATA = ".metadata"


class Writer(StorageWriter):
    """Writes checkpoints into a directory. Tensors may be on GPUs."""

    def __init__(self, path: _types.Path) -> None:
        self.path = _directory(path)

    def reset(self, checkpoint_id=None):
        if checkpoint_id:
            self.path = _directory(checkpoint_id)

    def set_up_storage_writer(self, is_coordinator, *args, **kwargs):
        """torch says what it does only to a method with a parameter of the name kwargs."""
        if kwargs.get("use_collectives") is False:
            raise NotImplementedError(
                f"save to {self.path}: use_collectives=False would have each rank replace the checkpoint by its own part (fix: leave it out)"
            )

    def prepare_local_plan(self, plan):
        os.makedirs(self.path, exist_ok=True)
        return plan

    def prepare_global_plan(self, plans):
        """Names the files. No save has the names of another: the files of the last
        checkpoint stay until this one is complete. The space of those before it is
        free when the ranks begin to write."""
        _former.wait(self.path)
        save = uuid.uuid4().hex
        return [dataclasses.replace(plan, storage_data=f"__{rank}_{save}.safetensors") for rank, plan in enumerate(plans)]

    def write_data(self, plan, planner):
        tensors, results = {}, []
        for item in plan.items:
            data = planner.resolve_data(item)
            if item.type == WriteItemType.BYTE_IO:
                data = torch.frombuffer(bytearray(data.getvalue()) or bytearray(1), dtype=torch.uint8)[: len(data.getvalue())]
            name = _free_name(item.index.fqn, tensors)
            tensors[name] = data.detach().contiguous()
            place = (plan.storage_data, name)
            results.append(WriteResult(index=item.index, size_in_bytes=data.numel() * data.element_size(), storage_data=place))
        if tensors:
            _save.write(tensors, os.path.join(self.path, plan.storage_data), None)
        return _done(results)

    def finish(self, metadata, results):
        places = {result.index: result.storage_data for results_of_rank in results for result in results_of_rank}
        metadata.storage_data, metadata.storage_meta = places, self.storage_meta()
        text, files = pickle.dumps(metadata), {file for file, _ in places.values()}
        _load_metadata(text, self.path)  # what cannot be read must not be published
        with _former.locked(self.path):
            self._publish(text, files)
            used = _Used(self.path, files)  # of this metadata: the next save may replace it at once
        _former.remove(self.path, used)

    def _publish(self, text, files):
        lost = sorted(file for file in files if not os.path.exists(os.path.join(self.path, file)))
        if lost:
            raise CulvertError(
                f"{self.path}: another save to this directory has completed meanwhile, and removed {lost[0]} "
                "(fix: one save at a time, and a directory for each training run)"
            )
        temporary = os.path.join(self.path, METADATA + ".tmp")
        with open(temporary, "wb") as f:
            f.write(text)
            f.flush()
            os.fsync(f.fileno())
        os.replace(temporary, os.path.join(self.path, METADATA))
        _sync_directory(self.path)

    def storage_meta(self):
        return StorageMeta(checkpoint_id=self.path)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id):
        return isinstance(checkpoint_id, (str, os.PathLike)) and "://" not in os.fspath(checkpoint_id)


class Reader(StorageReader):
    """Reads checkpoints of Writer. Tensors on a GPU are loaded to it directly. All
    are verified against the checksums, unless verify is False."""

    def __init__(self, path: _types.Path, *, verify: bool = True) -> None:
        self.path, self.verify = _directory(path), verify
        self._places: dict[Any, tuple[str, str]] = {}

    def reset(self, checkpoint_id=None):
        if checkpoint_id:
            self.path = _directory(checkpoint_id)
        self._places = {}

    def read_metadata(self, *arguments, **named):
        with open(os.path.join(self.path, METADATA), "rb") as f:
            return _load_metadata(f.read(), self.path)

    def set_up_storage_reader(self, metadata, is_coordinator, *arguments, **named):
        self._places = metadata.storage_data

    def prepare_local_plan(self, plan):
        return plan

    def prepare_global_plan(self, plans):
        return plans

    def read_data(self, plan, planner):
        by_load = {}
        for item in plan.items:
            target = None if item.type == LoadItemType.BYTE_IO else planner.resolve_tensor(item).detach()
            device = str(target.device) if target is not None and target.device.type == "cuda" else "cpu"
            file, key = self._places[item.storage_index]
            by_load.setdefault((file, device), []).append((key, item, target))
        for (file, device), items in by_load.items():
            self._read(os.path.join(self.path, file), device, items, planner)
        return _done(None)

    def _read(self, path, device, items, planner):
        tensors = load_file(path, device, only=sorted({_load.literal(key) for key, _, _ in items}), verify=self.verify)
        for key, item, target in items:
            tensor = tensors[key]
            if target is None:
                planner.load_bytes(item, io.BytesIO(ctypes.string_at(tensor.data_ptr(), tensor.nbytes)))  # torch needs numpy for it
                continue
            for dim, (begin, length) in enumerate(zip(item.storage_offsets, item.lengths)):
                tensor = tensor.narrow(dim, begin, length)
            if tensor.shape != target.shape:
                raise CulvertError(f"{path}: {item.storage_index.fqn} has shape {list(tensor.shape)}, its destination {list(target.shape)}")
            target.copy_(tensor)
            planner.commit_tensor(item, target)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id):
        return Writer.validate_checkpoint_id(checkpoint_id)


def _directory(path):
    """A store would get the tensors, and this directory's file system the metadata."""
    path = _core.path_of(path)
    if "://" in path:
        raise ValueError(f"{path}: a distributed checkpoint needs a directory (fix: save to one; culvert.save_step saves to stores)")
    return _load.absolute(path)


class _Used:
    """The files of the complete checkpoint in a directory, which were these when it was
    created. The metadata of large models takes seconds to read."""

    def __init__(self, path, files):
        self.path, self.files, self.stamp = os.path.join(path, METADATA), files, None
        self.stamp = self._stamp()

    def _stamp(self):
        found = os.stat(self.path)
        return found.st_ino, found.st_mtime_ns

    def __call__(self):
        if self._stamp() == self.stamp:
            return self.files
        with open(self.path, "rb") as f:
            return {file for file, _ in _load_metadata(f.read(), f.name).storage_data.values()}


def _free_name(fqn, taken):
    """The name of a tensor in a file: that in the state, with a number where a rank has
    several parts of one tensor."""
    name, n = fqn.encode(errors="backslashreplace").decode(), 1
    while name in taken or name == "__metadata__":
        name, n = f"{fqn}#{n + 1}", n + 1
    return name


def _done(value):
    future = Future()
    future.set_result(value)
    return future


def _sync_directory(path):
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class _Unpickler(pickle.Unpickler):
    """Reads the metadata of a checkpoint, and nothing that could run code."""

    def find_class(self, module, name):
        if module == "torch.distributed.checkpoint.filesystem":
            raise CulvertError("the checkpoint was written by torch's FileSystemWriter (fix: load it with FileSystemReader, and save it with Writer)")
        value = super().find_class(module, name) if (module, name) in _HARMLESS or module in _MODULES else None
        if module == "torch" and not isinstance(value, (torch.dtype, torch.layout, torch.memory_format)) and value is not torch.Size:
            value = None
        if value is None or (module == "torch.distributed.checkpoint.metadata" and getattr(value, "__module__", None) != module):
            raise pickle.UnpicklingError(f"{module}.{name} has no place in a checkpoint's metadata")
        return value


_MODULES = {"torch", "torch.distributed.checkpoint.metadata"}
_HARMLESS = {("torch.serialization", "_get_layout"), ("collections", "OrderedDict"), ("builtins", "set")}


def _load_metadata(text, path):
    try:
        metadata = _Unpickler(io.BytesIO(text)).load()
    except CulvertError:
        raise
    except Exception as e:  # pickle raises anything
        raise FormatError(f"{path}: the checkpoint's metadata is damaged, or not that of culvert.checkpoint.Writer: {e}") from e
    places = getattr(metadata, "storage_data", None)
    if not isinstance(metadata, Metadata) or not isinstance(places, dict):
        raise CulvertError(f"{path}: the checkpoint's metadata is not that of culvert.checkpoint.Writer")
    for file, _ in places.values():
        if os.path.basename(file) != file:
            raise CulvertError(f"{path}: the checkpoint's metadata names {file!r}, which is outside its directory")
    return metadata
