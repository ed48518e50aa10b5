"""The types of public signatures. Only type checkers import this module, because
torch and numpy need not be installed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, Union


class TorchDevice(Protocol):
    """A torch.device. Type checkers know it where torch is not installed, too."""

    @property
    def type(self) -> str: ...

    @property
    def index(self) -> int | None: ...


Path = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]
Device = Union[str, int, TorchDevice]
Devices = Union[Device, Sequence[Device]]  # with several the result is a list
Patterns = Union[str, Iterable[str]]
Progress = Callable[[int, int], Any]
Metadata = Union["dict[str, str]", None]
