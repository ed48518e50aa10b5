"""fastsafetensors loads through our copier."""

import os
import pathlib
import tempfile
import unittest

os.environ.update(CULVERT_MACHINE="soft", CULVERT_SOFT="gpus=2,memory=64M")

import fastsafetensors.loader
import safetensors.torch
import torch
from fastsafetensors.common import SafeTensorsMetadata
from fastsafetensors.copier import registry
from fastsafetensors.frameworks import get_framework_op
from fastsafetensors.st_types import Device

import culvert.fastsafetensors
from culvert import _receipt, _software


class Fastsafetensors(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory(prefix="culvert-")
        self.addCleanup(directory.cleanup)
        self.addCleanup(setattr, _software, "_chosen", None)
        self.path = str(pathlib.Path(directory.name) / "model.safetensors")
        self.want = {"w": torch.arange(1000.0).reshape(10, 100), "b": torch.ones(7, dtype=torch.bfloat16)}
        safetensors.torch.save_file(self.want, self.path)
        culvert.fastsafetensors.register()

    def test_loader(self):
        loader = fastsafetensors.loader.BaseSafeTensorsFileLoader(None, Device.from_str("cpu"), copier_type="culvert", set_numa=False)
        loader.add_filenames({0: [self.path]})
        files = loader.copy_files_to_device()
        for name, want in self.want.items():
            self.assertTrue(torch.equal(files.get_tensor(name), want), name)
        files.close()
        loader.close()
        self.assertEqual(os.path.basename(culvert.last_receipt()["model"]), "model.safetensors")

    def test_replace(self):
        """A loader that chooses a copier of fastsafetensors' own gets ours."""
        theirs = dict(registry._copier_registry), dict(registry._copier_class_registry)
        self.addCleanup(registry._copier_registry.update, theirs[0])
        self.addCleanup(registry._copier_class_registry.update, theirs[1])
        seen = []
        _receipt.observers.append(seen.append)
        self.addCleanup(_receipt.observers.clear)
        for replaced in (False, True):
            if replaced:
                culvert.fastsafetensors.replace()
            for nogds in (True, False):
                seen.clear()
                loader = fastsafetensors.loader.SafeTensorsFileLoader(None, "cpu", nogds=nogds, set_numa=False)
                loader.add_filenames({0: [self.path]})
                files = loader.copy_files_to_device()
                for name, want in self.want.items():
                    self.assertTrue(torch.equal(files.get_tensor(name), want), name)
                files.close()
                loader.close()
                self.assertEqual(len(seen), replaced, f"nogds={nogds}")

    def test_gpu(self):
        """The copier's part for a GPU: the tensors go through the software machine."""
        culvert.software(tensors="cpu")
        metadata = SafeTensorsMetadata.from_file(self.path, get_framework_op("pytorch"))
        copier = culvert.fastsafetensors.Copier(metadata, Device.from_str("cuda:1"))
        got = copier.wait_io(copier.submit_io(False, 0))
        for name, want in self.want.items():
            self.assertTrue(torch.equal(got[name].get_raw(), want), name)
        self.assertEqual(culvert.last_receipt()["gpus"], [1])


if __name__ == "__main__":
    unittest.main()
