"""safe_open on GPUs, and its errors."""

import itertools
import os
import pickle

import numpy
from support import Case, culvert

from culvert._load import stretch
from culvert._open import normalize


class Open(Case):
    def setUp(self):
        super().setUp()
        self.x = numpy.arange(3 * 4 * 5, dtype=numpy.float32).reshape(3, 4, 5)
        culvert.save_file({"x": self.x, "y": numpy.arange(7)}, self.path())

    def test_gpu(self):
        with culvert.safe_open(self.path(), "np", device="cuda:1") as f:
            numpy.testing.assert_array_equal(f.get_tensor("x").numpy(), self.x)
            part = f.get_slice("x")[1:, 2, 1:4]
            self.assertEqual((part.shape, part.device), ((2, 3), "cuda:1"))
            numpy.testing.assert_array_equal(part.numpy(), self.x[1:, 2, 1:4])
            self.assertEqual(culvert.last_receipt()["read_bytes"], 2 * 3 * 4)
            self.assertEqual(sorted(f.get_tensors()), ["x", "y"])

    def test_steps_on_a_gpu(self):
        """Memory that no framework can index: each element is read by itself."""
        with culvert.safe_open(self.path(), "np", device="cuda:1") as f:
            for index in (
                slice(None, None, 2), (..., slice(1, None, 3)), (slice(1, 3, 5), 2, slice(None, None, 2)), (1, slice(0, 4, 3)),
                (slice(None, None, 2), slice(None, None, 3), slice(4, None, 9)), (slice(2, 2, 2),),
            ):
                part = f.get_slice("x")[index]
                self.assertIsInstance(part, culvert.DeviceTensor)
                self.assertEqual(part.shape, self.x[index].shape)
                numpy.testing.assert_array_equal(part.numpy(), self.x[index])
                self.assertEqual(culvert.last_receipt()["read_bytes"], self.x[index].nbytes)

    def test_long_steps(self):
        """Steps that no tensor, and no integer of the core, is as long as."""
        for device in ("cpu", "cuda:0"):
            with culvert.safe_open(self.path(), "np", device) as f:
                for step in (4, 5, 1 << 62, 1 << 64, 1 << 80):
                    part = f.get_slice("x")[1 :: step, :: step]
                    numpy.testing.assert_array_equal(numpy.asarray(part), self.x[1 :: min(step, 5), :: min(step, 5)])

    def test_names(self):
        """What is no name is no tensor's name: None least of all."""
        for device in ("cpu", "cuda:0"):
            with culvert.safe_open(self.path(), "np", device) as f:
                for wrong in (None, 5, b"x", ["x"]):
                    for get in (f.get_tensor, f.get_slice):
                        with self.assertRaisesRegex(TypeError, "name of a tensor must be a string", msg=repr(wrong)):
                            get(wrong)

    def test_no_device(self):
        """None is the CPU, as safetensors has it."""
        with culvert.safe_open(self.path(), "np", None) as f:
            numpy.testing.assert_array_equal(f.get_tensor("x"), self.x)

    def test_bytes(self):
        with culvert.safe_open(os.fsencode(self.path()), "np") as f:
            self.assertEqual(repr(f), f"safe_open({str(self.path())!r}, 2 tensors)")

    def test_loop_over_rows(self):
        with culvert.safe_open(self.path(), "np") as f:
            rows = list(f.get_slice("x"))
        numpy.testing.assert_array_equal(rows, self.x)

    def test_reads_only_the_slice(self):
        with culvert.safe_open(self.path(), "np") as f:
            f.get_slice("x")[0, :, 2]
            self.assertEqual(culvert.last_receipt()["read_bytes"], 4 * 4)

    def test_errors(self):
        f = culvert.safe_open(self.path(), "np")
        for wrong in (lambda: f.get_tensor("z"), lambda: f.get_slice("z")):
            with self.assertRaisesRegex(culvert.SafetensorError, "does not contain tensor"):
                wrong()
        for index in (3, -4, (0, 0, 0, 0), [3], slice(None, None, -1), slice(None, None, 0), (..., ...), 1.5, "x"):
            with self.assertRaises(ValueError, msg=repr(index)):
                f.get_slice("x")[index]
        with self.assertRaises(IndexError):
            f.get_slice("x")[0, 4]
        kept = f.get_slice("y")
        with f:
            pass
        self.assertEqual(kept[2:4].tolist(), [2, 3])  # as safetensors has it for torch
        for closed in (f.keys, f.metadata, f.offset_keys, f.get_tensors, lambda: f.get_tensor("x"), lambda: f.get_slice("x")):
            with self.assertRaisesRegex(culvert.SafetensorError, "closed"):
                closed()
        with self.assertRaisesRegex(culvert.CulvertError, "framework 'tf'"):
            culvert.safe_open(self.path(), "tf")
        with self.assertRaises(FileNotFoundError):
            culvert.safe_open(self.path("none"), "np")

    def test_other_indexes(self):
        """The whole tensor is read, and the framework indexes it, if it can."""
        mask = numpy.array([True, False, True])
        with culvert.safe_open(self.path(), "np") as f:
            for index in ([2, 0], None, True, mask, (slice(None), [1, 1]), numpy.array([1]), (mask, 2), ([], 0)):
                numpy.testing.assert_array_equal(f.get_slice("x")[index], self.x[index], repr(index))
        with culvert.safe_open(self.path(), "np", "cuda:0") as f:
            with self.assertRaisesRegex(ValueError, r"tensor 'x': index \[2, 0\]: want integers, slices and an ellipsis"):
                f.get_slice("x")[[2, 0]]

    def test_change_of_directory(self):
        """The file is the one that was opened. Another directory may have one of that name."""
        self.addCleanup(os.chdir, os.getcwd())
        self.path("other").mkdir()
        self.path("link").symlink_to("other/below")
        self.path("other/below").mkdir()
        culvert.save_file({"x": self.x + 1, "y": numpy.arange(7)}, self.path("other/model.safetensors"))
        for name, more in (("model.safetensors", 0), ("link/../model.safetensors", 1)):
            for device in ("cpu", "cuda:0"):
                os.chdir(self.dir)
                f = culvert.safe_open(name, "np", device)
                part = f.get_slice("x")
                os.chdir("other" if more == 0 else "/")
                for got, want in ((f.get_tensor("x"), self.x), (part[1:, 2], self.x[1:, 2]), (f.get_tensors()["x"], self.x)):
                    numpy.testing.assert_array_equal(numpy.asarray(got), want + more)

    def test_pickle(self):
        """Workers that are started by spawn open the file again."""
        with culvert.safe_open(self.path(), "np") as f:
            with pickle.loads(pickle.dumps(f)) as g:
                numpy.testing.assert_array_equal(g.get_tensor("x"), self.x)
        with self.assertRaisesRegex(culvert.CulvertError, "closed"):
            pickle.dumps(f)
        with culvert.safe_open(self.path(), "np") as f, self.assertRaisesRegex(TypeError, "Slice"):
            pickle.dumps(f.get_slice("x"))

    def test_small_tensors(self):
        """They are read without a request; the receipt is made when it is asked for."""
        with culvert.safe_open(self.path(), "np") as f:
            self.assertEqual(f.get_tensor("y").tolist(), list(range(7)))
            receipt = culvert.last_receipt()
            self.assertIs(culvert.last_receipt(), receipt)
            self.assertEqual((receipt["model"], receipt["tensors"], receipt["read_bytes"]), (str(self.path()), 1, 56))
            self.assertEqual(receipt["files"][0]["receipt"]["bytes_by_route"], {"host": 56})
            self.assertRegex(str(receipt), r"^load model.safetensors tensors=1 bytes=56 read=56 time=.*route=host$")
            f.get_tensor("x")
            self.assertEqual(culvert.last_receipt()["read_bytes"], self.x.nbytes)

    def test_stretch(self):
        """Which slices are one stretch, and where it begins."""
        for shape in ([], [0], [5], [2, 3], [3, 1, 2], [1, 2, 1, 3], [2, 0, 3]):
            numbers = numpy.arange(numpy.prod(shape, dtype=int)).reshape(shape)
            choices = [[(a, b) for a in range(n + 1) for b in range(a, n + 1)] for n in shape]
            for ranges in itertools.product(*choices):
                part = numbers[tuple(slice(a, b) for a, b in ranges)].ravel()
                begin, size = stretch(shape, ranges, 4)
                self.assertEqual(size, 4 * part.size, (shape, ranges))
                if part.size:
                    one = bool((numpy.diff(part) == 1).all())
                    self.assertEqual(begin, 4 * int(part[0]) if one else None, (shape, ranges))

    def test_normalize(self):
        self.assertEqual(normalize(1, [3, 4], "x"), ([[1, 2], [0, 4]], [0], [slice(None)]))
        self.assertEqual(normalize((..., slice(1, None, 2)), [3, 4], "x"), ([[0, 3], [1, 4]], [], [slice(None), slice(None, None, 2)]))
        self.assertEqual(normalize((), [], "x"), ([], [], []))
