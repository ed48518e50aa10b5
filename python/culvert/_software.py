"""What a load to a GPU of the software machine returns."""

from __future__ import annotations

import os

_KINDS = ("device", "cpu")
_chosen = None


def software(*, tensors: str = "device") -> None:
    """Says what loads to a GPU of the software machine return: "device", a
    DeviceTensor in its memory, or "cpu", an ordinary CPU tensor (torch, or numpy
    without it) whose bytes went through that GPU's memory. With "cpu", programs
    written for cuda:0 run on machines without a GPU. Loads to real GPUs are not
    affected. CULVERT_TENSORS=cpu does the same; this call precedes it."""
    global _chosen
    _chosen = _checked(tensors, "tensors")


def on_cpu():
    """Whether tensors of the software machine are copied to CPU tensors."""
    kind = _chosen or _checked(os.environ.get("CULVERT_TENSORS") or "device", "CULVERT_TENSORS")
    return kind == "cpu"


def _checked(kind, name):
    if kind not in _KINDS:
        raise ValueError(f"{name}={kind!r}: want one of {', '.join(_KINDS)}")
    return kind
