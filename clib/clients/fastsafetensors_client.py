"""fastsafetensors' own GDS copier: it opens libcudart and libcufile.so.0 at run time."""

import warnings

warnings.simplefilter("error", UserWarning)  # it warns, and takes another copier, where it has no GDS

import torch
from fastsafetensors import SafeTensorsFileLoader, SingleGroup
from safetensors.torch import save_file

WEIGHTS = {
    "w": torch.arange(3_000_000, dtype=torch.int32).reshape(3000, 1000),
    "b": torch.ones(7, dtype=torch.bfloat16),
    "odd": torch.arange(13, dtype=torch.uint8),
}


def main():
    save_file(WEIGHTS, "model.safetensors")
    loader = SafeTensorsFileLoader(SingleGroup(), "cuda:0", set_numa=False)
    loader.add_filenames({0: ["model.safetensors"]})
    files = loader.copy_files_to_device()
    for name, want in WEIGHTS.items():
        got = files.get_tensor(name)
        assert got.is_cuda and torch.equal(got.cpu(), want), name
    print("load: works")
    files.close()
    loader.close()


main()
