"""Model weights into GPU memory, and checkpoints out of it.

    from culvert import load_file, save_file, safe_open, attach

``load_file`` and ``save_file`` have the signatures of the safetensors package.
``culvert.torch`` and ``culvert.numpy`` say which kind of tensor is wanted; the
functions here take torch where it is installed and numpy where it is not.

There is nothing to build: the package calls libculvert.so, which is looked for
at CULVERT_LIB, beside the package, in lib/ of the source tree and where "make
install" puts it.
"""

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
from ._receipt import Receipt, last_receipt
from ._save import save_file

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
    "attach",
    "dtype_of",
    "last_receipt",
    "load_file",
    "machine",
    "safe_open",
    "save_file",
]
