"""Tensors on a GPU, for programs without torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import _core

if TYPE_CHECKING:
    import numpy
    import torch


class Memory(_core.Handle):
    """GPU memory that the core loads or has mapped. It is freed with the last
    reference to it and to the tensors in it."""

    def __init__(self, answer):
        super().__init__(answer["memory"])
        self.soft = answer["software_machine"]
        self.addresses = answer.get("addresses")  # later, if it was attached


class DeviceTensor:
    """A tensor in GPU memory.

    It has a dtype (the format's name, such as "BF16"), a shape, a device, nbytes
    and data_ptr. numpy(), cpu() and torch() copy it to the host. On a real GPU it
    supports DLPack: torch.from_dlpack and cupy.from_dlpack use it without a copy.
    The software machine's memory can only be copied.
    """

    def __init__(self, memory, index, info):
        self._memory, self._index = memory, index
        self.name = info["name"]
        self.dtype = info["dtype"]
        self.shape = tuple(info["shape"])
        self.nbytes = info["bytes"]
        self.gpu = info["gpu"]
        self.device = f"cuda:{info['gpu']}"

    @property
    def data_ptr(self) -> int:
        """The address, which is valid only on the GPU."""
        return self._memory.addresses[self._index]

    def __repr__(self) -> str:
        where = "software " if self._memory.soft else ""
        return f"DeviceTensor({self.name!r}, dtype={self.dtype}, shape={list(self.shape)}, device={where}{self.device})"

    def __getattr__(self, name: str) -> Any:
        why = f"{type(self).__name__!r} object has no attribute {name!r}"
        if not name.startswith("_") and "_memory" in self.__dict__ and self._memory.soft:
            why += ' (it is in the memory of the software machine; fix: cpu() copies it, culvert.software(tensors="cpu") makes loads do so)'
        raise AttributeError(why, name=name, obj=self)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a tensor without dimensions")
        return self.shape[0]

    def copy_to(self, address: int) -> None:
        """Copies the bytes to an address in host memory."""
        _core.copy(self._memory, self._index, 0, address, self.nbytes)

    def numpy(self) -> numpy.ndarray:
        """A copy as a numpy array. Types that numpy lacks are tagged."""
        from . import numpy as framework

        return self._copy(framework)

    def torch(self) -> torch.Tensor:
        """A copy as a torch tensor on the CPU."""
        from . import torch as framework

        return self._copy(framework)

    def cpu(self) -> Any:
        """A copy as a torch tensor if torch is installed, otherwise as a numpy array."""
        from ._load import framework

        return self._copy(framework())

    def _copy(self, framework):
        tensor, address = framework._empty(self.dtype, self.shape)
        self.copy_to(address)
        return tensor

    def __array__(self, dtype=None, copy=None):
        if copy is False:
            raise ValueError("GPU memory cannot be read in place: a copy is required")
        array = self.numpy()
        return array if dtype is None else array.astype(dtype)

    def __dlpack_device__(self):
        return (2, self.gpu)  # kDLCUDA

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        """A capsule for another library. The bytes have arrived, so no stream must
        wait. float8 and packed types are bytes."""
        if self._memory.soft:
            raise BufferError("only Culvert can access the software machine's memory: copy it with cpu() or numpy()")
        if copy:
            raise BufferError("copy=True is not supported")
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            raise BufferError(f"the tensor is on {self.device}")
        return _core.capsules(self._memory, self._index, 1)[0]

    def __reduce__(self):
        raise TypeError("a tensor in GPU memory cannot be pickled (fix: serve the model with culvert load --hold, and attach to it)")
