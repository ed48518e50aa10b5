"""load and save of bytes, against the safetensors package."""

import numpy
import safetensors.numpy
from support import Case, culvert, random_tensors, write_raw

import culvert.numpy
from culvert import dtype_of


class Bytes(Case):
    def test_save_as_safetensors_does(self):
        arrays = {
            "b": numpy.arange(6, dtype=numpy.int32).reshape(2, 3),
            "a": numpy.ones(3, numpy.float16),
            "big endian": numpy.arange(5, dtype=">f4"),
            "scalar": numpy.array(7, numpy.uint64),
            "ü": numpy.zeros((3, 0), bool),
        }
        for metadata in (None, {"k": "v"}):
            ours, theirs = culvert.numpy.save(arrays, metadata), safetensors.numpy.save(arrays, metadata)
            self.assertEqual(ours, theirs)

    def test_every_type_returns(self):
        tensors = random_tensors(3)
        write_raw(self.path(), tensors)
        loaded = culvert.numpy.load(self.path().read_bytes())
        again = culvert.numpy.load(culvert.numpy.save(loaded))
        for got in (loaded, again):
            self.assertEqual(set(got), set(tensors))
            for name, (dtype, _, data) in tensors.items():
                self.assertEqual((dtype_of(got[name]), got[name].tobytes()), (dtype, data), name)

    def test_device_tensors(self):
        culvert.save_file({"w": numpy.arange(10)}, self.path())
        got = culvert.numpy.load(culvert.numpy.save(culvert.load_file(self.path(), "cuda:1")))
        numpy.testing.assert_array_equal(got["w"], numpy.arange(10))

    def test_receipt(self):
        """It does not name the file in memory that the bytes went through."""
        culvert.numpy.load(culvert.numpy.save({"w": numpy.arange(10)}))
        receipt = culvert.last_receipt()
        self.assertEqual((receipt["model"], [file["path"] for file in receipt["files"]]), ("the bytes", ["the bytes"]))
        self.assertRegex(str(receipt), "^load the bytes tensors=1 ")

    def test_refused(self):
        for data in (b"", b"12", b"\xff\0\0\0\0\0\0\0{}", b'\x02\0\0\0\0\0\0\0[]'):
            with self.assertRaises(safetensors.SafetensorError):
                culvert.numpy.load(data)
        with self.assertRaisesRegex(culvert.FormatError, "^the bytes: the file has 2 bytes"):
            culvert.numpy.load(b"12")
        for tensors, metadata, error in (([], None, ValueError), ({1: numpy.ones(1)}, None, TypeError), ({}, {"a": 1}, TypeError)):
            with self.assertRaises(error):
                culvert.numpy.save(tensors, metadata)
