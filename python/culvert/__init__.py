"""Load model weights into GPU memory, and save them from it.

    from culvert import load_file, save_file
    tensors = load_file("model.safetensors", device="cuda:0")
    save_file(tensors, "copy.safetensors")

load_file    load a model: a safetensors file, an index of shards, or a directory
stream       the same, tensor by tensor as they arrive
aload        the same, for asyncio
safe_open    read single tensors, or slices of them
save_file    save tensors to a file, atomically, with a manifest of checksums
save_step    save a checkpoint of a training run
attach       use the tensors that another process serves
patch        make programs that use the safetensors package use Culvert
software     say what loads return on a machine without a GPU
last_receipt what the last load or save did: bytes, times, routes
machine      the machine that Culvert uses, and its GPUs

culvert.torch and culvert.numpy have the functions of safetensors.torch and
safetensors.numpy, with their signatures; the functions here use torch if it is
installed, and numpy otherwise. culvert.checkpoint is storage for
torch.distributed.checkpoint, culvert.fastsafetensors a copier for fastsafetensors,
culvert.testing breaks the software machine in tests.

Errors are OSError or CulvertError. The package calls libculvert.so, which it searches
in CULVERT_LIB, in its own directory, in lib/ of the source tree, and where "make
install" puts it.
"""

from ._arrivals import aload, bar, stream
from ._attach import Attached, attach
from ._core import machine
from ._device import DeviceTensor
from ._dtypes import dtype_of
from ._errors import (
    ChecksumError,
    CulvertError,
    ForkError,
    FormatError,
    GPUError,
    OutOfMemoryError,
    RequestError,
    SafetensorError,
)
from ._load import load_file
from ._open import Slice, safe_open
from ._patch import patch, unpatch
from ._receipt import Receipt, last_receipt
from ._save import save_file, save_step
from ._software import software

__version__ = "0.1.0"

__all__ = [
    "Attached",
    "ChecksumError",
    "CulvertError",
    "DeviceTensor",
    "ForkError",
    "FormatError",
    "GPUError",
    "OutOfMemoryError",
    "Receipt",
    "RequestError",
    "SafetensorError",
    "Slice",
    "aload",
    "attach",
    "bar",
    "dtype_of",
    "last_receipt",
    "load_file",
    "machine",
    "patch",
    "safe_open",
    "save_file",
    "save_step",
    "software",
    "stream",
    "unpatch",
]
