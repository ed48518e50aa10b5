"""Tensors that another process serves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from . import _core
from ._device import Memory
from ._errors import RequestError
from ._load import framework, given, on_device, parse_device
from ._receipt import remember

if TYPE_CHECKING:
    from collections.abc import Iterator

    from . import _types


class Attached(Mapping[str, Any]):
    """The tensors of a served model, by name. A tensor is created at first use,
    which takes microseconds: the memory is already mapped.

    If shared, the memory is the server's own, and all processes see each other's
    writes. On the software machine it is a copy. If ranks of a model are on several
    GPUs, names occur more than once: on("cuda:1") has the tensors of one GPU.
    """

    def __init__(self, answer, memory, gpu=None):
        self.model = answer["model"]
        self.metadata = answer["metadata"]
        self.shared = answer["shared"]
        self._answer, self._memory, self._gpu = answer, memory, gpu
        self._names = None
        self._made = {}

    def on(self, device: _types.Device) -> Attached:
        """The tensors on one GPU."""
        return Attached(self._answer, self._memory, parse_device(device))

    @property
    def _index(self):
        """The tensors' numbers by name, None for a name that occurs more than once.
        The list is requested at first use."""
        if self._names is None:
            if "tensors" not in self._answer:
                self._answer |= _core.call("tensors", memory=self._memory.number)
                self._memory.addresses = self._answer["addresses"]
            names = {}
            for i, info in enumerate(self._answer["tensors"]):
                if self._gpu is None or info["gpu"] == self._gpu:
                    names[info["name"]] = None if info["name"] in names else i
            self._names = names
        return self._names

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            i = self._index[name]
            if i is None:
                raise RequestError(f'tensor {name!r} is on several GPUs: use on("cuda:0")[{name!r}]')
            infos = self._answer["tensors"][i : i + 1]
            self._made[name] = given(on_device(self._memory, infos, framework(), i), framework())[0]
        return self._made[name]

    def all(self) -> dict[str, Any]:
        """All tensors as a dict, created in one call."""
        if None in self._index.values():
            raise RequestError('tensors are on several GPUs: use on("cuda:0").all()')
        missing = [i for name, i in self._index.items() if name not in self._made]
        if len(missing) == len(self._answer["tensors"]):
            made = given(on_device(self._memory, self._answer["tensors"], framework()), framework())
            self._made = {info["name"]: tensor for info, tensor in zip(self._answer["tensors"], made)}
        return {name: self[name] for name in self}

    def __iter__(self) -> Iterator[str]:
        return iter(self._index)

    def __len__(self) -> int:
        return len(self._index)

    def __repr__(self):
        how = "shared" if self.shared else "copied"
        return f"Attached({self.model!r}, {len(self)} tensors, {how})"


def attach(path: _types.Path, user: str | int | None = None, device: _types.Device | None = None) -> Attached:
    """Attaches to the model that "culvert load MODEL gpu:0 --hold PATH" serves.

    The server must be a process of this user, or of the user, a name or an ID, that is
    given: it decides what the weights are. With a device only the tensors on that GPU
    are attached, as a rank needs it, which may not see the other GPUs.
    """
    gpus = []
    if device is not None:
        gpus = [parse_device(device)]
        if gpus == [None]:
            raise ValueError(f"device {device!r}: a served model is on GPUs")
    answer = _core.call("attach", path=_core.path_of(path), user="" if user is None else str(user), gpus=gpus)
    memory = Memory(answer)
    remember(answer["receipt"])
    return Attached(answer, memory)
