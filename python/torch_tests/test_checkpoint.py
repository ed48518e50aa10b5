"""torch.distributed.checkpoint with gloo, two ranks, killed in the middle."""

import contextlib
import errno
import json
import os
import pathlib
import pickle
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import unittest
import unittest.mock

import torch
from torch.distributed import checkpoint

import culvert
from culvert import _former
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
        failure = e.exception.failures[0][0]
        self.assertIsInstance(failure, culvert.ChecksumError)
        self.assertRegex(str(failure), f'{file}.*tensor "w"')

    def test_a_store_is_no_directory(self):
        for make in (Reader, Writer, lambda path: Writer("d").reset(path), lambda path: Reader("d").reset(path)):
            with self.assertRaisesRegex(ValueError, "s3://bucket/run: .* a directory"):
                make("s3://bucket/run")

    def test_change_of_directory(self):
        """An asynchronous save is one of the directory in which it was begun."""
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.dir)
        writer, reader = Writer("checkpoint"), Reader("checkpoint")
        os.chdir(tempfile.mkdtemp(dir=self.dir))
        checkpoint.save({"w": torch.ones(3)}, storage_writer=writer, no_dist=True)
        self.assertEqual(reader.path, str(self.path))
        self.assertEqual(self.load(3).tolist(), [1, 1, 1])
        with self.assertRaisesRegex(ValueError, "the path is empty"):
            Writer("")

    def test_a_save_needs_collectives(self):
        """Without them each rank would publish its own part as the whole checkpoint."""
        with self.assertRaisesRegex(NotImplementedError, f"{self.path}: use_collectives=False"):
            checkpoint.save({"w": torch.ones(3)}, storage_writer=Writer(self.path), use_collectives=False)
        self.assertFalse(self.path.exists())

    def test_objects_without_numpy(self):
        """A state has numbers and texts, and torch does not need numpy."""
        self.save({"step": 7, "text": "x" * 1000, "nothing": None})
        got = {"step": 0, "text": "", "nothing": 1}
        with unittest.mock.patch.object(torch.Tensor, "numpy", side_effect=RuntimeError("Numpy is not available")):
            checkpoint.load(got, storage_reader=Reader(self.path), no_dist=True)
        self.assertEqual(got, {"step": 7, "text": "x" * 1000, "nothing": None})

    def test_checkpoints_of_torch(self):
        checkpoint.save({"w": torch.ones(3)}, checkpoint_id=self.path, no_dist=True)
        with self.assertRaisesRegex(culvert.CulvertError, "FileSystemReader"):
            Reader(self.path).read_metadata()

    def test_disk_full(self):
        """A save that has no room leaves the former checkpoint, and nothing else."""
        self.save({"w": torch.ones(1000)})
        before = sorted(self.path.iterdir())
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        self.addCleanup(resource.setrlimit, resource.RLIMIT_FSIZE, limits)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, limits[1]))
        with self.assertRaises(checkpoint.CheckpointException) as e:
            self.save({"w": torch.zeros(1 << 20)})
        self.assertEqual(e.exception.failures[0][0].errno, errno.EFBIG)
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        self.assertEqual(sorted(self.path.iterdir()), before)
        self.assertEqual(self.load(1000).sum(), 1000)

    def load(self, count):
        state = {"w": torch.zeros(count)}
        checkpoint.load(state, storage_reader=Reader(self.path), no_dist=True)
        return state["w"]

    def save_during_a_save(self, between=lambda: None):
        """Saves 1, and 2 when the files of 1 are written. between is called then."""
        test = self

        class Slow(Writer):
            def finish(self, **named):
                test.save({"w": torch.full((10,), 2.0)})
                between()
                super().finish(**named)

        checkpoint.save({"w": torch.full((10,), 1.0)}, storage_writer=Slow(self.path), no_dist=True)

    def test_two_savers(self):
        """Of two saves to one directory at a time, one may fail. The checkpoint is that
        of the other."""
        with self.assertRaises(checkpoint.CheckpointException) as e:
            self.save_during_a_save(lambda: _former.wait(self.path))
        self.assertRegex(str(e.exception.failures[0][0]), "another save to this directory has completed meanwhile")
        self.assertEqual(self.load(10)[0], 2)

    def test_two_savers_complete(self):
        """The second completes before the removal by the first has begun."""
        go, run = threading.Event(), _former._Removal.run
        with unittest.mock.patch.object(_former._Removal, "run", lambda thread: (go.wait(60), run(thread))):
            self.save_during_a_save()
        go.set()
        _former.wait(self.path)
        self.assertEqual(self.load(10)[0], 1)

    def test_saver_that_waited(self):
        """Another save completes as soon as the first gives the lock back: the first
        does not take that one's metadata for its own, and its files for former ones."""
        locked, waiting = _former.locked, [2.0]

        @contextlib.contextmanager
        def then_save(directory):
            with locked(directory):
                yield
            if waiting:
                self.save({"w": torch.full((10,), waiting.pop())})

        with unittest.mock.patch.object(_former, "locked", then_save):
            self.save({"w": torch.full((10,), 1.0)})
            _former.wait(self.path)
        self.assertEqual(self.load(10)[0], 2)

    def test_names(self):
        """The tensors of the file have the names of the state, whatever these are."""
        names = ["layer.weight", "a[0]*?", "back\\slash", "__metadata__", "\ud800", "w#2"]
        self.save({name: torch.full((3,), float(i)) for i, name in enumerate(names)})
        got = {name: torch.zeros(3) for name in names}
        checkpoint.load(got, storage_reader=Reader(self.path), no_dist=True)
        self.assertEqual([float(got[name][0]) for name in names], list(range(len(names))))
        with culvert.safe_open(next(self.path.glob("*.safetensors")), "pt") as f:
            self.assertEqual(sorted(f.keys()), sorted([*names[:3], "__metadata__#2", "\\ud800", "w#2"]))

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
        with self.assertRaisesRegex(culvert.FormatError, "has no place"):
            Reader(self.path).read_metadata()
        self.assertFalse(self_path.exists())

    def test_damaged_metadata(self):
        """The error names the file, whatever pickle makes of it."""
        self.save({"w": torch.ones(3)})
        good = (self.path / ".metadata").read_bytes()
        for bad in (b"", b"x", good[:-5], good[: len(good) // 2], b"\x80\x04\x95" + b"\xff" * 8, pickle.dumps(3), good.replace(b"storage_data", b"storage_dota")):
            (self.path / ".metadata").write_bytes(bad)
            with self.assertRaisesRegex(culvert.CulvertError, f"{self.path}.*metadata", msg=bad):
                Reader(self.path).read_metadata()

    def test_stager_uses_memory_again(self):
        stager, state = Stager(), {"w": torch.ones(100), "n": [1, torch.zeros(3)]}
        first = stager.stage(state)
        second = stager.stage(state)
        self.assertNotEqual(first["w"].data_ptr(), second["w"].data_ptr())
        state["w"].zero_()
        self.assertEqual(second["w"].sum(), 100)
        address = first["w"].data_ptr()
        del first
        third = stager.stage(state)
        self.assertEqual(third["w"].data_ptr(), address)
        self.assertEqual(self.buffers(stager), 4)
        del second, third
        for count in range(1, 5):  # what is no longer in the state needs no memory
            stager.stage({"w": torch.ones(count)})
        self.assertEqual(self.buffers(stager), 1)

    def test_stager_with_a_default_device(self):
        """The copy is in host memory, whatever device the program makes its tensors on."""
        with torch.device("meta"):
            staged = Stager().stage({"w": torch.ones(3, device="cpu")})
        self.assertEqual((staged["w"].device.type, staged["w"].tolist()), ("cpu", [1, 1, 1]))

    def test_prepared_stager_makes_no_buffers(self):
        """Two tensors of one shape need two, and a save uses those that are there."""
        stager, state = Stager(), {"a": torch.ones(9), "n": [1, (torch.zeros(9), None)], "c": torch.ones(2, 3)}
        stager.prepare(state)
        made = {buffer.data_ptr() for buffers in stager._buffers.values() for buffer, _ in buffers}
        self.assertEqual(len(made), 3)
        staged = stager.stage(state)
        self.assertEqual({staged["a"].data_ptr(), staged["n"][1][0].data_ptr(), staged["c"].data_ptr()}, made)
        self.assertEqual(self.buffers(stager), 3)

    def buffers(self, stager):
        return sum(map(len, stager._buffers.values()))


if __name__ == "__main__":
    unittest.main()
