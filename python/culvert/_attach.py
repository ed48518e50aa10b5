"""Tensors that another process holds."""

from collections.abc import Mapping

from . import _core
from ._device import Memory
from ._errors import RequestError
from ._load import framework, on_device, parse_device
from ._receipt import remember


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
        self._answer, self._memory, self._gpu = answer, memory, gpu
        self._names = None
        self._made = {}

    def on(self, device):
        """The tensors on one GPU."""
        return Attached(self._answer, self._memory, parse_device(device))

    @property
    def _index(self):
        """The tensors' numbers by name, None where there are several. The list is
        asked for when somebody wants it."""
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

    def __getitem__(self, name):
        if name not in self._made:
            i = self._index[name]
            if i is None:
                raise RequestError(f'tensor {name!r} is on several GPUs: take it from on("cuda:0") or the like')
            infos = self._answer["tensors"][i : i + 1]
            self._made[name] = on_device(self._memory, infos, framework(), i)[0]
        return self._made[name]

    def all(self):
        """All tensors as a dict, made in one go."""
        if None in self._index.values():
            raise RequestError('tensors are on several GPUs: take them from on("cuda:0") or the like')
        missing = [i for name, i in self._index.items() if name not in self._made]
        if len(missing) == len(self._answer["tensors"]):
            made = on_device(self._memory, self._answer["tensors"], framework())
            self._made = {info["name"]: tensor for info, tensor in zip(self._answer["tensors"], made)}
        return {name: self[name] for name in self}

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
    memory = Memory(answer)
    remember(answer["receipt"])
    return Attached(answer, memory)
