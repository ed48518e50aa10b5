"""Exceptions. Errors of the operating system are OSErrors."""

# Code that catches the errors of the safetensors package catches these, too.
try:
    from safetensors import SafetensorError as _Base
except ImportError:
    _Base = Exception  # type: ignore[misc, assignment]


class CulvertError(_Base):
    """Any error that is not the operating system's."""


class FormatError(CulvertError):
    """A file, or a tensor to be saved, breaks a rule of the safetensors format."""


class ChecksumError(CulvertError):
    """Bytes differ from the ones that were saved."""


class RequestError(CulvertError, ValueError):
    """The requested tensor, slice or part of a model does not exist."""


class GPUError(CulvertError):
    """A call of the GPU driver failed."""


class OutOfMemoryError(GPUError, MemoryError):
    """The GPU has not enough memory."""


_FORKED = (
    "this process was forked from one that had loaded libculvert.so, which does not support fork "
    '(fix: multiprocessing.set_start_method("spawn"), or use Culvert only in child processes)'
)


class ForkError(CulvertError):
    """This process is a forked child of one that has used Culvert."""

    # A pool of processes takes exceptions from its workers by their arguments.
    def __init__(self, text=_FORKED):
        super().__init__(text)


# The name of the safetensors package.
SafetensorError = CulvertError

_KINDS = {
    "format": FormatError,
    "checksum": ChecksumError,
    "request": RequestError,
    "gpu": GPUError,
    "memory": OutOfMemoryError,
}


def exception(failure):
    """Returns the exception for an error of the core."""
    if failure["kind"] == "os":
        return OSError(failure["errno"], failure["error"])  # FileNotFoundError and the like
    return _KINDS.get(failure["kind"], CulvertError)(failure["error"])
