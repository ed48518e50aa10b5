"""Programs for cuda:0 on a machine without a GPU."""

import os
import unittest.mock

import numpy
from support import Case, culvert

from culvert import _software


class Software(Case):
    def setUp(self):
        super().setUp()
        self.addCleanup(setattr, _software, "_chosen", None)
        self.want = numpy.arange(1000, dtype=numpy.float32).reshape(10, 100)
        culvert.save_file({"w": self.want}, self.path())

    def check_cpu(self):
        got = culvert.load_file(self.path(), device="cuda:1")["w"]
        self.assertNotIsInstance(got, culvert.DeviceTensor)
        numpy.testing.assert_array_equal(numpy.asarray(got), self.want)
        receipt = culvert.last_receipt()
        self.assertEqual((receipt["gpus"], receipt["software_machine"]), ([1], True))
        with culvert.safe_open(self.path(), device="cuda:0") as f:
            numpy.testing.assert_array_equal(numpy.asarray(f.get_slice("w")[2:9:3, 5]), self.want[2:9:3, 5])
        self.assertEqual(culvert.last_receipt()["gpus"], [0])

    def test_call(self):
        culvert.software(tensors="cpu")
        self.check_cpu()
        culvert.software(tensors="device")
        self.assertIsInstance(culvert.load_file(self.path())["w"], culvert.DeviceTensor)

    def test_environment(self):
        with unittest.mock.patch.dict(os.environ, CULVERT_TENSORS="cpu"):
            self.check_cpu()
            culvert.software(tensors="device")
            self.assertIsInstance(culvert.load_file(self.path())["w"], culvert.DeviceTensor)

    def test_default(self):
        self.assertIsInstance(culvert.load_file(self.path())["w"], culvert.DeviceTensor)

    def test_verify(self):
        culvert.software(tensors="cpu")
        culvert.load_file(self.path(), verify=True)
        with open(self.path(), "r+b") as f:
            f.seek(-8, os.SEEK_END)
            f.write(b"damage")
        with self.assertRaises(culvert.ChecksumError):
            culvert.load_file(self.path(), verify=True)

    def test_refused(self):
        with self.assertRaisesRegex(ValueError, "want one of device, cpu"):
            culvert.software(tensors="gpu")
        with unittest.mock.patch.dict(os.environ, CULVERT_TENSORS="x"), self.assertRaisesRegex(ValueError, "CULVERT_TENSORS='x'"):
            culvert.load_file(self.path())
