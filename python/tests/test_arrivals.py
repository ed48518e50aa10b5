"""Loads that do not block: tensors as they arrive, progress, asyncio."""

import asyncio
import threading
import unittest
import unittest.mock

import numpy
from support import Case, culvert

import culvert.numpy
from culvert import _core, _load


class Arrivals(Case):
    def setUp(self):
        super().setUp()
        self.want = {f"w{i}": numpy.full(1000 * (i + 1), i, numpy.int32) for i in range(20)}
        self.total = sum(a.nbytes for a in self.want.values())
        culvert.save_file(self.want, self.path())

    def same(self, got):
        self.assertEqual(set(got), set(self.want))
        for name, want in self.want.items():
            tensor = got[name].numpy() if isinstance(got[name], culvert.DeviceTensor) else got[name]
            numpy.testing.assert_array_equal(tensor, want)

    def test_stream(self):
        for device in ("cuda:1", "cpu"):
            self.same(dict(culvert.stream(self.path(), device)))
            self.assertEqual(culvert.last_receipt()["tensors"], 20)
        self.assertEqual(list(dict(culvert.stream(self.path(), only="w7"))), ["w7"])

    def test_stream_errors(self):
        with open(self.path(), "r+b") as f:
            f.seek(-4, 2)
            f.write(b"evil")
        with self.assertRaises(culvert.ChecksumError):
            for _ in culvert.stream(self.path(), verify=True):
                pass
        with self.assertRaises(FileNotFoundError):
            next(culvert.stream(self.path("none")))

    def test_leaving_the_loop(self):
        for _ in range(20):  # all in memory at once would be too much
            for name, _ in culvert.stream(self.path(), "cuda:0"):
                self.assertIn(name, self.want)
                break

    def test_leaving_the_loop_with_a_tensor(self):
        """The load is stopped, although the tensor keeps its memory."""
        stopped, stopper = [], _core.stopper

        def counted(memory):
            stop = stopper(memory)
            return lambda: (stop(), stopped.append(_core.call("arrived", memory=memory.number, seen=0, milliseconds=0)["ended"]))

        with unittest.mock.patch.object(_core, "stopper", counted):
            for name, tensor in culvert.stream(self.path(), "cuda:0"):
                break
        self.assertEqual(stopped, [True])
        numpy.testing.assert_array_equal(tensor.numpy(), self.want[name])
        culvert.save_file({name: tensor}, self.path("again"))
        numpy.testing.assert_array_equal(culvert.numpy.load_file(self.path("again"))[name], self.want[name])

    def test_progress(self):
        for device in ("cuda:0", "cpu"):
            seen = []
            self.same(culvert.load_file(self.path(), device, progress=lambda *a: seen.append(a)))
            self.assertEqual(seen[-1], (self.total, self.total))
            self.assertEqual(seen, sorted(seen))

    def test_progress_that_raises(self):
        def progress(done, total):
            raise KeyError("stop")

        with self.assertRaises(KeyError):
            culvert.load_file(self.path(), progress=progress)
        self.same(culvert.load_file(self.path()))

    def test_aload(self):
        async def both():
            return await asyncio.gather(culvert.aload(self.path()), culvert.aload(self.path(), "cpu", only="w3"))

        whole, part = asyncio.run(both())
        self.same(whole)
        self.assertEqual(list(part), ["w3"])
        self.assertEqual(culvert.last_receipt()["op"], "load")

        async def fails():
            await culvert.aload(self.path("none"))

        with self.assertRaises(FileNotFoundError):
            asyncio.run(fails())

    def test_cancelled(self):
        """Cancelling the task stops the call, and waits until it has stopped, also if
        it is cancelled again meanwhile."""
        begun, go, ended = threading.Event(), threading.Event(), []
        real = _core.library()

        class Blocked:
            """The library, whose calls are answered when they are cancelled."""

            def __getattr__(self, name):
                return getattr(real, name)

            def culvert_tensor_begin(self, ticket, request, size):
                begun.set()
                return 0

            def culvert_tensor_wait(self, ticket, milliseconds, reply):
                return -1 if ended and go.wait(60) else -3

            def culvert_tensor_cancel(self, ticket):
                ended.append(ticket)

        async def cancel():
            task = asyncio.ensure_future(culvert.aload(self.path()))
            await asyncio.get_running_loop().run_in_executor(None, begun.wait)
            done = []
            for _ in range(3):
                task.cancel()
                for _ in range(10):  # turns of the loop, in which the task could end
                    await asyncio.sleep(0)
                done.append(task.done())
            go.set()
            self.assertEqual(done, [False] * 3)
            with self.assertRaises(asyncio.CancelledError):
                await task
            self.assertEqual(len(ended), 1)

        with unittest.mock.patch.object(_core, "_library", Blocked()):
            asyncio.run(cancel())

    def test_bar(self):
        try:
            import tqdm  # noqa: F401
        except ImportError:
            with self.assertRaises(ModuleNotFoundError):
                culvert.bar()
            return
        self.same(culvert.load_file(self.path(), progress=culvert.bar(disable=True)))

    def test_arrivals_end(self):
        answer = _core.call("load", path=str(self.path()), gpus=[0])
        memory = _load.Memory(answer)
        numbers = [i for some in _load.arrivals(memory) for i in some]
        self.assertEqual(sorted(numbers), list(range(20)))
