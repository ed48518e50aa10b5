"""Both directions against the safetensors package, bit for bit."""

import numpy
import safetensors
import safetensors.numpy
from support import Case, culvert, random_tensors, size_of, write_raw

import culvert.numpy
from culvert import _dtypes, dtype_of

# Types that numpy has, so that safetensors.numpy can be asked too.
COMMON = ["BOOL", "U8", "I8", "U16", "I16", "U32", "I32", "U64", "I64", "F16", "F32", "F64", "C64"]


def spec(dtype, shape, data, keep):
    """What safetensors writes a tensor from."""
    array = numpy.frombuffer(data, numpy.uint8)
    keep.append(array)
    shape = _dtypes.stored_shape(dtype, shape)
    return safetensors.TensorSpec(dtype=_dtypes.torch_name(dtype), shape=shape, data_ptr=array.ctypes.data, data_len=len(data))


def filled(tensors, names):
    """Names in order, without the empty tensors, which all lie at the same place as another."""
    return [name for name in names if tensors[name][2]]


class Compare(Case):
    def write(self, tensors, metadata=None):
        """Has safetensors write the tensors."""
        keep = []
        specs = {name: spec(*t, keep) for name, t in tensors.items()}
        safetensors.serialize_file(specs, str(self.path()), metadata=metadata)

    def test_load(self):
        for seed in range(5):
            tensors = {n: t for n, t in random_tensors(seed).items() if not t[0].startswith("F6")}
            self.write(tensors, {"seed": str(seed)})
            for load in (lambda p: culvert.numpy.load_file(p), lambda p: culvert.numpy.load_file(p, backend="mmap")):
                got = load(self.path())
                self.assertEqual(set(got), set(tensors))
                for name, (dtype, shape, data) in tensors.items():
                    self.assertEqual(dtype_of(got[name]), dtype, name)
                    self.assertEqual(got[name].shape, _dtypes.stored_shape(dtype, shape), name)
                    self.assertEqual(got[name].tobytes(), data, name)

    def test_load_as_safetensors_does(self):
        """Where both know the type, the arrays are the same in every respect."""
        tensors = {n: t for n, t in random_tensors(7, 200).items() if t[0] in COMMON}
        self.write(tensors)
        theirs, ours = safetensors.numpy.load_file(self.path()), culvert.numpy.load_file(self.path())
        self.assertEqual(filled(tensors, theirs), filled(tensors, ours))
        for name, want in theirs.items():
            got = ours[name]
            self.assertEqual((got.dtype, got.shape, got.strides), (want.dtype, want.shape, want.strides), name)
            self.assertEqual(got.tobytes(), want.tobytes(), name)
            self.assertTrue(got.flags.writeable and got.flags.owndata)

    def test_save(self):
        for seed in range(5):
            tensors = random_tensors(seed)
            write_raw(self.path(), tensors)
            arrays = culvert.numpy.load_file(self.path())
            culvert.numpy.save_file(arrays, self.path("again"), metadata={"by": "culvert", "ü": "ÿ\n"})
            got = dict(safetensors.deserialize(self.path("again").read_bytes()))
            self.assertEqual(set(got), set(tensors))
            for name, (dtype, shape, data) in tensors.items():
                self.assertEqual((got[name]["dtype"], list(got[name]["shape"])), (dtype, shape), name)
                self.assertEqual(bytes(got[name]["data"]), data, name)
            with safetensors.safe_open(self.path("again"), "np") as f:
                self.assertEqual(f.metadata(), {"by": "culvert", "ü": "ÿ\n"})

    def test_save_as_safetensors_reads(self):
        arrays = {
            "f": numpy.arange(12, dtype=numpy.float32).reshape(3, 4),
            "turned": numpy.arange(12, dtype=numpy.float64).reshape(3, 4).T,
            "every other": numpy.arange(12, dtype=numpy.int16)[::2],
            "big endian": numpy.arange(5, dtype=">f4"),
            "scalar": numpy.array(7, numpy.uint64),
            "number": numpy.float16(1.5),
            "empty": numpy.zeros((3, 0, 2), bool),
        }
        culvert.numpy.save_file(arrays, self.path())
        got = safetensors.numpy.load_file(self.path())
        for name, want in arrays.items():
            numpy.testing.assert_array_equal(got[name], want, name)
            self.assertEqual(got[name].shape, numpy.shape(want), name)

    def test_small_files_are_equal(self):
        """Less than a page of data: the same file, whichever package wrote it."""
        for seed in range(5):
            tensors = {n: t for n, t in random_tensors(seed, 40).items() if not t[0].startswith("F6")}
            while sum(len(t[2]) for t in tensors.values()) >= 4096:
                tensors.popitem()
            for metadata in (None, {}, {"k": "v"}):
                self.write(tensors, metadata)
                culvert.numpy.save_file(culvert.numpy.load_file(self.path()), self.path("again"), metadata)
                self.assertEqual(self.path("again").read_bytes(), self.path().read_bytes())
                with culvert.safe_open(self.path(), "np") as f:
                    self.assertEqual(f.metadata(), metadata)

    def test_safe_open(self):
        tensors = {n: t for n, t in random_tensors(3).items() if t[0] in COMMON}
        self.write(tensors, {"k": "v"})
        with safetensors.safe_open(self.path(), "np") as theirs, culvert.safe_open(self.path(), "np") as ours:
            self.assertEqual(ours.keys(), theirs.keys())
            self.assertEqual(filled(tensors, ours.offset_keys()), filled(tensors, theirs.offset_keys()))
            self.assertEqual(ours.metadata(), theirs.metadata())
            for name in theirs.keys():
                self.assertEqual(ours.get_tensor(name).tobytes(), theirs.get_tensor(name).tobytes())
                self.assertEqual(ours.get_slice(name).get_shape(), theirs.get_slice(name).get_shape())
                self.assertEqual(ours.get_slice(name).get_dtype(), theirs.get_slice(name).get_dtype())
        self.write(tensors)
        with safetensors.safe_open(self.path(), "np") as theirs, culvert.safe_open(self.path(), "np") as ours:
            self.assertIsNone(theirs.metadata())
            self.assertIsNone(ours.metadata())

    def test_slices(self):
        x = numpy.arange(3 * 4 * 5, dtype=numpy.float32).reshape(3, 4, 5)
        safetensors.numpy.save_file({"x": x, "s": numpy.array(2, numpy.int8)}, self.path())
        with safetensors.safe_open(self.path(), "np") as theirs, culvert.safe_open(self.path(), "np") as ours:
            for index in (
                1, -1, slice(0, 2), (slice(None), slice(None, None, 2)), ..., (..., 1), (0, 1, 2),
                (slice(1, 3), slice(1, 2), slice(3, 5)), (1, ..., slice(2, 4)), (slice(1), 2), (..., slice(None, None, 3)),
            ):
                want, got = theirs.get_slice("x")[index], ours.get_slice("x")[index]
                self.assertEqual((got.dtype, got.shape, got.tobytes()), (want.dtype, want.shape, want.tobytes()), index)
                self.assertTrue(got.flags.c_contiguous, index)
            # Where safetensors gives up, numpy's meaning holds.
            for index in (slice(2, 1), slice(5, 9), slice(-2, None), (slice(None), slice(-9, 2)), ()):
                numpy.testing.assert_array_equal(ours.get_slice("x")[index], x[index])
            self.assertEqual(ours.get_slice("s")[()], 2)
            self.assertEqual(ours.get_slice("s")[...].shape, ())

    def test_models_that_both_refuse(self):
        good = {"w": ("F32", [2], b"\0" * 8)}
        cases = {
            "empty file": b"",
            "two bytes": b"12",
            "header behind the end": b"\xff\0\0\0\0\0\0\0{}",
            "huge header": b"\xff" * 8 + b"{}",
        }
        for name, data in cases.items():
            self.path().write_bytes(data)
            self.refused(name)
        for name, header in {
            "no JSON": b"{",
            "not an object": b"[]",
            "not UTF-8": b'{"\xff":{}}',
            "wrong size": b'{"w":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}}',
            "unknown type": b'{"w":{"dtype":"F80","shape":[2],"data_offsets":[0,8]}}',
            "hole": b'{"w":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}',
            "behind the end": b'{"w":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}',
            "trailing bytes": b'{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}',
            "overflow": b'{"w":{"dtype":"F32","shape":[4294967296,4294967296,2],"data_offsets":[0,8]}}',
            "negative": b'{"w":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}}',
            "metadata is a number": b'{"__metadata__":{"a":1},"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}',
        }.items():
            write_raw(self.path(), good, header=header)
            self.refused(name)

    def test_only_we_refuse(self):
        entry = b'"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}'
        for name, header in (("a name twice", b"{%b,%b}" % (entry, entry)), ("unknown key", b"{%b}" % entry.replace(b"]}", b'],"k":1}'))):
            write_raw(self.path(), {"a": ("U8", [1], b"x")}, header=header)
            self.assertEqual(list(safetensors.numpy.load_file(self.path())), ["a"], name)
            with self.assertRaises(culvert.FormatError, msg=name):
                culvert.numpy.load_file(self.path())

    def refused(self, name):
        with self.subTest(name):
            with self.assertRaises(safetensors.SafetensorError):
                safetensors.numpy.load_file(self.path())
            with self.assertRaises(culvert.FormatError) as ours:
                culvert.numpy.load_file(self.path())
            self.assertIn("model.safetensors", str(ours.exception))
            self.assertIn("rule:", str(ours.exception))

    def test_large(self):
        """More than one read, and sizes that are no multiple of anything."""
        rng = numpy.random.default_rng(1)
        arrays = {"a": rng.integers(0, 255, (3, 9_000_011), numpy.uint8), "b": rng.standard_normal((1021, 1031))}
        safetensors.numpy.save_file(arrays, self.path())
        for name, got in culvert.numpy.load_file(self.path()).items():
            numpy.testing.assert_array_equal(got, arrays[name])
        with culvert.safe_open(self.path(), "np") as f:
            numpy.testing.assert_array_equal(f.get_slice("a")[1:, 77:8_800_000], arrays["a"][1:, 77:8_800_000])
        culvert.save_file(arrays, self.path("b"))
        for name, got in safetensors.numpy.load_file(self.path("b")).items():
            numpy.testing.assert_array_equal(got, arrays[name])

    def test_sizes(self):
        self.assertEqual(size_of("F4", [3, 8]), 12)
        self.assertEqual(_dtypes.stored_shape("F6_E2M3", [3, 8]), (3, 6))
        self.assertEqual(_dtypes.logical_shape("F6_E2M3", (3, 6)), (3, 8))
        self.assertEqual(_dtypes.stored_shape("F4", [2, 3]), (3,))
