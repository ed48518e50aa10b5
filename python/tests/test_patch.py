"""Programs that use the safetensors package, and do not know of Culvert."""

import io
import subprocess
import sys
import types
import unittest.mock

import ml_dtypes
import numpy
import safetensors
import safetensors.numpy
from support import ROOT, Case, culvert

import culvert.numpy
from culvert import _run

THEIRS = safetensors.safe_open, safetensors.numpy.load_file, safetensors.numpy.save_file


class Patched(Case):
    def setUp(self):
        super().setUp()
        self.addCleanup(culvert.unpatch)
        self.want = numpy.arange(12.0).reshape(3, 4)
        safetensors.numpy.save_file({"w": self.want}, self.path())

    def user(self, name):
        """A module that has imported the functions."""
        module = types.ModuleType(name)
        module.open_file, module.load_file, module.ours = safetensors.safe_open, safetensors.numpy.load_file, culvert.numpy.load_file
        sys.modules[module.__name__] = module
        self.addCleanup(sys.modules.pop, module.__name__)
        return module

    def test_names_that_were_imported(self):
        user, out = self.user("early_user"), io.StringIO()
        culvert.patch(log=out)
        numpy.testing.assert_array_equal(user.load_file(self.path())["w"], self.want)
        with user.open_file(self.path(), framework="np") as f:
            self.assertIsInstance(f, culvert.safe_open)
            numpy.testing.assert_array_equal(f.get_slice("w")[1:], self.want[1:])
        self.assertIs(safetensors.numpy.load_file, user.load_file)
        self.assertIs(safetensors.numpy.save_file, THEIRS[2])
        late = self.user("late_user")
        culvert.unpatch()
        for module in (user, late):
            self.assertEqual((module.open_file, module.load_file), THEIRS[:2])
            self.assertIs(module.ours, culvert.numpy.load_file)
        self.assertEqual((safetensors.safe_open, safetensors.numpy.load_file), THEIRS[:2])
        self.assertRegex(out.getvalue(), r"^culvert: load model.safetensors calls=2 tensors=2 bytes=160 time=.*ms route=\w+\n$")
        user.load_file(self.path())
        self.assertIn("calls=2", out.getvalue())

    def test_log_of_both_machines(self):
        """A line of loads to a GPU and to the CPU says that the GPU was none."""
        out = io.StringIO()
        culvert.patch(log=out)
        for device in ("cuda:0", "cpu"):
            safetensors.safe_open(self.path(), "np", device).get_tensor("w")
        culvert.unpatch()
        self.assertRegex(out.getvalue(), "^culvert: load model.safetensors calls=2 .* SOFTWARE-MACHINE\n$")

    def test_save(self):
        culvert.patch(save=True)
        culvert.patch(save=True)  # once more is the same
        safetensors.numpy.save_file({"w": self.want}, self.path("b"))
        self.assertTrue(self.path("b.culvert.json").exists())
        culvert.unpatch()
        culvert.unpatch()
        self.assertIs(safetensors.numpy.save_file, THEIRS[2])

    def test_errors_are_theirs(self):
        culvert.patch()
        self.path("bad").write_bytes(b"x")
        with self.assertRaises(safetensors.SafetensorError):
            safetensors.numpy.load_file(self.path("bad"))
        for wrong in ("cpu", "gpu", -1):
            with self.assertRaises(ValueError):
                culvert.patch(wrong)
        with self.assertRaises(FileNotFoundError):
            culvert.patch(log=self.path("nowhere") / "log")

    def test_other_frameworks(self):
        """Files that are opened for jax and others stay with the safetensors package, and
        so does what it says to a name that is none."""
        culvert.patch()
        for framework in ("flax", "mlx", "tf"):
            with safetensors.safe_open(self.path(), framework=framework) as f:
                self.assertIsInstance(f, THEIRS[0])
                self.assertEqual(list(f.keys()), ["w"])
        with self.assertRaisesRegex(safetensors.SafetensorError, "framework none is invalid"):
            safetensors.safe_open(self.path(), framework="none")

    def test_bfloat16(self):
        """A program with ml_dtypes gets numbers, as from the safetensors package. One
        that knows Culvert gets what it always gets."""
        want = numpy.arange(12).reshape(3, 4).astype(ml_dtypes.bfloat16)
        safetensors.numpy.save_file({"w": want, "one": want[:1, :1].reshape(())}, self.path())
        data = safetensors.numpy.save({"w": want})
        culvert.patch()
        with safetensors.safe_open(self.path(), framework="np") as f:
            part = f.get_slice("w")
            got = [f.get_tensor("w"), f.get_tensors()["w"], part[:], part[1:, ::2], part[[0, 2]], f.get_tensor("one")]
        got += [safetensors.numpy.load_file(self.path())["w"], safetensors.numpy.load(data)["w"]]
        for array, expected in zip(got, [want, want, want, want[1:, ::2], want[[0, 2]], want[0, 0], want, want]):
            self.assertEqual(array.dtype, want.dtype)
            numpy.testing.assert_array_equal(array, expected)
        self.assertEqual(culvert.numpy.load_file(self.path())["w"].dtype, "uint16")

    def run_program(self, *arguments):
        command = [sys.executable, "-m", "culvert", "run", *map(str, arguments)]
        env = {"PYTHONPATH": str(ROOT / "python"), "CULVERT_MACHINE": "soft", "CULVERT_SOFT": "gpus=1,memory=64M,poison=1", "PATH": "/usr/bin:/bin"}
        return subprocess.run(command, cwd=self.dir, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)

    def test_run(self):
        self.path("helper.py").write_text("from safetensors.numpy import load_file\n")
        self.path("program.py").write_text(
            "import sys\nfrom helper import load_file\n"
            "if __name__ == '__main__': print(sys.argv[1:], load_file('model.safetensors')['w'].sum()); sys.exit(3)\n"
        )
        for how in (["program.py"], ["-m", "program"], ["--log", "receipts", "program.py"]):
            done = self.run_program(*how, "--device", "x.py")
            self.assertEqual((done.returncode, done.stdout), (3, "['--device', 'x.py'] 66.0\n"), done.stderr)
            said = self.path("receipts").read_text() if "--log" in how else done.stderr
            self.assertRegex(said, "^culvert: load model.safetensors calls=1 tensors=1 bytes=96 .*route=")
        done = self.run_program("program.py", "--", "x")
        self.assertEqual((done.returncode, done.stdout), (3, "['--', 'x'] 66.0\n"), done.stderr)
        self.assertFalse(_run.is_python(["--report", "r", "--", "python3", "x.py"]))  # for the command
        for wrong, reason in (
            (["--device", "cpu", "program.py"], "want a GPU"), (["nowhere.py"], "nowhere.py: no such file"), ([], "is missing"),
            (["--log", "nowhere/log", "program.py"], "nowhere/log"),
        ):
            done = self.run_program(*wrong)
            self.assertEqual(done.returncode, 2)
            self.assertIn(reason, done.stderr)
            self.assertNotIn("Traceback", done.stderr)
        self.assertIn("culvert.patch", self.run_program("--help").stdout)

    def test_path_of_the_program(self):
        """__file__ is absolute, as Python has it, for programs that change their directory."""
        self.path("program.py").write_text("import os\nos.chdir('/')\nprint(open(__file__).read())\n")
        done = self.run_program("program.py")
        self.assertEqual(done.stdout, self.path("program.py").read_text() + "\n", done.stderr)

    def test_without_safetensors(self):
        with unittest.mock.patch.dict(sys.modules, {"safetensors": None}), self.assertRaisesRegex(ImportError, "pip install safetensors"):
            culvert.patch()
