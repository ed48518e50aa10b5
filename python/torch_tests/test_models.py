"""load_model and save_model, against safetensors.torch."""

import os
import pathlib
import tempfile
import unittest

os.environ.update(CULVERT_MACHINE="soft", CULVERT_SOFT="gpus=2,memory=64M")

import safetensors.torch
import torch

import culvert
import culvert.torch
from culvert import _software


class Tied(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a = torch.nn.Linear(4, 4)
        self.b = self.a
        self.c = torch.nn.Linear(4, 3)


class Models(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory(prefix="culvert-")
        self.addCleanup(directory.cleanup)
        self.addCleanup(setattr, _software, "_chosen", None)
        self.path = pathlib.Path(directory.name) / "model.safetensors"

    def same(self, a, b):
        for (name, x), y in zip(a.state_dict().items(), b.state_dict().values()):
            self.assertTrue(torch.equal(x, y), name)

    def test_both_directions(self):
        for save, load in ((culvert.torch.save_model, safetensors.torch.load_model), (safetensors.torch.save_model, culvert.torch.load_model)):
            model, other = Tied(), Tied()
            save(model, self.path, {"k": "v"})
            self.assertEqual(load(other, self.path), (set(), []))
            self.same(model, other)
        with culvert.safe_open(self.path, "pt") as f:
            theirs = f.metadata()
        culvert.torch.save_model(model, self.path, {"k": "v"})
        with culvert.safe_open(self.path, "pt") as f:
            self.assertEqual(f.metadata(), theirs)

    def test_a_program_for_cuda(self):
        """Code that names cuda:0 runs without a GPU, through the software machine."""
        culvert.software(tensors="cpu")
        model, other = Tied(), Tied()
        culvert.torch.save_model(model, self.path)
        culvert.torch.load_model(other, self.path, device="cuda:0")
        self.assertEqual((culvert.last_receipt()["gpus"], culvert.last_receipt()["software_machine"]), ([0], True))
        self.same(model, other)
        model.load_state_dict(culvert.torch.load_file(self.path, device="cuda:1"), strict=False)

    def test_names_that_differ(self):
        state = {"a.weight": torch.ones(4, 4), "x": torch.ones(1)}
        culvert.torch.save_file(state, self.path)
        ours = culvert.torch.load_model(Tied(), self.path, strict=False)
        theirs = safetensors.torch.load_model(Tied(), self.path, strict=False)
        self.assertEqual((ours[0], sorted(ours[1])), (theirs[0], sorted(theirs[1])))
        with self.assertRaisesRegex(RuntimeError, 'Missing key.*"a.bias".*\n.*Unexpected key.*"x"'):
            culvert.torch.load_model(Tied(), self.path)

    def test_parts_of_a_storage(self):
        model = torch.nn.Module()
        whole = torch.arange(10.0)
        model.register_buffer("first", whole[:6])
        model.register_buffer("last", whole[4:])
        with self.assertRaisesRegex(RuntimeError, "none is the whole"):
            culvert.torch.save_model(model, self.path)
        model.register_buffer("whole", whole)
        culvert.torch.save_model(model, self.path)
        self.assertEqual(list(culvert.torch.load_file(self.path)), ["whole"])


if __name__ == "__main__":
    unittest.main()
