"""A copier for fastsafetensors (0.5.0), which other loaders use in turn.

    import culvert.fastsafetensors
    from fastsafetensors.st_types import Device
    culvert.fastsafetensors.register()
    loader = fastsafetensors.loader.BaseSafeTensorsFileLoader(pg, Device.from_str("cuda:0"), copier_type="culvert")

Each file is one load of Culvert: it begins when fastsafetensors submits it, so that
several are in flight, and ends when fastsafetensors waits for it.
"""

from fastsafetensors.copier.base import CopierInterface, DummyDeviceBuffer
from fastsafetensors.copier.registry import register_copier_constructor
from fastsafetensors.frameworks._torch import TorchTensor
from fastsafetensors.st_types import DType

from . import _core, _load, torch
from ._device import Memory
from ._receipt import remember

NAME = "culvert"


class Copier(CopierInterface):
    """Loads one file to one device. Ranges are accepted, and the whole file is read."""

    def __init__(self, metadata, device):
        self.metadata, self._device = metadata, device
        self._gpu = _load.parse_device(device.as_str())
        self._memory = self._infos = None

    def submit_io(self, use_buf_register, max_copy_block_size):
        if self._gpu is not None:
            answer = _core.call("load", path=_core.path_of(self.metadata.src), gpus=[self._gpu])
            self._memory, self._infos = Memory(answer), answer["tensors"]
        return DummyDeviceBuffer()

    def wait_io(self, gbuf, dtype=DType.AUTO, noalign=False, owner=None):
        found = {}
        for name, tensor in self._tensors().items():
            found[name] = TorchTensor(self._device, self.metadata.tensors[name].dtype, tensor)
            if dtype != DType.AUTO:
                found[name] = found[name].to(dtype=dtype)
        return found

    def _tensors(self):
        if self._gpu is None:
            return torch.load_file(self.metadata.src)
        tensors = _load.on_device(self._memory, self._infos, torch)
        remember(_core.call("finish", memory=self._memory.number)["receipt"])
        tensors = _load.given(tensors, torch)
        self._memory = None  # the tensors have it
        return {info["name"]: tensor for info, tensor in zip(self._infos, tensors)}


def register() -> None:
    """Makes copier_type="culvert" known to fastsafetensors."""
    _register(NAME)


def replace() -> None:
    """Puts Culvert in the place of fastsafetensors' own copiers, for programs that
    choose among those, such as SGLang."""
    for name in ("gds", "nogds", "unified"):
        _register(name)


def _register(name):
    @register_copier_constructor(name, Copier)
    def constructor(device, **_):
        return lambda metadata, device, framework: Copier(metadata, device)
