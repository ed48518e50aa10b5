"""Load model weights into GPU memory, and save them from it.

    from culvert import load_file, save_file, safe_open, attach

``load_file`` and ``save_file`` have the signatures of the safetensors package.
``culvert.torch`` and ``culvert.numpy`` return tensors of their framework; the
functions here use torch if it is installed, and numpy otherwise.

The package needs no build: it calls libculvert.so. It searches CULVERT_LIB, the
package's directory, lib/ of the source tree, and where "make install" puts it.
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
