"""The element types of the format, and their numpy and torch types."""

from __future__ import annotations

from typing import Any

# Bits of an element, the numpy type that carries it, the torch type.
_TABLE = {
    "BOOL": (8, "?", "bool"),
    "U8": (8, "u1", "uint8"),
    "I8": (8, "i1", "int8"),
    "U16": (16, "<u2", "uint16"),
    "I16": (16, "<i2", "int16"),
    "U32": (32, "<u4", "uint32"),
    "I32": (32, "<i4", "int32"),
    "U64": (64, "<u8", "uint64"),
    "I64": (64, "<i8", "int64"),
    "F16": (16, "<f2", "float16"),
    "F32": (32, "<f4", "float32"),
    "F64": (64, "<f8", "float64"),
    "C64": (64, "<c8", "complex64"),
    # numpy lacks these: their bits are in integers with a tag.
    "BF16": (16, "<u2", "bfloat16"),
    "F8_E4M3": (8, "u1", "float8_e4m3fn"),
    "F8_E5M2": (8, "u1", "float8_e5m2"),
    "F8_E8M0": (8, "u1", "float8_e8m0fnu"),
    "F8_E4M3FNUZ": (8, "u1", "float8_e4m3fnuz"),
    "F8_E5M2FNUZ": (8, "u1", "float8_e5m2fnuz"),
    # Packed: several elements share a byte.
    "F4": (4, "u1", "float4_e2m1fn_x2"),
    "F6_E2M3": (6, "u1", None),
    "F6_E3M2": (6, "u1", None),
}

_TAGGED = {"BF16", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "F4", "F6_E2M3", "F6_E3M2"}

# Names of numpy types, those of the ml_dtypes package included.
_BY_NAME = {torch: name for name, (bits, _, torch) in _TABLE.items() if torch and bits >= 8}

TAG = "safetensors"


def bits(name):
    return _TABLE[name][0]


def numpy_code(name):
    return _TABLE[name][1]


def torch_name(name):
    return _TABLE[name][2]


def tagged(name):
    """Whether numpy lacks the type."""
    return name in _TAGGED


def stored_shape(name, shape):
    """The shape of the array that stores a tensor. For packed types the last
    dimension counts bytes. If rows do not end on bytes, it is the only one."""
    width = bits(name)
    if width >= 8:
        return tuple(shape)
    if shape and shape[-1] * width % 8 == 0:
        return (*shape[:-1], shape[-1] * width // 8)
    count = 1
    for dim in shape:
        count *= dim
    return (count * width // 8,)


def logical_shape(name, shape):
    """The inverse of stored_shape for packed types."""
    width = bits(name)
    if width >= 8:
        return tuple(shape)
    return (*shape[:-1], shape[-1] * 8 // width)


def name_of_numpy(dtype):
    """The format's name of a numpy type, or None."""
    if dtype.metadata and TAG in dtype.metadata:
        return dtype.metadata[TAG]
    return _BY_NAME.get(dtype.name)


def name_of_torch(dtype):
    """The format's name of a torch type, or None."""
    name = str(dtype).rpartition(".")[2]
    if name == "float4_e2m1fn_x2":
        return "F4"
    return _BY_NAME.get(name)


def dtype_of(tensor: Any) -> str | None:
    """The format's name ("BF16") of a tensor's element type, also for numpy arrays
    of types that numpy lacks."""
    dtype = tensor.dtype
    if isinstance(dtype, str):
        return dtype
    if type(tensor).__module__.partition(".")[0] == "torch":
        return name_of_torch(dtype)
    return name_of_numpy(dtype)
