"""safetensors' own tests, from its sdist on PyPI, with Culvert in its place: all of
them where torch is installed, otherwise the few that need neither torch nor idle CPUs."""

import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile
import unittest
import xml.etree.ElementTree

import safetensors

HERE = pathlib.Path(__file__).resolve().parent
PYTHON = HERE.parent
DOCS = PYTHON.parent / "docs" / "python.md"
VERSION = safetensors.__version__
FILES, LEAST = ["test_handle"], 3
if importlib.util.find_spec("torch"):
    FILES += ["test_simple", "test_pt_comparison", "test_pt_model", "test_pread_backend", "test_multithreaded", "test_threadable"]
    LEAST = 60


def sources(directory):
    """Downloads the sdist, which has the tests."""
    env = {**os.environ, "PYTHONPATH": str(HERE), "SAFETENSORS_VERSION": VERSION}
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-build-isolation", "--no-binary", "safetensors"]
    for _ in range(3):
        done = subprocess.run([*command, f"safetensors=={VERSION}", "-d", directory], env=env, capture_output=True, text=True)
        if done.returncode == 0:
            break
    else:
        raise unittest.SkipTest(f"the sdist of safetensors cannot be downloaded: {done.stderr[-1000:]}")
    with tarfile.open(f"{directory}/safetensors-{VERSION}.tar.gz") as tar:
        tar.extractall(directory, filter="data")
    return pathlib.Path(directory) / f"safetensors-{VERSION}" / "bindings" / "python"


def documented():
    """The tests that docs/python.md says differ."""
    return set(re.findall(r"^\| `(\w+\.\w+)` \|", DOCS.read_text(), re.MULTILINE))


class Suite(unittest.TestCase):
    def test_suite(self):
        with tempfile.TemporaryDirectory(prefix="culvert-suite-") as directory:
            where = sources(directory)
            command = [
                sys.executable, "-m", "culvert", "run", "--save", "--log", f"{directory}/receipts", "-m", "pytest", "-q", "-p", "no:cacheprovider",
                f"--junitxml={directory}/report.xml", *(f"tests/{name}.py" for name in FILES),
            ]
            env = {**os.environ, "PYTHONPATH": str(PYTHON), "CULVERT_MACHINE": "soft"}
            done = subprocess.run(command, cwd=where, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            report = xml.etree.ElementTree.parse(f"{directory}/report.xml")
            receipts = pathlib.Path(directory, "receipts").read_text()
        cases = list(report.iter("testcase"))
        name = lambda case: f"{case.get('classname').rpartition('.')[2]}.{case.get('name')}"
        failed = {name(c) for c in cases if c.find("failure") is not None or c.find("error") is not None}
        self.assertGreaterEqual(len(cases), LEAST, done.stdout)
        self.assertEqual(failed, documented() & {name(c) for c in cases}, done.stdout[-20000:])
        self.assertIn("culvert: ", receipts, "the tests did not use Culvert")


if __name__ == "__main__":
    unittest.main()
