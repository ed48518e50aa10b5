"""The receipt of a thread's last load, save or attach."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

from . import _core

_last = threading.local()  # receipt: a Receipt, or the request for one
observers: list[Callable[[Receipt], object]] = []  # called with every receipt


class Receipt(dict[str, Any]):
    """What a load, save or attach did: bytes, times, and for each file the route
    and why better ones were not used. A dict that prints as one line."""

    def __str__(self) -> str:
        words = [self["op"], os.path.basename(self.get("model") or self.get("file", ""))]
        words.append(f"tensors={self['tensors']}")
        if self["op"] == "load":
            words.append(f"bytes={self['wanted_bytes']} read={self['read_bytes']}")
            if self["verified"]:
                words.append(f"verified={self['verified']}")
        else:
            words.append(f"bytes={self['bytes']}")
        words.append(f"time={self['seconds'] * 1e3:.1f}ms")
        if self["op"] != "attach":
            words.append(f"rate={self['gb_per_second']:.3g}GB/s")
        routes = sorted({f["receipt"]["route"] for f in self.get("files") or ()})
        if routes:
            words.append("route=" + ",".join(routes))
        if self.get("software_machine"):
            words.append("SOFTWARE-MACHINE")
        return " ".join(words)


def keep(receipt):
    """Makes a receipt the last one of this thread."""
    _last.receipt = receipt


def remember(receipt):
    keep(Receipt(receipt))
    for observer in observers:
        observer(_last.receipt)


def remember_segment(**figures):
    """remember for the read of a small tensor. Its receipt takes longer than the read,
    and is made when it is asked for."""
    _last.receipt = figures
    if observers:
        remember(_segment(figures))


def _segment(figures):
    return _core.call("segment", **figures)["receipt"]


def last_receipt() -> Receipt | None:
    """The receipt of this thread's last load, save or attach, or None."""
    last = getattr(_last, "receipt", None)
    if last is not None and not isinstance(last, Receipt):
        keep(Receipt(_segment(last)))
    return getattr(_last, "receipt", None)
