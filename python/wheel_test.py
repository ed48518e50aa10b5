"""Builds the wheel and tries it in empty environments: "make wheel-test".

The Pythons are the oldest and the newest of those that the safetensors package
supports: the oldest that is installed here, and the newest, which comes from Debian's
packages if it is not installed. If the registry cannot be reached, the tests that need
it are skipped with the reason.
"""

import functools
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import debian_python
import environment

ROOT = pathlib.Path(__file__).resolve().parent.parent
TOOLS, OUT = ROOT / "bin" / "wheel-tools", ROOT / "bin" / "wheel"
SUPPORTED = [f"3.{minor}" for minor in range(10, 15)]

USE = """
import culvert, numpy, os, sys
want = numpy.arange(100_000, dtype=numpy.float32).reshape(100, 1000)
culvert.save_file({"w": want}, "m.safetensors")
got = culvert.load_file("m.safetensors", device="cuda:0", verify=True)["w"]
assert isinstance(got, culvert.DeviceTensor), got
assert (got.numpy() == want).all()
assert culvert.last_receipt()["software_machine"]
maps = open("/proc/self/maps").read()
assert os.path.join(sys.prefix, "") in next(l for l in maps.splitlines() if "libculvert" in l), maps
"""

CUFILE = """
import ctypes
assert ctypes.CDLL("libcufile.so.0").cuFileUseCount() == 0
n = ctypes.c_int()
cuda = ctypes.CDLL("libcuda.so.1")
assert cuda.cuInit(0) == 0 and cuda.cuDeviceGetCount(ctypes.byref(n)) == 0 and n.value > 0
maps = open("/proc/self/maps").read()
assert "site-packages/culvert/lib/libcufile.so.0" in maps and "site-packages/culvert/lib/soft/libcuda.so.1" in maps, maps
"""


def runs(python, version):
    """Whether it is a Python of that version that can make environments. A shim of
    pyenv may be none, and Debian packages venv apart."""
    said = subprocess.run([python, "-c", "import ensurepip, sys, venv; print('%d.%d' % sys.version_info[:2])"], capture_output=True, text=True)
    return said.stdout.strip() == version


@functools.cache
def pythons():
    """Returns the installed Pythons by version, in order."""
    found = {}
    for version in SUPPORTED:
        kept = pathlib.Path.home().glob(f".pyenv/versions/{version}.*/bin/python")
        for python in (shutil.which(f"python{version}"), *sorted(kept)):
            if python and runs(python, version):
                found[version] = python
                break
    newest = SUPPORTED[-1]
    if newest not in found:
        try:
            found[newest] = debian_python.ensure(ROOT / "bin" / f"python{newest}", newest)
        except (SystemExit, OSError, subprocess.CalledProcessError) as e:
            print(f"Python {newest} is not installed here, and Debian's cannot be used: {e}")
    return found


@functools.cache
def wheel():
    """Builds the wheel once, and returns its path."""
    tools, reason = environment.ensure(TOOLS, ROOT / "python" / "wheel-requirements.txt")
    if reason:
        raise unittest.SkipTest(f"the tools that build a wheel cannot be installed: {reason}")
    before = status()
    subprocess.run([tools, ROOT / "python" / "wheel.py", OUT], check=True)
    if status() != before:
        raise AssertionError(f"building the wheel changed the source tree:\n{status()}")
    version = re.search('__version__ = "(.*)"', (ROOT / "python" / "culvert" / "__init__.py").read_text())[1]
    return OUT / f"culvert-{version}-py3-none-manylinux_2_28_x86_64.whl"


def status():
    return subprocess.run(["git", "status", "--porcelain"], cwd=ROOT, check=True, capture_output=True, text=True).stdout


class Installed(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory(prefix="culvert-")
        self.addCleanup(directory.cleanup)
        self.dir = pathlib.Path(directory.name)
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("CULVERT_", "PYTHON"))}
        self.env |= {"CULVERT_MACHINE": "soft", "CULVERT_SOFT": "gpus=1,memory=64M", "PATH": f"{self.dir}/env/bin:{os.environ['PATH']}"}

    def run_here(self, *command):
        done = subprocess.run(command, cwd=self.dir, env=self.env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, 0, f"{command}:\n{done.stdout}{done.stderr}")
        return done.stdout

    def install(self, python):
        """Makes an empty environment with nothing but the wheel."""
        if ROOT in pathlib.Path(python).parents:
            debian_python.make_environment(python, self.dir / "env")
        else:
            subprocess.run([python, "-m", "venv", self.dir / "env"], check=True)
        self.python = str(self.dir / "env" / "bin" / "python")
        self.run_here(self.python, "-m", "pip", "install", "--quiet", "--no-index", str(wheel()))

    def check(self, version):
        self.install(pythons()[version])
        self.assertIn("verified", self.run_here(self.python, "-m", "culvert", "demo"))
        self.assertEqual(shutil.which("culvert", path=self.env["PATH"]), f"{self.dir}/env/bin/culvert")
        self.assertIn(wheel().name.split("-")[1], self.run_here("culvert", "version"))
        self.run_here("culvert", "run", "--", self.python, "-c", CUFILE)
        reason = environment.install(self.python, "numpy")
        if reason:
            self.skipTest(f"numpy cannot be installed: {reason}")
        self.run_here(self.python, "-W", "error", "-c", USE)
        print(f"Python {version}: works", flush=True)
        self.run_here(self.python, "-m", "pip", "uninstall", "--quiet", "--yes", "culvert")
        left = list((self.dir / "env").glob("lib/*/site-packages/culvert/**/*.so*"))
        self.assertEqual(left, [], "pip uninstall left files")

    def test_oldest_python(self):
        wheel()
        self.check(min(pythons(), key=SUPPORTED.index))

    def test_newest_python(self):
        wheel()
        self.check(max(pythons(), key=SUPPORTED.index))

    def test_source_says_what_it_needs(self):
        wheel()
        sdist = next(OUT.glob("culvert-*.tar.gz"))
        env = {**self.env, "PATH": "/nowhere"}
        command = [sys.executable, "-m", "pip", "install", "--no-cache-dir", "--no-index", "--target", str(self.dir / "t"), str(sdist)]
        done = subprocess.run(command, env=env, capture_output=True, text=True)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("building culvert from source needs Linux, Python 3.11, Go 1.26, make and gcc (not found: go, make)", done.stdout + done.stderr)


if __name__ == "__main__":
    if SUPPORTED[0] not in pythons():
        print(f"Python {SUPPORTED[0]} is not installed here, and not tried")
    unittest.main(verbosity=2)
