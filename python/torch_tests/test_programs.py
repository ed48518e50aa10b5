"""accelerate and diffusers load through Culvert, unchanged."""

import io
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

os.environ.update(CULVERT_MACHINE="soft", CULVERT_SOFT="gpus=2,memory=64M", HF_HUB_OFFLINE="1")

import accelerate
import diffusers
import safetensors.torch
import torch

import culvert
from culvert import _software


class Programs(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory(prefix="culvert-")
        self.addCleanup(directory.cleanup)
        self.addCleanup(culvert.unpatch)
        self.addCleanup(setattr, _software, "_chosen", None)
        culvert.software(tensors="cpu")
        self.path, self.out = pathlib.Path(directory.name), io.StringIO()
        torch.manual_seed(1)

    def patched(self, load, device):
        culvert.patch(device, log=self.out)
        try:
            return load()
        finally:
            culvert.unpatch()

    def same(self, want, got):
        self.assertEqual(set(want), set(got))
        for name, tensor in want.items():
            self.assertTrue(torch.equal(tensor, got[name]), name)
        receipts = self.out.getvalue().splitlines()
        self.assertEqual(len(receipts), 1, receipts)
        self.assertIn(f" bytes={sum(t.numel() * t.element_size() for t in want.values())} ", receipts[0])
        return receipts[0]

    def test_accelerate(self):
        """load_checkpoint_and_dispatch of a model that was made without memory."""
        make = lambda: torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Linear(16, 4))
        want = make().state_dict()
        safetensors.torch.save_file(want, self.path / "model.safetensors")
        with accelerate.init_empty_weights():
            model = make()
        load = lambda: accelerate.load_checkpoint_and_dispatch(model, str(self.path / "model.safetensors"), device_map={"": "cpu"})
        self.same(want, self.patched(load, None).state_dict())

    def test_diffusers(self):
        """from_pretrained of a small network, to a GPU."""
        make = diffusers.UNet2DModel
        model = make(
            sample_size=8, in_channels=1, out_channels=1, block_out_channels=(8, 16), norm_num_groups=4, layers_per_block=1,
            down_block_types=("DownBlock2D", "DownBlock2D"), up_block_types=("UpBlock2D", "UpBlock2D"),
        )
        model.save_pretrained(self.path)
        got = self.patched(lambda: make.from_pretrained(self.path), "cuda:1")
        self.assertIn("SOFTWARE-MACHINE", self.same(model.state_dict(), got.state_dict()))

    def test_torchrun(self):
        """Each rank is patched."""
        safetensors.torch.save_file({"w": torch.ones(3)}, self.path / "w.safetensors")
        (self.path / "rank.py").write_text("from safetensors.torch import load_file\nassert load_file('w.safetensors')['w'].sum() == 3\n")
        command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "-m", "culvert", "run", "rank.py"]
        env = {**os.environ, "PYTHONPATH": str(pathlib.Path(culvert.__file__).parents[1])}
        done = subprocess.run(command, cwd=self.path, env=env, capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr.count("culvert: load w.safetensors calls=1 tensors=1 bytes=12 "), 2, done.stderr)


if __name__ == "__main__":
    unittest.main()
