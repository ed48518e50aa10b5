"""Faults of the software machine, in Python."""

import importlib.util
import json
import os
import random
import subprocess
import sys
import unittest

from support import ROOT, Case, random_tensors, write_raw

import culvert
from culvert import testing


# Loads a model, breaks the machine and loads it three times.
BROKEN = """
import sys
import culvert
from culvert import testing

def load():
    t = culvert.load_file(sys.argv[1], device="cuda:0")["w"].numpy()
    right = t.tobytes() == want
    print("right" if right else "wrong", str(culvert.last_receipt()).split("route=")[1].split()[0])

with open(sys.argv[1], "rb") as f:
    want = f.read()[-(32 << 20):]
load()
with testing.faults(sys.argv[2]) as broken:
    for i in range(3):
        try:
            load()
        except Exception as e:
            print(type(e).__name__)
    print(*broken.fired())
"""


class Faults(Case):
    def setUp(self):
        super().setUp()
        self.model = str(self.dir / "model.safetensors")
        write_raw(self.model, random_tensors(1, 20))

    def load(self):
        return culvert.load_file(self.model, device="cuda:0")

    def test_errno(self):
        with testing.faults("errno=EIO,call=read,file=*.safetensors") as broken:
            with self.assertRaisesRegex(Exception, "input/output error"):
                self.load()
            self.assertRegex(broken.fired()[0], r"^errno=EIO,.*: [0-9]+ times?$")
        self.load()

    def test_code(self):
        with testing.faults("code=5027,call=register"):
            with self.assertRaisesRegex(Exception, "5027"):
                self.load()
        self.load()

    def test_nothing(self):
        with testing.faults("errno=EIO,file=other*") as broken:
            self.load()
            self.assertEqual(broken.fired(), [])

    def test_slow_and_short(self):
        with testing.faults("slow=1ms,nth=1") as broken:
            self.load()
            self.assertEqual(len(broken.fired()), 1)
        with testing.faults("short=16") as broken:
            with self.assertRaisesRegex(Exception, "unexpected EOF"):
                self.load()
            self.assertRegex(broken.fired()[0], "^short=16: [0-9]+ times?$")
        self.load()

    def test_mistakes(self):
        with self.assertRaisesRegex(Exception, "unknown kind"):
            testing.Faults()("explode")

    def broken(self, spec):
        """Loads a model three times in a process of its own, in which a broken device stays
        broken. Returns what each load gave, and the faults that came about."""
        big = str(self.dir / "big.safetensors")
        data = random.Random(2).randbytes(32 << 20)
        header = json.dumps({"w": {"dtype": "U8", "shape": [len(data)], "data_offsets": [0, len(data)]}})
        write_raw(big, {"w": ("U8", [len(data)], data)}, header=header.ljust(4088).encode())  # data in whole blocks
        soft = dict(os.environ, CULVERT_SOFT="memory=128M,poison=1,callback=1")
        done = subprocess.run([sys.executable, "-c", BROKEN, big, spec], capture_output=True, text=True, env=soft)
        self.assertEqual(done.returncode, 0, done.stderr)
        *loads, fired = done.stdout.splitlines()
        if loads[0] != "right nvfs":
            self.skipTest(f"loads take another route here: {loads[0]}")
        return loads[1:], fired

    def test_drive(self):
        """A drive that breaks or lies: a load fails, or its bytes are right."""
        for spec, want in {
            "media,nth=1": ["OSError", "right nvfs", "right nvfs"],
            "unplug": ["right ring"] * 3,
            "dma=drop,nth=1": ["right ring"] * 3,
            "dma=misdirect,nth=1": ["right ring"] * 3,
            "dma=transform,nth=1": ["right ring"] * 3,
        }.items():
            with self.subTest(spec):
                loads, fired = self.broken(spec)
                self.assertEqual((loads, fired), (want, f"{spec}: 1 time"))

    def test_revoke_and_truncate(self):
        loads, fired = self.broken("revoke")
        self.assertEqual(fired, "revoke: 1 time")
        self.assertEqual([load for load in loads if load.startswith("wrong")], [])
        loads, fired = self.broken("truncate=1M")
        self.assertEqual((loads, fired), (["CulvertError", "FormatError", "FormatError"], "truncate=1M: 1 time"))

    def test_dead_gpu(self):
        """A dead GPU stays dead, so a process of its own dies with it."""
        program = (
            "import culvert, sys\nfrom culvert import testing\n"
            "testing.Faults()('sticky=700')\n"
            "try:\n  for i in range(2): culvert.load_file(sys.argv[1], device='cuda:0')\n"
            "except Exception as e: print('dead:', e)\n"
        )
        done = subprocess.run([sys.executable, "-c", program, self.model], capture_output=True, text=True, env=dict(os.environ))
        self.assertIn("dead:", done.stdout, done.stderr)

    @unittest.skipUnless(importlib.util.find_spec("pytest"), "needs pytest")
    def test_plugin(self):
        (self.dir / "test_it.py").write_text(
            "import culvert, pytest\n"
            "def test_first(culvert_faults):\n"
            "    culvert_faults('errno=EIO,call=read')\n"
            f"    with pytest.raises(Exception): culvert.load_file({self.model!r}, device='cuda:0')\n"
            "    assert culvert_faults.fired()\n"
            "def test_second():\n"
            f"    culvert.load_file({self.model!r}, device='cuda:0')\n"
        )
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "culvert.pytest_plugin", "-p", "no:cacheprovider", str(self.dir)],
            capture_output=True, text=True, cwd=ROOT, env=dict(os.environ),
        )
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main()
