"""torch.distributed.checkpoint with gloo, two ranks, killed in the middle."""

import json
import os
import pathlib
import pickle
import signal
import subprocess
import sys
import tempfile
import unittest

import torch
from torch.distributed import checkpoint

import culvert
from culvert.checkpoint import Reader, Stager, Writer

HERE = pathlib.Path(__file__).resolve().parent


class Checkpoint(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory(prefix="culvert-")
        self.addCleanup(directory.cleanup)
        self.dir = pathlib.Path(directory.name)
        self.path = self.dir / "checkpoint"

    def start_ranks(self):
        env = {**os.environ, "PYTHONPATH": str(HERE.parent), "CULVERT_MACHINE": "soft"}
        command = [sys.executable, "-W", "ignore", HERE / "checkpoint_ranks.py", self.dir]
        with open(self.dir / "errors", "w") as errors:  # a rank whose peer dies says so
            self.process = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True)
        self.addCleanup(self.process.communicate)

    def ranks(self, *arguments, dies=None):
        """Runs two ranks, and returns what they found. If one dies, the other fails or
        is killed."""
        print(*arguments, file=self.process.stdin, flush=True)
        line = self.process.stdout.readline()
        errors = (self.dir / "errors").read_text()
        self.assertTrue(line, errors)
        status, found = json.loads(line)
        if dies is None:
            self.assertEqual(status, [0, 0], errors)
        else:
            self.assertEqual(status[dies], -signal.SIGKILL, errors)
            self.assertNotEqual(status[1 - dies], 0, errors)
        return found

    def test_ranks(self):
        self.start_ranks()
        self.ranks("save", 1)
        files = set(self.path.iterdir())
        for where, dies in (("file", 1), ("finish", 0)):
            self.ranks("die", 2, where, dies=dies)
            self.assertLessEqual(files, set(self.path.iterdir()), where)
        self.assertEqual(self.ranks("load", 2), [1, 1])
        self.ranks("async", 3)
        self.assertEqual(self.ranks("load", 3), [3, 3])
        left = sorted(p.name for p in self.path.iterdir() if p.name.endswith(".safetensors"))
        self.assertEqual([name[:4] for name in left], ["__0_", "__1_"])

    def save(self, state):
        checkpoint.save(state, storage_writer=Writer(self.path), no_dist=True)

    def test_damage(self):
        state = {"w": torch.arange(1000.0)}
        self.save(state)
        file = next(self.path.glob("*.safetensors"))
        with open(file, "r+b") as f:
            f.seek(-4, os.SEEK_END)
            f.write(b"evil")
        with self.assertRaises(checkpoint.CheckpointException) as e:
            checkpoint.load({"w": torch.zeros(1000)}, storage_reader=Reader(self.path), no_dist=True)
        self.assertIsInstance(e.exception.failures[0][0], culvert.ChecksumError)

    def test_former_files(self):
        """A save leaves its own files alone, and those before it are gone when the
        next one names its files."""
        for step in range(3):
            self.save({"w": torch.full((10,), float(step))})
        Writer(self.path).prepare_global_plan([])
        self.assertEqual(len(list(self.path.glob("*.safetensors"))), 1)
        self.assertEqual(len(list(self.path.glob("*.culvert.json"))), 1)

    def test_shared_and_strided(self):
        """Tensors of a state may overlap and have strides: the checkpoint has values."""
        whole = torch.arange(12.0).reshape(3, 4)
        self.save({"a": whole, "b": whole[1], "t": whole.T})
        got = {"a": torch.zeros(3, 4), "b": torch.zeros(4), "t": torch.zeros(4, 3)}
        checkpoint.load(got, storage_reader=Reader(self.path), no_dist=True)
        self.assertTrue(torch.equal(got["a"], whole) and torch.equal(got["b"], whole[1]) and torch.equal(got["t"], whole.T))

    def test_metadata_runs_no_code(self):
        self.path.mkdir()

        class Evil:
            def __reduce__(self):
                return os.mkdir, (str(self_path),)

        self_path = self.dir / "made"
        (self.path / ".metadata").write_bytes(pickle.dumps(Evil()))
        with self.assertRaisesRegex(pickle.UnpicklingError, "has no place"):
            Reader(self.path).read_metadata()
        self.assertFalse(self_path.exists())

    def test_stager_uses_memory_again(self):
        stager, state = Stager(), {"w": torch.ones(100), "n": [1, torch.zeros(3)]}
        first = stager.stage(state)
        second = stager.stage(state)
        self.assertNotEqual(first["w"].data_ptr(), second["w"].data_ptr())
        state["w"].zero_()
        self.assertEqual(second["w"].sum(), 100)
        address = first["w"].data_ptr()
        del first
        self.assertEqual(stager.stage(state)["w"].data_ptr(), address)


if __name__ == "__main__":
    unittest.main()
