"""Loading: devices, parts of models, verification, receipts, errors."""

import errno
import json
import os
import threading

import numpy
from support import Case, culvert, random_tensors, write_raw

import culvert.numpy
from culvert import _load, dtype_of


class Load(Case):
    def model(self):
        """Two shards and an index."""
        shards = {
            "a.safetensors": {"model.embed_tokens.weight": ("U8", [4, 4], b"0123456789abcdef"), "model.norm.weight": ("U8", [4], b"WXYZ")},
            "b.safetensors": {"model.layers.0.mlp.down_proj.weight": ("U8", [2, 8], b"ABCDEFGHIJKLMNOP")},
        }
        weights = {}
        for name, tensors in shards.items():
            write_raw(self.path(name), tensors)
            weights.update(dict.fromkeys(tensors, name))
        self.path("model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weights}))
        return self.dir

    def test_device_and_host_agree(self):
        tensors = random_tensors(11)
        write_raw(self.path(), tensors)
        gpu = culvert.load_file(self.path(), device="cuda:1")
        host = culvert.numpy.load_file(self.path())
        self.assertEqual(list(gpu), list(host))
        for name, tensor in gpu.items():
            self.assertIsInstance(tensor, culvert.DeviceTensor)
            self.assertEqual((tensor.dtype, list(tensor.shape)), (tensors[name][0], tensors[name][1]))
            self.assertEqual((tensor.device, tensor.nbytes), ("cuda:1", len(tensors[name][2])))
            self.assertEqual(tensor.numpy().tobytes(), tensors[name][2])
            self.assertEqual(tensor.numpy().dtype, host[name].dtype)
            self.assertEqual(numpy.asarray(tensor).shape, host[name].shape)

    def test_devices(self):
        for device, gpu in {"cpu": None, "cpu:0": None, "cuda": 0, "cuda:7": 7, 3: 3, numpy.int64(2): 2}.items():
            self.assertEqual(_load.parse_device(device), gpu)
        for device in ("gpu:0", "cuda:-1", "cuda:x", "", -1, None, 1.5, "cpu:1", True, "cuda:\u0663", "cuda:" + "9" * 20, 1 << 40, b"cuda:0"):
            with self.assertRaises(culvert.RequestError, msg=repr(device)):
                _load.parse_device(device)

    def test_sharded(self):
        got = culvert.numpy.load_file(self.model())
        self.assertEqual(len(got), 3)
        self.assertEqual(got["model.layers.0.mlp.down_proj.weight"].tobytes(), b"ABCDEFGHIJKLMNOP")
        again = culvert.numpy.load_file(self.path("model.safetensors.index.json"))
        self.assertEqual(list(got), list(again))

    def test_parts(self):
        path = self.model()
        half = culvert.load_file(path, "cpu", plan="tp=2,rank=1")
        self.assertEqual(bytes(half["model.layers.0.mlp.down_proj.weight"].reshape(-1)), b"EFGHMNOP")
        self.assertEqual(culvert.last_receipt()["read_bytes"], 8 + 8 + 4)
        self.assertEqual(list(culvert.load_file(path, "cpu", only="*norm*")), ["model.norm.weight"])
        whole = culvert.load_file(path, "cpu", plan="tp=2,rank=0", rules=["*down_proj*=whole", "*embed*=whole"])
        self.assertEqual(whole["model.layers.0.mlp.down_proj.weight"].shape, (2, 8))
        early = culvert.load_file(path, order="layer")
        self.assertEqual(early["model.norm.weight"].numpy().tobytes(), b"WXYZ")

    def test_several_gpus(self):
        path = self.model()
        ranks = culvert.load_file(path, device=["cuda:1", "cuda:0"], plan="tp=2")
        self.assertEqual([r["model.norm.weight"].device for r in ranks], ["cuda:1", "cuda:0"])
        self.assertEqual([r["model.layers.0.mlp.down_proj.weight"].numpy().tobytes() for r in ranks], [b"ABCDIJKL", b"EFGHMNOP"])
        for wrong in ([], ["cpu"], ["cuda:0", "cpu"], ["cuda:0", 0]):
            with self.assertRaises(ValueError):
                culvert.load_file(path, device=wrong)

    def test_gpus_read_once(self):
        path = self.model()
        with culvert.safe_open(path, "np") as f:
            want = {name: f.get_tensor(name).tobytes() for name in f.keys()}
        total = sum(map(len, want.values()))
        replicas = culvert.load_file(path, device=[0, 1, 2, 3], plan="dp=4")
        self.assertEqual([{name: t.numpy().tobytes() for name, t in r.items()} for r in replicas], [want] * 4)
        receipt = culvert.last_receipt()
        self.assertEqual((receipt["read_bytes"], receipt["copied_bytes"]), (total, 3 * total))
        ranks = culvert.load_file(path, device=[0, 1, 2, 3], plan="tp=4", rules=["*embed*=whole", "*norm*=whole"])
        self.assertEqual([r["model.norm.weight"].numpy().tobytes() for r in ranks], [b"WXYZ"] * 4)
        self.assertEqual(culvert.last_receipt()["read_bytes"], total)

    def test_per_tensor(self):
        got = culvert.load_file(self.model(), per_tensor=True)
        self.assertEqual(got["model.norm.weight"].numpy().tobytes(), b"WXYZ")

    def test_verify(self):
        culvert.save_file({"w": numpy.arange(100_000)}, self.path())
        for device in ("cpu", "cuda:0"):
            culvert.load_file(self.path(), device, verify=True)
            self.assertEqual(culvert.last_receipt()["verified"], 1)
        with open(self.path(), "r+b") as f:
            f.seek(5000)
            f.write(b"damage")
        for device in ("cpu", "cuda:0"):
            with self.assertRaises(culvert.ChecksumError) as e:
                culvert.load_file(self.path(), device, verify=True)
            self.assertIn('tensor "w"', str(e.exception))
        write_raw(self.path("bare"), {"w": ("U8", [1], b"x")})
        with self.assertRaisesRegex(culvert.CulvertError, "culvert verify --create"):
            culvert.load_file(self.path("bare"), "cpu", verify=True)

    def test_receipt(self):
        write_raw(self.path(), {"w": ("U8", [1000], bytes(1000))})
        culvert.load_file(self.path())
        r = culvert.last_receipt()
        self.assertEqual((r["op"], r["tensors"], r["wanted_bytes"], r["gpus"]), ("load", 1, 1000, [0]))
        self.assertTrue(r["software_machine"])
        file = r["files"][0]["receipt"]
        self.assertEqual(sum(file["bytes_by_route"].values()), 1000)
        self.assertTrue(all(d["route"] for d in file["declined"]))
        line = r"^load model.safetensors tensors=1 bytes=1000 read=1000 time=.*ms rate=.*GB/s route=\w+ SOFTWARE-MACHINE$"
        self.assertRegex(str(r), line)
        seen = []
        t = threading.Thread(target=lambda: seen.append(culvert.last_receipt()))
        t.start()
        t.join()
        self.assertEqual(seen, [None])

    def test_threads(self):
        tensors = random_tensors(5, 30)
        write_raw(self.path(), tensors)
        errors = []

        def work(device):
            try:
                for _ in range(5):
                    got = culvert.numpy.load_file(self.path()) if device == "cpu" else culvert.load_file(self.path(), device)
                    for name, (_, _, data) in tensors.items():
                        tensor = got[name] if device == "cpu" else got[name].numpy()
                        if tensor.tobytes() != data:
                            errors.append(name)
            except Exception as e:
                errors.append(e)

        threads = [threading.Thread(target=work, args=(d,)) for d in ("cpu", "cuda:0", "cuda:1", "cuda:0")]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(errors, [])

    def test_errors(self):
        with self.assertRaises(FileNotFoundError) as e:
            culvert.load_file(self.path("none"), "cpu")
        self.assertEqual(e.exception.errno, errno.ENOENT)
        self.assertIn("none", str(e.exception))
        write_raw(self.path(), {"w": ("U8", [100 << 20], bytes(100 << 20))})
        with self.assertRaises(culvert.OutOfMemoryError) as e:
            culvert.load_file(self.path())
        self.assertIsInstance(e.exception, MemoryError)
        with self.assertRaisesRegex(culvert.GPUError, r"open gpu:9: .*: this machine has 4 GPUs \(fix: CULVERT_SOFT=gpus=10 gives .* more\)$"):
            culvert.load_file(self.path(), "cuda:9")
        for part in ({"plan": "tp=2"}, {"plan": "nonsense=1"}, {"only": "nothing"}, {"only": "["}, {"rules": "x"}, {"order": "size"}, {"plan": 5}, {"only": [5]}, {"verify": "yes"}):
            with self.assertRaises(culvert.RequestError, msg=part) as e:
                culvert.load_file(self.path(), "cpu", **part)
            self.assertIsInstance(e.exception, ValueError)
        with self.assertRaises(TypeError):
            culvert.load_file(7, "cpu")
        with self.assertRaisesRegex(ValueError, "UTF-8"):
            culvert.load_file(b"\xff", "cpu")

    def test_paths(self):
        write_raw(self.path("ä b.safetensors"), {"w": ("U8", [1], b"x")})
        for path in (self.path("ä b.safetensors"), str(self.path("ä b.safetensors")), os.fsencode(self.path("ä b.safetensors"))):
            self.assertEqual(culvert.numpy.load_file(path)["w"].tobytes(), b"x")
        for call in (culvert.load_file, culvert.safe_open, lambda path: culvert.save_file({}, path)):
            with self.assertRaisesRegex(ValueError, "the path is empty"):
                call("")

    def test_empty_model(self):
        write_raw(self.path(), {})
        self.assertEqual(culvert.load_file(self.path(), "cpu"), {})
        self.assertEqual(culvert.load_file(self.path()), {})

    def test_odd_packed(self):
        """Rows that do not end on bytes come as one row of bytes, and go back."""
        tensors = {"a": ("F4", [2, 3], b"abc"), "b": ("F6_E3M2", [4, 1], b"xyz"), "c": ("F4", [3, 2], b"123")}
        write_raw(self.path(), tensors)
        got = culvert.numpy.load_file(self.path())
        self.assertEqual((got["a"].shape, got["b"].shape, got["c"].shape), ((3,), (3,), (3, 1)))
        culvert.save_file(got, self.path("again"))
        with culvert.safe_open(self.path("again"), "np") as f:
            for name, (dtype, shape, data) in tensors.items():
                self.assertEqual((f.get_slice(name).get_dtype(), f.get_slice(name).get_shape()), (dtype, shape))
                self.assertEqual(f.get_tensor(name).tobytes(), data)

    def test_machine(self):
        m = culvert.machine()
        self.assertTrue(m["software_machine"])
        self.assertEqual(len(m["gpus"]), 4)

    def test_dtype_of(self):
        write_raw(self.path(), {"w": ("BF16", [2], b"abcd")})
        host = culvert.numpy.load_file(self.path())["w"]
        self.assertEqual((dtype_of(host), host.dtype), ("BF16", numpy.uint16))
        self.assertEqual(dtype_of(host[:1]), "BF16")
        self.assertEqual(dtype_of(host.view(numpy.int16)), "I16")
        self.assertEqual(dtype_of(culvert.load_file(self.path())["w"]), "BF16")
        self.assertIsNone(dtype_of(numpy.zeros(1, "datetime64[s]")))
