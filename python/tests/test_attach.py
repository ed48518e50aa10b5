"""A model that another process serves."""

import os
import pickle
import signal
import stat
import subprocess
import sys
import unittest

import numpy
from support import CULVERT, Case, culvert


class Attach(Case):
    def setUp(self):
        super().setUp()
        self.arrays = {f"layers.{i}.w": numpy.arange(1000 * i, dtype=numpy.int32) for i in range(10)}
        culvert.save_file(self.arrays, self.path(), {"k": "v"})
        self.sock = str(self.path("s"))

    def hold(self, *args):
        server = subprocess.Popen(
            [CULVERT, "load", self.path(), *args, "--hold", self.sock], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.addCleanup(server.stdout.close)
        self.addCleanup(server.wait)
        self.addCleanup(server.kill)
        said = self.said = []
        for line in server.stdout:
            said.append(line)
            if line.startswith("holding "):
                return server
        self.fail("".join(said))

    def end(self, server):
        server.send_signal(signal.SIGINT)
        rest = server.stdout.read()
        self.assertEqual(server.wait(10), 0, rest)
        self.assertFalse(os.path.exists(self.sock))
        return rest

    def test_attach(self):
        server = self.hold("gpu:0")
        self.assertEqual(stat.S_IMODE(os.stat(self.sock).st_mode), 0o600)
        a, b = culvert.attach(self.sock), culvert.attach(self.sock)
        self.assertEqual((a.metadata, a.shared, len(a)), ({"k": "v"}, False, 10))
        self.assertIn("10 tensors, copied", repr(a))
        self.assertIs(a["layers.1.w"], a["layers.1.w"])
        self.assertIn("released", self.end(server))
        # What was attached stays.
        for got in (dict(a), b, b.all(), a.on("cuda:0"), a.on("cuda:0").all()):
            for name, want in self.arrays.items():
                numpy.testing.assert_array_equal(got[name].numpy(), want)
        self.assertEqual((len(a.on("cuda:1")), a.on("cuda:1").all()), (0, {}))
        self.assertIs(b.all()["layers.1.w"], b["layers.1.w"])
        with self.assertRaisesRegex(TypeError, "attach"):
            pickle.dumps(a)
        receipt = culvert.last_receipt()
        self.assertEqual((receipt["op"], receipt["tensors"]), ("attach", 10))
        self.assertEqual(set(receipt["phases"]), {"connect", "answer", "map", "list"})
        self.assertRegex(str(receipt), "^attach model.safetensors tensors=10 bytes=180000 time=.*ms SOFTWARE-MACHINE$")
        with self.assertRaises(KeyError):
            a["none"]

    def test_ranks(self):
        self.arrays = {"model.layers.0.mlp.up_proj.weight": numpy.arange(64, dtype=numpy.uint8).reshape(8, 8)}
        culvert.save_file(self.arrays, self.path())
        server = self.hold("gpu:0,gpu:1", "--plan", "tp=2")
        a = culvert.attach(self.sock)
        name = "model.layers.0.mlp.up_proj.weight"
        with self.assertRaisesRegex(culvert.RequestError, "several GPUs"):
            a[name]
        with self.assertRaisesRegex(culvert.RequestError, "several GPUs"):
            a.all()
        for i in range(2):
            numpy.testing.assert_array_equal(a.on(i)[name].numpy(), self.arrays[name][4 * i : 4 * i + 4])
        self.end(server)

    def test_processes_of_ranks(self):
        """One process reads the model once, for four GPUs; each rank attaches to its own,
        and all of them at a time. The model is gone by then: no rank can read it again."""
        rng = numpy.random.default_rng(1)
        up, norm = "model.layers.0.mlp.up_proj.weight", "model.norm.weight"
        self.arrays = {up: rng.integers(0, 255, (8, 8), numpy.uint8), norm: rng.integers(0, 255, 8, numpy.uint8)}
        culvert.save_file(self.arrays, self.path())
        server = self.hold("gpu:0,gpu:1,gpu:2,gpu:3", "--plan", "tp=4")
        self.assertIn("(read 72 B, 24 B copied from GPU to GPU)", "".join(self.said))
        program = (
            "import culvert, sys; rank = int(sys.argv[2]); a = culvert.attach(sys.argv[1], device=rank); "
            "print(a.all()[sys.argv[3]].numpy().tobytes().hex(), a[sys.argv[4]].numpy().tobytes().hex(), "
            "culvert.last_receipt()['bytes'])"
        )
        os.unlink(self.path())
        ranks = [
            subprocess.Popen([sys.executable, "-c", program, self.sock, str(rank), up, norm], stdout=subprocess.PIPE, text=True)
            for rank in range(4)
        ]
        for rank, process in enumerate(ranks):
            said = process.communicate()[0].split()
            part = self.arrays[up][2 * rank : 2 * rank + 2]
            self.assertEqual(said, [part.tobytes().hex(), self.arrays[norm].tobytes().hex(), str(16 + 8)])
        with self.assertRaises(ValueError):
            culvert.attach(self.sock, device="cpu")
        self.end(server)

    def test_save_from(self):
        server = self.hold("gpu:0")
        subprocess.run([CULVERT, "save", "--from", self.sock, self.path("saved")], check=True, capture_output=True)
        self.assertEqual(self.path("saved").read_bytes(), self.path().read_bytes())
        self.end(server)

    def test_a_dead_server_is_replaced_a_live_one_is_not(self):
        server = self.hold("gpu:0")
        second = subprocess.run([CULVERT, "load", self.path(), "gpu:0", "--hold", self.sock], capture_output=True, text=True)
        self.assertEqual(second.returncode, 1)
        self.assertIn("another process serves a model there", second.stderr)
        server.kill()
        server.wait()
        self.assertTrue(os.path.exists(self.sock))
        with self.assertRaisesRegex(ConnectionRefusedError, "no model is served there"):
            culvert.attach(self.sock)
        self.end(self.hold("gpu:0"))
        with self.assertRaisesRegex(FileNotFoundError, "culvert load MODEL"):
            culvert.attach(self.sock)

    def test_leaks(self):
        server = self.hold("gpu:0")
        culvert.attach(self.sock)
        before = len(os.listdir("/proc/self/fd")), len(os.listdir(f"/proc/{server.pid}/fd"))
        for _ in range(50):
            culvert.attach(self.sock)["layers.9.w"].numpy()
        after = len(os.listdir("/proc/self/fd")), len(os.listdir(f"/proc/{server.pid}/fd"))
        self.assertLessEqual(after[0], before[0])
        self.assertLessEqual(after[1], before[1] + 2)  # the last connection may still be closing
        self.end(server)


if __name__ == "__main__":
    unittest.main()
