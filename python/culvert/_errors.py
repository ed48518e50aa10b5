"""What can go wrong, as exceptions. Files that cannot be opened are OSErrors."""


class CulvertError(Exception):
    """Any failure of Culvert that is not the operating system's."""


class FormatError(CulvertError):
    """A file breaks a rule of the safetensors format, or a tensor would."""


class ChecksumError(CulvertError):
    """Bytes are not the ones that were saved."""


class RequestError(CulvertError, ValueError):
    """What was asked for is not there: a tensor, a slice, a part of a model."""


class GPUError(CulvertError):
    """The driver refused."""


class OutOfMemoryError(GPUError, MemoryError):
    """The GPU has no room."""


class ForkError(CulvertError):
    """This process is a forked child of one that has used Culvert."""

    def __init__(self):
        super().__init__(
            "this process was forked from one that had loaded libculvert.so, which does not survive a fork: "
            'start workers with multiprocessing.set_start_method("spawn"), or use Culvert in the children only'
        )


# The name that code written for the safetensors package catches.
SafetensorError = CulvertError

_KINDS = {
    "format": FormatError,
    "checksum": ChecksumError,
    "request": RequestError,
    "gpu": GPUError,
    "memory": OutOfMemoryError,
}


def exception(failure):
    """The exception for what the core answered."""
    if failure["kind"] == "os":
        return OSError(failure["errno"], failure["error"])  # FileNotFoundError and the like
    return _KINDS.get(failure["kind"], CulvertError)(failure["error"])
