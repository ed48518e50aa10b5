"""Copies of a training state in pinned memory, from which a checkpoint is written
while training goes on."""

from __future__ import annotations

import copy
import weakref
from typing import Any

import torch


class Stager:
    """An AsyncStager of torch.distributed.checkpoint. stage() returns when the copy
    is complete: the training is blocked for that long, and not for the files. GPU
    tensors are copied in stream order, after the kernels that were launched before.

    Buffers are used again as soon as no save has tensors in them: there is one for each
    tensor of the state and of the saves that still run. close() frees them.
    """

    should_synchronize_after_execute = False

    def __init__(self) -> None:
        self._buffers: dict[Any, list[Any]] = {}  # by type and shape: pairs of the buffer and its user

    def prepare(self, state_dict: dict[str, Any]) -> None:
        """Makes and pins the buffers for such a state, which takes about twenty times as
        long as its copy, so that the first stage() waits for the copy alone. A thread may
        do it while the model is made ready, until the first stage()."""
        kept = [self._buffer(tensor) for tensor in _tensors(state_dict)]
        kept.clear()  # not earlier: a buffer without a user is taken for the next tensor

    def stage(self, state_dict: dict[str, Any]) -> dict[str, Any]:
        streams: dict[torch.device, torch.cuda.Stream] = {}
        staged = self._copy(state_dict, streams)
        for stream in streams.values():
            stream.synchronize()
        self._drop_unused()
        return staged

    def synchronize_staging(self) -> None:
        pass

    def close(self) -> None:
        self._buffers.clear()

    def _drop_unused(self):
        """Frees the buffers that neither this state nor a save that is still running
        needs: those of tensors that are no longer in the state, or of overlapping saves."""
        for kind, buffers in list(self._buffers.items()):
            self._buffers[kind] = [(buffer, user) for buffer, user in buffers if user() is not None]
            if not self._buffers[kind]:
                del self._buffers[kind]

    def _copy(self, value, streams):
        if isinstance(value, torch.Tensor):
            return self._tensor(value, streams)
        if isinstance(value, dict):
            return {key: self._copy(item, streams) for key, item in value.items()}
        if type(value) in (list, tuple):
            return type(value)(self._copy(item, streams) for item in value)
        return copy.deepcopy(value)

    def _tensor(self, tensor, streams):
        if hasattr(tensor, "placements"):  # a DTensor, whose local part is copied
            local = self._tensor(tensor.to_local(), streams)
            return type(tensor).from_local(
                local, tensor.device_mesh, tensor.placements, run_check=False, shape=tensor.shape, stride=tensor.stride()
            )
        tensor = tensor.detach()
        out = self._buffer(tensor)
        if tensor.device.type != "cuda":
            return out.copy_(tensor)
        stream = streams.get(tensor.device)
        if stream is None:
            stream = streams[tensor.device] = torch.cuda.Stream(tensor.device)
            stream.wait_stream(torch.cuda.current_stream(tensor.device))
        with torch.cuda.stream(stream):
            out.copy_(tensor, non_blocking=True)
        return out

    def _buffer(self, tensor):
        """Returns a tensor for the copy, in memory that no earlier one uses."""
        buffers = self._buffers.setdefault((tensor.dtype, tuple(tensor.shape)), [])
        for i, (buffer, user) in enumerate(buffers):
            if user() is None:
                out = buffer.detach()
                buffers[i] = (buffer, weakref.ref(out))
                return out
        buffer = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu", pin_memory=torch.cuda.is_available())
        out = buffer.detach()
        buffers.append((buffer, weakref.ref(out)))
        return out


def _tensors(value):
    """Yields the tensors of a state, of a DTensor its local part."""
    if isinstance(value, torch.Tensor):
        yield value.to_local() if hasattr(value, "placements") else value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _tensors(item)
    elif type(value) in (list, tuple):
        for item in value:
            yield from _tensors(item)
