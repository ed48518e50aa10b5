"""Tensors in GPU memory: DLPack, lifetimes."""

import ctypes
import gc
import pickle

import numpy
from support import Case, culvert

from culvert import _core


class DLManagedTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64),
        ("manager_ctx", ctypes.c_void_p), ("deleter", ctypes.CFUNCTYPE(None, ctypes.c_void_p)),
    ]


def consume(capsule):
    """Takes the tensor out of a capsule, as a framework does."""
    api = ctypes.pythonapi
    api.PyCapsule_GetPointer.restype, api.PyCapsule_GetPointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    api.PyCapsule_SetName.argtypes = [ctypes.py_object, ctypes.c_char_p]
    pointer = api.PyCapsule_GetPointer(capsule, b"dltensor")
    api.PyCapsule_SetName(capsule, USED)
    return DLManagedTensor.from_address(pointer)


USED = b"used_dltensor"


class Device(Case):
    def setUp(self):
        super().setUp()
        # Each load takes more than a third of the GPU's memory.
        large = numpy.arange(24 << 18, dtype=numpy.float32).reshape(2, 3, -1)
        self.arrays = {"x": large, "h": numpy.ones(3, numpy.float16), "s": numpy.array(True)}
        culvert.save_file(self.arrays, self.path())

    def load(self):
        return culvert.load_file(self.path())

    def test_missing_attributes(self):
        """Code for torch tensors gets an error that says how to run it without a GPU."""
        t = self.load()["s"]
        with self.assertRaisesRegex(AttributeError, r"no attribute 'to' .*software machine; fix: .*culvert.software\(tensors=\"cpu\"\)"):
            t.to("cpu")
        self.assertFalse(hasattr(t, "is_cuda"))
        with self.assertRaises(AttributeError):
            culvert.DeviceTensor.__new__(culvert.DeviceTensor).shape

    def test_dlpack(self):
        tensors = self.load()
        memory = tensors["x"]._memory
        taken = {}
        for name, code, bits in (("x", 2, 32), ("h", 2, 16), ("s", 6, 8)):
            t = tensors[name]
            (capsule,) = _core.capsules(memory, t._index, 1)
            m = taken[name] = consume(capsule)
            self.assertEqual((m.data, m.device_type, m.device_id, m.byte_offset), (t.data_ptr, 2, 0, 0))
            self.assertEqual((m.code, m.bits, m.lanes, m.ndim), (code, bits, 1, len(t.shape)))
            self.assertEqual(tuple(m.shape[: m.ndim]), t.shape)
            self.assertEqual(tuple(m.strides[: m.ndim]), tuple(s // self.arrays[name].itemsize for s in self.arrays[name].strides))
        # The memory belongs to what was taken now.
        del tensors, t, memory, capsule
        gc.collect()
        with self.assertRaises(culvert.OutOfMemoryError):
            keep = [self.load() for _ in range(2)]
        for m in taken.values():
            m.deleter(ctypes.addressof(m))
        keep = [self.load() for _ in range(2)]
        self.assertEqual(len(keep), 2)

    def test_capsules_that_nobody_takes(self):
        for _ in range(20):
            t = self.load()
            _core.capsules(t["x"]._memory, 0, 3)
        with self.assertRaises(culvert.CulvertError):
            _core.capsules(t["x"]._memory, 0, 4)  # one too many, so none
        with self.assertRaises(culvert.CulvertError):
            _core.capsules(t["x"]._memory, 7, 1)
        del t
        self.assertEqual(len([self.load() for _ in range(2)]), 2)

    def test_one_tensor_keeps_all(self):
        for _ in range(20):
            h = self.load()["h"]
            self.assertEqual(h.numpy().tolist(), [1, 1, 1])

    def test_software_memory_stays_inside(self):
        t = self.load()["h"]
        self.assertEqual(t.__dlpack_device__(), (2, 0))
        with self.assertRaisesRegex(BufferError, "software machine"):
            t.__dlpack__()
        with self.assertRaisesRegex(TypeError, "attach"):
            pickle.dumps(t)
        with self.assertRaises(ValueError):
            t.__array__(copy=False)
        self.assertEqual(repr(t), "DeviceTensor('h', dtype=F16, shape=[3], device=software cuda:0)")
        self.assertEqual(len(t), 3)
        with self.assertRaises(TypeError):
            len(self.load()["s"])
        self.assertEqual(numpy.asarray(t, numpy.float64).dtype, numpy.float64)

    def test_stale_handles(self):
        t = self.load()["h"]
        lib, number = _core.library(), t._memory.number
        del t
        lib.culvert_tensor_release(number)  # once too often
        reply = ctypes.c_void_p()
        room = ctypes.create_string_buffer(8)
        self.assertEqual(lib.culvert_tensor_copy(number, 0, 0, room, 8, ctypes.byref(reply)), -1)
        lib.culvert_tensor_free(reply)
