"""load and save of safetensors files that are bytes in memory."""

import ctypes
import json
import os
import struct

from . import _save
from ._device import DeviceTensor
from ._errors import FormatError
from ._load import to_host

# The data's alignment, and the order of tensors, as the safetensors package has
# them: large elements first, so that all are aligned.
_ALIGN = 8
_ORDER = (
    "U64 I64 F64 C64 F32 U32 I32 BF16 F16 U16 I16 F8_E5M2FNUZ F8_E4M3FNUZ F8_E8M0 F8_E4M3 F8_E5M2 I8 U8 "
    "F6_E3M2 F6_E2M3 F4 BOOL"
).split()

_NAME = "the bytes"  # in errors and receipts


def load(into, data):
    """Loads the content of a file. It goes through a file in memory, so that the
    parser is the one for files, with its checks."""
    with os.fdopen(os.memfd_create("safetensors"), "wb") as f:
        f.write(data)
        f.flush()
        path = f"/proc/self/fd/{f.fileno()}"
        try:
            tensors, infos = to_host(into, known_as=_NAME, path=path)
        except FormatError as e:
            raise FormatError(str(e).replace(path, _NAME, 1)) from None
    return {info["name"]: tensor for info, tensor in zip(infos, tensors)}


def save(tensors, metadata):
    """Returns the content of a file: what the safetensors package returns."""
    _save.check(tensors, metadata)
    header = {} if metadata is None else {"__metadata__": metadata}
    data, keep = bytearray(), []
    described = [_save.describe(name, _on_host(tensor)) for name, tensor in tensors.items()]
    for tensor, spec in sorted(described, key=lambda d: (_ORDER.index(d[1]["dtype"]), d[1]["name"])):
        keep.append(tensor)
        begin = len(data)
        data += ctypes.string_at(spec["address"], spec["bytes"]) if spec["bytes"] else b""
        header[spec["name"]] = {"dtype": spec["dtype"], "shape": spec["shape"], "data_offsets": [begin, len(data)]}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % _ALIGN)
    return struct.pack("<Q", len(text)) + text + bytes(data)


def _on_host(tensor):
    if isinstance(tensor, DeviceTensor) or getattr(getattr(tensor, "device", None), "type", "cpu") != "cpu":
        return tensor.cpu()
    return tensor
