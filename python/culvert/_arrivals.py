"""Loads that do not block: tensors as they arrive, progress, asyncio."""

from __future__ import annotations

import contextlib
import contextvars
import functools
import threading
from typing import TYPE_CHECKING, Any

from . import _core, _load, _receipt
from ._device import Memory

if TYPE_CHECKING:
    from collections.abc import Iterator

    from . import _types


def stream(
    filename: _types.Path, device: _types.Device = "cuda:0", *, plan: str = "", only: _types.Patterns = (), rules: _types.Patterns = (),
    order: str = "file", verify: bool = False, cache: str = "auto", progress: _types.Progress | None = None,
) -> Iterator[tuple[str, Any]]:
    """Yields (name, tensor) as soon as each tensor is complete, while others are
    still in flight; see load_file. Leaving the loop stops the load."""
    into, gpu = _load.framework(), _load.parse_device(device)
    part = {"plan": plan, "only": _load.patterns(only), "rules": _load.patterns(rules), "order": order, "cache": cache}
    if gpu is None:  # host memory is filled by one call
        yield from _load.load(into, filename, device, verify, progress=progress, **part).items()
        return
    answer = _core.call("load", path=_core.path_of(filename), gpus=[gpu], verify=verify, **part)
    memory, infos = Memory(answer), answer["tensors"]
    stop = _core.stopper(memory)
    try:
        tensors = _load.on_device(memory, infos, into)
        for numbers in _load.arrivals(memory, progress):
            for i in numbers:
                yield infos[i]["name"], _load.given([tensors[i]], into)[0]
    except BaseException:  # the loop was left, perhaps with tensors, of which each keeps the load
        stop()
        raise
    _receipt.remember(_core.call("finish", memory=memory.number)["receipt"])


async def aload(filename: _types.Path, device: _types.Devices = "cuda:0", **options: Any) -> Any:
    """load_file for asyncio: other tasks run meanwhile, and cancelling the task
    cancels the load."""
    import asyncio  # takes 40 ms, and a program with tasks has it already

    stop = threading.Event()
    context = contextvars.copy_context()
    context.run(_core.stopping.set, stop)
    load = functools.partial(context.run, _loaded, filename, device, options)
    work = asyncio.get_running_loop().run_in_executor(None, load)
    try:
        tensors, receipt = await asyncio.shield(work)
    except asyncio.CancelledError:
        stop.set()
        while not work.done():  # the memory is free when the task ends
            with contextlib.suppress(asyncio.CancelledError):  # again, as a timeout in a cancelled task does
                await asyncio.wait([work])
        work.exception()
        raise
    _receipt.keep(receipt)
    return tensors


def _loaded(filename, device, options):
    return _load.load_file(filename, device, **options), _receipt.last_receipt()


def bar(**options: Any) -> _types.Progress:
    """Returns a progress function that draws a tqdm bar, which must be installed."""
    try:
        from tqdm.auto import tqdm
    except ModuleNotFoundError as e:
        raise ModuleNotFoundError("culvert.bar draws with tqdm, which is not installed (fix: pip install tqdm)", name=e.name) from None

    shown = tqdm(**{"unit": "B", "unit_scale": True, "desc": "load", **options})

    def advance(done, total):
        shown.total = total
        shown.update(min(done, total) - shown.n)
        if done >= total:
            shown.close()

    return advance
