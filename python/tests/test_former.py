"""The removal of former checkpoints: each file once, also after a crash."""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import unittest
import unittest.mock

from support import ROOT

from culvert import _former

OLD = ["__0_old.safetensors", "__0_old.safetensors.culvert.json", "__1_old.safetensors", "__1_orphan.safetensors.culvert.json"]
NEW = ["__0_new.safetensors", "__0_new.safetensors.culvert.json"]
FOREIGN = [".metadata", "weights.safetensors", "weights.safetensors.culvert.json", "__0_old.safetensors.copy"]
USED = {"__0_new.safetensors"}


class Former(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory(prefix="culvert-[x]-")  # a name that is also a pattern
        self.addCleanup(directory.cleanup)
        self.dir = pathlib.Path(directory.name)
        for name in OLD + NEW + FOREIGN:
            (self.dir / name).touch()

    def names(self):
        return sorted(os.listdir(self.dir))

    def unlink(self, **how):
        patch = unittest.mock.patch.object(_former.os, "unlink", **how)
        self.addCleanup(patch.stop)
        return patch.start()

    def run_python(self, code):
        command = [sys.executable, "-c", textwrap.dedent(code), str(self.dir), *USED]
        env = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=600)

    def test_each_once(self):
        unlink = self.unlink(wraps=os.unlink)
        _former.remove(self.dir, lambda: USED)
        _former.wait(self.dir)
        self.assertEqual(self.names(), sorted(NEW + FOREIGN))
        self.assertEqual(sorted(os.path.basename(c.args[0]) for c in unlink.call_args_list), sorted(OLD))
        _former.remove(self.dir, lambda: USED)
        _former.wait(self.dir)
        self.assertEqual(unlink.call_count, len(OLD))

    def test_nobody_waits(self):
        """The save goes on, and what is written meanwhile stays."""
        go, unlink = threading.Event(), os.unlink
        self.unlink(side_effect=lambda path: (go.wait(60), unlink(path)))
        self.addCleanup(_former.wait, self.dir)
        self.addCleanup(go.set)  # runs first
        _former.remove(self.dir, lambda: USED)
        _former.wait(self.dir / "elsewhere")
        self.assertEqual(self.names(), sorted(OLD + NEW + FOREIGN))
        (self.dir / "__0_next.safetensors").touch()
        go.set()
        _former.wait(self.dir)
        self.assertEqual(self.names(), sorted(["__0_next.safetensors"] + NEW + FOREIGN))

    def test_another_completes(self):
        """What became the checkpoint before the removal had the lock stays."""
        used = unittest.mock.Mock(side_effect=[USED, {"__0_old.safetensors"}])
        _former.remove(self.dir, used)
        _former.wait(self.dir)
        self.assertEqual(self.names(), sorted(OLD[:2] + NEW + FOREIGN))

    def test_lock(self):
        """The removal waits for who completes a checkpoint."""
        with _former.locked(self.dir):
            _former.remove(self.dir, lambda: USED)
            self.assertEqual(self.names(), sorted(OLD + NEW + FOREIGN))
        _former.wait(self.dir)
        self.assertEqual(self.names(), sorted(NEW + FOREIGN))

    def test_end_of_process(self):
        """The files are gone when the process has ended, and not before its last line."""
        done = self.run_python(
            """
            import os, sys, threading
            from culvert import _former
            unlink = os.unlink
            os.unlink = lambda path: (threading.main_thread().join(), unlink(path))
            _former.remove(sys.argv[1], lambda: {sys.argv[2]})
            print(len(os.listdir(sys.argv[1])))
            """
        )
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, f"{len(OLD + NEW + FOREIGN)}\n", ""))
        self.assertEqual(self.names(), sorted(NEW + FOREIGN))

    def test_crash(self):
        """A process that is killed during the removal leaves the rest to the next one."""
        done = self.run_python(
            """
            import os, signal, sys
            from culvert import _former
            unlink = os.unlink
            os.unlink = lambda path: (unlink(path), os.kill(os.getpid(), signal.SIGKILL))
            _former.remove(sys.argv[1], lambda: {sys.argv[2]})
            _former.wait(sys.argv[1])
            """
        )
        self.assertEqual(done.returncode, -signal.SIGKILL, done.stderr)
        self.assertEqual(len(self.names()), len(OLD + NEW + FOREIGN) - 1)
        _former.remove(self.dir, lambda: USED)
        _former.wait(self.dir)
        self.assertEqual(self.names(), sorted(NEW + FOREIGN))

    def test_errors(self):
        """A file that cannot be removed is named, and the others are removed."""
        unlink = os.unlink

        def refuse(path):
            if path.endswith(OLD[0]):
                raise PermissionError(1, "Operation not permitted", path)
            unlink(path)
            raise FileNotFoundError(path)  # as if another process had been faster

        self.unlink(side_effect=refuse)
        with unittest.mock.patch.object(_former.warnings, "warn") as warn:
            _former.remove(self.dir, lambda: USED)
            _former.wait(self.dir)
        self.assertEqual(self.names(), sorted([OLD[0]] + NEW + FOREIGN))
        self.assertEqual(warn.call_count, 1)
        self.assertIn(OLD[0], warn.call_args.args[0])

    def test_no_threads(self):
        with unittest.mock.patch.object(_former._Removal, "start", side_effect=RuntimeError("can't start new thread")):
            _former.remove(self.dir, lambda: USED)
        self.assertEqual(self.names(), sorted(NEW + FOREIGN))


if __name__ == "__main__":
    unittest.main()
