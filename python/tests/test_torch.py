"""torch tensors: against safetensors.torch, and DLPack as torch reads it."""

import ctypes
import unittest

try:
    import torch
except ImportError:
    raise unittest.SkipTest("needs torch, which is not installed here") from None

import numpy
import safetensors.torch
from support import Case, culvert, random_tensors, write_raw
from test_device import DLManagedTensor

import culvert.torch
from culvert import _core, _dtypes, _software


def bits(tensor):
    """The bytes of a torch tensor of any type."""
    if tensor.numel() == 0:
        return b""
    return ctypes.string_at(tensor.data_ptr(), tensor.numel() * tensor.element_size())


class Torch(Case):
    def known(self, seed):
        """Random tensors of the types that safetensors.torch has."""
        return {n: t for n, t in random_tensors(seed).items() if not t[0].startswith("F6")}

    def test_load(self):
        for seed in range(3):
            tensors = self.known(seed)
            write_raw(self.path(), tensors)
            theirs = safetensors.torch.load_file(self.path())
            for load in (culvert.torch.load_file, lambda p: culvert.load_file(p, "cpu"), lambda p: culvert.torch.load_file(p, torch.device("cpu"))):
                ours = load(self.path())
                self.assertEqual(set(ours), set(theirs))
                for name, want in theirs.items():
                    got = ours[name]
                    self.assertEqual((got.dtype, got.shape, got.stride()), (want.dtype, want.shape, want.stride()), name)
                    self.assertEqual(bits(got), tensors[name][2], name)

    def test_save(self):
        for seed in range(3):
            tensors = self.known(seed)
            write_raw(self.path(), tensors)
            loaded = safetensors.torch.load_file(self.path())
            culvert.torch.save_file(loaded, self.path("again"), metadata={"format": "pt"})
            got = dict(safetensors.deserialize(self.path("again").read_bytes()))
            for name, (dtype, shape, data) in tensors.items():
                self.assertEqual((got[name]["dtype"], list(got[name]["shape"])), (dtype, shape), name)
                self.assertEqual(bytes(got[name]["data"]), data, name)

    def test_both_refuse(self):
        a = torch.zeros(4, 4)
        for tensors, error in (
            ([a], ValueError),
            ({"a": 3}, ValueError),
            ({"a": a.T[1:]}, ValueError),
            ({"a": a.to_sparse()}, ValueError),
            ({"a": a, "b": a}, RuntimeError),
            ({"a": a, "b": a[1]}, RuntimeError),
        ):
            with self.assertRaises(error):
                culvert.torch.save_file(tensors, self.path())
        nested = torch.nested.nested_tensor([a, a[1:]], layout=torch.jagged)
        for tensor, error, text in ((a.to("meta"), RuntimeError, "Cannot copy out of meta tensor"), (nested, ValueError, "to_padded_tensor")):
            with self.assertRaisesRegex(error, f"tensor 'layer' .*{text}"):
                culvert.torch.save_file({"layer": tensor}, self.path())
        meta = {"layer": a.to("meta"), "next": a.to("meta")}
        with self.assertRaisesRegex(NotImplementedError, "tensor 'layer' has no data"):  # and not that they share it
            culvert.torch.save_file(meta, self.path())
        # Neighbours in one storage do not overlap.
        culvert.torch.save_file({"a": a[:2], "b": a[2:], "p": torch.nn.Parameter(torch.ones(2))}, self.path())
        self.assertEqual(culvert.torch.load_file(self.path())["p"].tolist(), [1, 1])

    def test_conjugate(self):
        """The values of the tensor, not those of the one whose memory it uses."""
        a = torch.tensor([1 + 2j, 3 - 4j])
        culvert.torch.save_file({"conj": a.conj()}, self.path())
        self.assertEqual(safetensors.torch.load_file(self.path())["conj"].tolist(), [1 - 2j, 3 + 4j])
        negative = torch._neg_view(torch.tensor([1.0, -2.0]))
        self.assertEqual(culvert.torch.load(culvert.torch.save({"n": negative}))["n"].tolist(), [-1, 2])

    def test_state_dict(self):
        model = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.LayerNorm(5))
        culvert.torch.save_file(model.state_dict(), self.path())
        other = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.LayerNorm(5))
        other.load_state_dict(culvert.torch.load_file(self.path()))
        for a, b in zip(model.parameters(), other.parameters()):
            self.assertTrue(torch.equal(a, b))
        # What was loaded can be saved by either.
        safetensors.torch.save_file(culvert.torch.load_file(self.path()), self.path("b"))

    def test_safe_open(self):
        x = torch.arange(60, dtype=torch.bfloat16).reshape(3, 4, 5)
        safetensors.torch.save_file({"x": x}, self.path())
        with culvert.safe_open(self.path(), "pt") as f, safetensors.safe_open(self.path(), "pt") as theirs:
            for index in (0, slice(1, 3), (slice(None), 2), (..., slice(1, 4)), (slice(None), slice(None, None, 2), 1)):
                want, got = theirs.get_slice("x")[index], f.get_slice("x")[index]
                self.assertTrue(torch.equal(got, want) and got.is_contiguous() and got.shape == want.shape, index)

    def test_slices_loaded_ahead(self):
        """patch(device) loads the file whole, and cuts slices from that, also with a
        step over large rows. From memory that torch cannot index they are read."""
        self.addCleanup(culvert.unpatch)
        self.addCleanup(setattr, _software, "_chosen", None)
        x = torch.arange(5 * 20_000, dtype=torch.float32).reshape(5, 20_000)
        safetensors.torch.save_file({"x": x}, self.path())
        for tensors in ("cpu", "device"):
            culvert.software(tensors=tensors)
            culvert.patch("cuda:1")
            with safetensors.safe_open(self.path(), "pt") as f:
                for index in (slice(1, 3), slice(None, None, 2), (slice(0, 3, 2), slice(1, None, 3)), (2, slice(5, 9)), (..., 4)):
                    part = f.get_slice("x")[index]
                    self.assertIsInstance(part, torch.Tensor if tensors == "cpu" else culvert.DeviceTensor)
                    self.assertTrue(torch.equal(part.cpu(), x[index]) and part.cpu().is_contiguous(), (tensors, index))

    def test_default_device(self):
        """Tensors on the CPU are in host memory, whatever device the program makes its own on."""
        self.addCleanup(setattr, _software, "_chosen", None)
        culvert.software(tensors="cpu")
        tensors = self.known(6)
        write_raw(self.path(), tensors)
        with torch.device("meta"):
            for load in (
                culvert.torch.load_file, lambda path: culvert.load_file(path, "cuda:0"), lambda path: culvert.torch.load(path.read_bytes()),
                lambda path: {name: culvert.safe_open(path, "pt").get_tensor(name) for name in tensors},
            ):
                got = load(self.path())
                for name, (_, _, data) in tensors.items():
                    self.assertEqual((got[name].device.type, bits(got[name])), ("cpu", data), name)

    def test_no_device(self):
        """None is the CPU, as safetensors has it."""
        safetensors.torch.save_file({"x": torch.ones(3)}, self.path())
        for load in (culvert.torch.load_file, safetensors.torch.load_file):
            self.assertEqual(load(self.path(), device=None)["x"].device.type, "cpu")

    def test_software_gpu(self):
        tensors = self.known(9)
        write_raw(self.path(), tensors)
        for name, tensor in culvert.torch.load_file(self.path(), "cuda:1").items():
            self.assertIsInstance(tensor, culvert.DeviceTensor)
            self.assertEqual(bits(tensor.cpu()), tensors[name][2])
            self.assertEqual(tensor.cpu().dtype, getattr(torch, _dtypes.torch_name(tensors[name][0])))

    def test_dlpack(self):
        """torch takes our capsules. Here they are made to point to host memory: a
        GPU that torch could use is not needed for that."""
        tensors = {n: t for n, t in self.known(4).items() if t[2]}
        write_raw(self.path(), tensors)
        loaded = culvert.load_file(self.path())
        names, memory = list(loaded), next(iter(loaded.values()))._memory
        infos = [{"dtype": loaded[n].dtype, "shape": list(loaded[n].shape)} for n in names]
        hosts = [loaded[n].numpy() for n in names]
        real = _core.capsules

        def redirected(memory, first, count):
            made = real(memory, first, count)
            pointer = ctypes.pythonapi.PyCapsule_GetPointer
            pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
            for capsule, host in zip(made, hosts):
                m = DLManagedTensor.from_address(pointer(capsule, b"dltensor"))
                m.data, m.device_type, m.device_id = host.ctypes.data, 1, 0
            return made

        _core.capsules = redirected
        self.addCleanup(setattr, _core, "capsules", real)
        made = culvert.torch._on_device(memory, infos, 0)
        for name, tensor in zip(names, made):
            dtype, shape, data = tensors[name]
            self.assertEqual(tensor.dtype, getattr(torch, _dtypes.torch_name(dtype)), name)
            self.assertEqual(tuple(tensor.shape), _dtypes.stored_shape(dtype, shape), name)
            self.assertEqual(bits(tensor), data, name)
            # A storage of its own, as safetensors.torch.save_file wants it.
            self.assertEqual(tensor.untyped_storage().nbytes(), len(data), name)
        del tensor, made, loaded

    def test_numpy_too(self):
        culvert.save_file({"t": torch.ones(3), "n": numpy.ones(2)}, self.path())
        got = culvert.load_file(self.path(), "cpu")
        self.assertEqual((got["t"].dtype, got["n"].dtype), (torch.float32, torch.float64))
