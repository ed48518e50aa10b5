"""The library in a process: forks, interrupts, leaks, other releases."""

import ctypes.util
import gc
import importlib.util
import os
import pathlib
import pickle
import signal
import subprocess
import sys
import textwrap
import threading

import numpy
from support import ROOT, Case, culvert

from culvert import _core
from culvert._open import OutOfRange


def python(code, *args, **env):
    return [sys.executable, "-c", textwrap.dedent(code), *map(str, args)], {**os.environ, "PYTHONPATH": str(ROOT / "python"), **env}


class Process(Case):
    def setUp(self):
        super().setUp()
        # A shell ignores the signal for what it runs in the background, and that is inherited.
        self.addCleanup(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, signal.default_int_handler))
        culvert.save_file({"w": numpy.arange(1 << 20, dtype=numpy.uint8), "v": numpy.zeros(5)}, self.path())

    def run_python(self, code, *args, **env):
        command, environment = python(code, *args, **env)
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)

    def test_fork(self):
        done = self.run_python(
            """
            import os, sys, culvert
            path = sys.argv[1]
            tensors = culvert.load_file(path)
            pid = os.fork()
            if pid == 0:
                try:
                    tensors["w"].numpy()
                except culvert.ForkError as e:
                    assert "spawn" in str(e)
                else:
                    os._exit(1)
                for again in (lambda: culvert.load_file(path, "cpu"), lambda: culvert.attach("/nowhere")):
                    try:
                        again()
                    except culvert.ForkError:
                        continue
                    os._exit(2)
                del tensors
                sys.exit(0)
            assert os.waitpid(pid, 0)[1] == 0
            assert tensors["w"].numpy().sum() > 0
            """,
            self.path(), PYTHONWARNINGS="ignore::DeprecationWarning",  # of Python 3.12 and later: there are threads
        )
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_fork_in_a_pool(self):
        """The exception of a worker reaches the parent. One that cannot be unpickled
        would end the thread that takes the results, and the pool would wait for ever."""
        done = self.run_python(
            """
            import multiprocessing, sys, culvert
            culvert.load_file(sys.argv[1], "cpu")
            with multiprocessing.get_context("fork").Pool(1) as pool:
                try:
                    pool.apply(culvert.load_file, (sys.argv[1], "cpu"))
                except culvert.ForkError as e:
                    assert "spawn" in str(e)
                else:
                    sys.exit("no error")
            """,
            self.path(),
        )
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_exceptions_can_be_pickled(self):
        kinds = [getattr(culvert, name) for name in culvert.__all__ if name.endswith("Error")]
        self.assertGreater(len(kinds), 6)
        for e in (*(kind("a text") for kind in kinds), culvert.ForkError(), OutOfRange("row 7")):
            again = pickle.loads(pickle.dumps(e))
            self.assertEqual((type(again), str(again)), (type(e), str(e)))

    def test_fork_before_use(self):
        done = self.run_python(
            """
            import os, sys, culvert
            if os.fork() == 0:
                culvert.load_file(sys.argv[1])["w"].numpy()
                sys.exit(0)
            assert os.wait()[1] == 0
            culvert.load_file(sys.argv[1])["w"].numpy()
            """,
            self.path(),
        )
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_interpreters_share_no_tickets(self):
        """Each interpreter of a process has its own copy of the module, and all share
        the library, which knows a call by its ticket."""
        spec = importlib.util.spec_from_file_location("culvert._core", _core.__file__)
        another = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(another)
        ours, theirs = next(_core._tickets), next(another._tickets)
        self.assertGreater(abs(ours - theirs), 1 << 20)
        self.assertLess(max(ours, theirs), 1 << 63)

    def test_import_is_light(self):
        """Importing starts no Go runtime, and neither numpy nor torch."""
        done = self.run_python(
            """
            import sys, threading, os, culvert
            assert "numpy" not in sys.modules and "torch" not in sys.modules
            assert "libculvert" not in open("/proc/self/maps").read()
            """
        )
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_cache(self):
        """cache= reaches the reads of load_file and of stream, on a machine whose routes
        go through host memory."""
        done = self.run_python(
            """
            import os, sys, culvert
            path = sys.argv[1]

            def cold(load, **options):
                with open(path, "rb") as f:
                    os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                load(path, **options)
                return culvert.last_receipt()["files"][0]["receipt"]["page_cache"]

            def stream(*arguments, **options):
                return dict(culvert.stream(*arguments, **options))

            for load in culvert.load_file, stream:
                keep, avoid = cold(load, cache="keep"), cold(load, cache="avoid")
                assert keep["bypassed"] == avoid["filled"] == 0, (keep, avoid)
                assert bool(keep["filled"]) == bool(avoid["bypassed"]), (keep, avoid)  # on tmpfs all are hits
                for device, mode, why in ("cuda:0", "never", "auto, keep, avoid"), ("cpu", "avoid", "host memory"):
                    try:
                        load(path, device, cache=mode)
                    except culvert.RequestError as e:
                        assert why in str(e), e
                    else:
                        sys.exit(f"{mode} on {device} was accepted")
            """,
            self.path(), CULVERT_SOFT="without=nvidia-fs",
        )
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_exit_with_tensors_alive(self):
        done = self.run_python(
            """
            import sys, culvert
            tensors = culvert.load_file(sys.argv[1])
            capsules = culvert._core.capsules(tensors["w"]._memory, 0, 2)
            opened = culvert.safe_open(sys.argv[1])
            """,
            self.path(),
        )
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_interrupt(self):
        command, environment = python(
            """
            import signal, sys, culvert
            culvert.load_file(sys.argv[1], "cpu")  # numpy makes an ImportError of an interrupt of its import
            signal.signal(signal.SIGINT, signal.default_int_handler)
            print("ready", flush=True)
            while True:
                culvert.load_file(sys.argv[1], "cpu")
                culvert.load_file(sys.argv[1])
            """,
            self.path(),
        )
        child = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        child.stdout.readline()
        # An interrupt that comes while an object is finalised is printed and forgotten.
        errors = None
        for _ in range(60):
            child.send_signal(signal.SIGINT)
            try:
                _, errors = child.communicate(timeout=10)
                break
            except subprocess.TimeoutExpired:
                continue
        self.assertIsNotNone(errors, "it goes on")
        self.assertIn("KeyboardInterrupt", errors)

    def test_interrupt_cancels(self):
        """The call is stopped before the interrupt goes on, and what it has
        brought all the same is given back."""
        for status, text in ((-1, b'{"error":"cancelled","kind":"cancelled"}'), (0, b'{"memory":77}')):
            lib = Blocking(status, text)
            with self.assertRaises(KeyboardInterrupt):
                _core._patiently(lib, b"{}")
            self.assertTrue(lib.returned)
            self.assertEqual(lib.released, [77] if status == 0 else [])
            self.assertTrue(lib.freed)

    def test_other_libraries(self):
        libc = ctypes.CDLL(ctypes.util.find_library("c"))._name
        real = os.path.realpath(f"/proc/self/map_files/{mapped(libc)}")
        done = self.run_python('import culvert; culvert.load_file("x", "cpu")', CULVERT_LIB=real)
        self.assertIn("is of another release", done.stderr)
        done = self.run_python('import culvert; culvert.load_file("x", "cpu")', CULVERT_LIB=str(self.dir))
        self.assertIn("fix: run make lib, or set CULVERT_LIB", done.stderr)
        done = self.run_python('import culvert; culvert._core.ABI = 99; culvert.load_file("x", "cpu")')
        self.assertIn("this package 99 (fix: install both from one release)", done.stderr)

    def test_leaks(self):
        def once():
            for device in ("cpu", "cuda:0"):
                culvert.load_file(self.path(), device)
            with culvert.safe_open(self.path(), "np", "cuda:1") as f:
                f.get_slice("w")[5:1000].numpy()
            culvert.save_file({"a": numpy.ones(10)}, self.path("other"))
            for wrong in (self.path("none"), self.dir / "other.culvert.json"):
                try:
                    culvert.load_file(wrong)
                except (OSError, culvert.CulvertError):
                    pass

        def resident():
            gc.collect()
            return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

        for _ in range(10):
            once()
        files, threads, memory = len(os.listdir("/proc/self/fd")), threading.active_count(), resident()
        for _ in range(100):
            once()
        self.assertLessEqual(len(os.listdir("/proc/self/fd")), files)
        self.assertLessEqual(threading.active_count(), threads)
        # 100 loads of a MiB on both sides would be 200 MiB.
        self.assertLess(resident() - memory, 48 << 20)


def mapped(name):
    """The range under which the first mapping of a library appears in /proc."""
    for line in pathlib.Path("/proc/self/maps").read_text().splitlines():
        if name in line:
            return line.split()[0]
    raise LookupError(name)


class Blocking:
    """A library whose call is not answered until it is cancelled."""

    def __init__(self, status, text):
        self.status, self.text = status, ctypes.create_string_buffer(text)
        self.cancelled = self.returned = self.freed = False
        self.released = []

    def culvert_tensor_begin(self, ticket, request, size):
        self.ticket = ticket
        return 0

    def culvert_tensor_wait(self, ticket, milliseconds, reply):
        assert ticket == self.ticket and not self.returned
        if not self.cancelled:
            os.kill(os.getpid(), signal.SIGINT)
            return -3
        reply._obj.value = ctypes.addressof(self.text)
        self.returned = True
        return self.status

    def culvert_tensor_cancel(self, ticket):
        self.cancelled = True

    def culvert_tensor_free(self, reply):
        self.freed = True

    def culvert_tensor_release(self, number):
        self.released.append(number)
