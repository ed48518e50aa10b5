"""Saving: what is refused, and that a failure leaves the old file."""

import os
import subprocess
import sys
import threading
import types
import unittest.mock

import ml_dtypes
import numpy
from support import CULVERT, Case, culvert

import culvert.numpy
from culvert import dtype_of


class Save(Case):
    def test_refused(self):
        a = numpy.zeros(3, numpy.float32)
        for tensors, error in (
            (["a"], ValueError),
            (None, ValueError),
            ({"a": 3}, ValueError),
            ({"a": [1, 2]}, ValueError),
            ({1: a}, TypeError),
            ({"a": numpy.zeros(3, "datetime64[s]")}, culvert.FormatError),
            ({"a": numpy.zeros(3, object)}, culvert.FormatError),
            ({"a": numpy.zeros(3, complex)}, culvert.FormatError),
            ({"a": numpy.array(["x"])}, culvert.FormatError),
            ({"__metadata__": a}, culvert.FormatError),
            ({"a\ud800": a}, culvert.FormatError),
        ):
            with self.assertRaises(error, msg=ascii(tensors)):
                culvert.save_file(tensors, self.path())
        for metadata in ({"a": 1}, {1: "a"}, {"a": None}, ["a"], "a"):
            with self.assertRaises(TypeError):
                culvert.save_file({"a": a}, self.path(), metadata)
        for metadata in ({"a": "\udcff"}, {"\udcff": "a"}):
            with self.assertRaises(culvert.FormatError):
                culvert.save_file({"a": a}, self.path(), metadata)
        self.assertEqual(os.listdir(self.dir), [])
        with self.assertRaises(FileNotFoundError):
            culvert.save_file({"a": a}, self.path() / "below")
        with self.assertRaisesRegex(culvert.CulvertError, "not a regular file"):
            culvert.save_file({"a": a}, self.dir)

    def test_replaces_or_leaves(self):
        culvert.save_file({"a": numpy.zeros(3)}, self.path())
        before = self.path().read_bytes()
        with self.assertRaises(culvert.FormatError):
            culvert.save_file({"a": numpy.ones(3), "__metadata__": numpy.ones(1)}, self.path())
        self.assertEqual(self.path().read_bytes(), before)
        culvert.save_file({"a": numpy.ones(3)}, self.path())
        self.assertEqual(sorted(os.listdir(self.dir)), ["model.safetensors", "model.safetensors.culvert.json"])

    def test_steps(self):
        runs = self.path("runs")
        for step in (10, 20, 30):
            file = culvert.save_step({"a": numpy.full(3, step)}, runs, step, keep=2)
            self.assertEqual(culvert.load_file(file, "cpu")["a"].tolist(), [step] * 3)
        self.assertEqual(sorted(os.listdir(runs)), ["latest", "step-000000020", "step-000000030"])
        self.assertEqual(culvert.load_file(runs / "latest", "cpu")["a"].tolist(), [30] * 3)
        with self.assertRaises(FileExistsError):
            culvert.save_step({"a": numpy.zeros(3)}, runs, 30)
        with self.assertRaisesRegex(ValueError, "must not be negative"):
            culvert.save_step({"a": numpy.zeros(3)}, runs, -1)
        for step, keep in ((1.5, 0), ("40", 0), (None, 0), (40, 1.5), (40, "all")):
            with self.assertRaises(TypeError, msg=(step, keep)):
                culvert.save_step({"a": numpy.zeros(3)}, runs, step, keep=keep)
        with self.assertRaisesRegex(ValueError, "step: want int64"):
            culvert.save_step({"a": numpy.zeros(3)}, runs, 1 << 70)
        culvert.save_step({"a": numpy.zeros(3)}, runs, numpy.int64(40), keep=numpy.int64(2))

    def test_while_torch_is_imported(self):
        """By another thread, as by its first load: torch has no tensors yet."""
        with unittest.mock.patch.dict(sys.modules, {"torch": types.ModuleType("torch")}):
            culvert.save_file({"a": numpy.ones(3)}, self.path())
            culvert.numpy.save({"a": numpy.ones(3)})
        self.assertEqual(culvert.numpy.load_file(self.path())["a"].tolist(), [1, 1, 1])

    def test_the_command_verifies(self):
        culvert.save_file({"a": numpy.arange(10_000)}, self.path(), {"k": "v"})
        out = subprocess.run([CULVERT, "verify", self.path()], capture_output=True, text=True, check=True).stdout
        self.assertRegex(out, "^ok .*: 1 tensor, .*\n$")
        receipt = culvert.last_receipt()
        self.assertEqual((receipt["op"], receipt["tensors"]), ("save", 1))
        self.assertEqual(receipt["bytes"], os.path.getsize(self.path()))
        self.assertEqual(receipt["manifest"], str(self.path()) + ".culvert.json")

    def test_device_tensors(self):
        want = {"a": numpy.arange(1000, dtype=numpy.int32), "b": numpy.ones((3, 3), numpy.float16), "e": numpy.zeros((0,), bool)}
        culvert.save_file(want, self.path())
        tensors = culvert.load_file(self.path(), "cuda:1")
        tensors["host"] = want["host"] = numpy.eye(4)
        culvert.save_file(tensors, self.path("again"))
        got = culvert.load_file(self.path("again"), "cpu", verify=True)
        for name, array in want.items():
            numpy.testing.assert_array_equal(got[name], array)

    def test_foreign_float_types(self):
        """Types by the names of the ml_dtypes package."""
        culvert.save_file({"a": numpy.ones(4, ml_dtypes.bfloat16)}, self.path())
        got = culvert.load_file(self.path(), "cpu")["a"]
        self.assertEqual((dtype_of(got), got.tolist()), ("BF16", [0x3F80] * 4))

    def test_threads(self):
        errors = []

        def work(i):
            try:
                for _ in range(3):
                    culvert.save_file({"w": numpy.full(50_000, i)}, self.path())
            except Exception as e:
                errors.append(e)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(errors, [])
        got = culvert.load_file(self.path(), "cpu", verify=True)["w"]
        self.assertEqual(len(set(got.tolist())), 1)
