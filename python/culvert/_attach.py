"""Tensors that another process holds."""

from collections.abc import Mapping

from . import _core
from ._device import Memory
from ._errors import RequestError
from ._load import framework, on_device, parse_device


class Attached(Mapping):
    """The tensors of a held model, by name. They are made when they are asked for,
    which costs microseconds: the memory is mapped already.

    shared says whether the memory is the holder's own: then writes of one process
    are seen by all. On the software machine it is a copy. Where ranks of a model
    are on several GPUs, names occur more than once: on("cuda:1") has those of one.
    """

    def __init__(self, answer, memory, gpu=None):
        self.model = answer["model"]
        self.metadata = answer["metadata"]
        self.shared = answer["shared"]
        self._answer, self._memory = answer, memory
        self._index = {}  # by name: the number, or None where there are several
        for i, info in enumerate(answer["tensors"]):
            if gpu is None or info["gpu"] == gpu:
                self._index[info["name"]] = None if info["name"] in self._index else i
        self._made = {}

    def on(self, device):
        """The tensors on one GPU."""
        return Attached(self._answer, self._memory, parse_device(device))

    def __getitem__(self, name):
        if name not in self._made:
            i = self._index[name]
            if i is None:
                raise RequestError(f'tensor {name!r} is on several GPUs: take it from on("cuda:0") or the like')
            infos = self._answer["tensors"][i : i + 1]
            self._made[name] = on_device(self._memory, infos, framework(), i)[0]
        return self._made[name]

    def __iter__(self):
        return iter(self._index)

    def __len__(self):
        return len(self._index)

    def __repr__(self):
        how = "shared" if self.shared else "copied"
        return f"Attached({self.model!r}, {len(self)} tensors, {how})"


def attach(path):
    """Attaches to the model that "culvert load MODEL gpu:0 --hold PATH" holds."""
    answer = _core.call("attach", path=_core.path_of(path))
    return Attached(answer, Memory(answer))
