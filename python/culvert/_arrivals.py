"""Loads that do not block: tensors as they arrive, progress, asyncio."""

import asyncio
import contextvars
import functools
import threading

from . import _core, _load, _receipt
from ._device import Memory


def stream(filename, device="cuda:0", *, plan="", only=(), rules=(), order="file", verify=False, progress=None):
    """Yields (name, tensor) as soon as each tensor is complete, while others are
    still in flight; see load_file. Leaving the loop stops the load."""
    into, gpu = _load.framework(), _load.parse_device(device)
    part = {"plan": plan, "only": _load.patterns(only), "rules": _load.patterns(rules), "order": order}
    if gpu is None:  # host memory is filled by one call
        yield from _load.load(into, filename, device, verify, progress=progress, **part).items()
        return
    answer = _core.call("load", path=_core.path_of(filename), gpus=[gpu], verify=verify, **part)
    memory, infos = Memory(answer), answer["tensors"]
    tensors = _load.on_device(memory, infos, into)
    for numbers in _load.arrivals(memory, progress):
        for i in numbers:
            yield infos[i]["name"], _load.given([tensors[i]], into)[0]
    _receipt.remember(_core.call("finish", memory=memory.number)["receipt"])


async def aload(filename, device="cuda:0", **options):
    """load_file for asyncio: other tasks run meanwhile, and cancelling the task
    cancels the load."""
    stop = threading.Event()
    context = contextvars.copy_context()
    context.run(_core.stopping.set, stop)
    load = functools.partial(context.run, _loaded, filename, device, options)
    work = asyncio.get_running_loop().run_in_executor(None, load)
    try:
        tensors, receipt = await asyncio.shield(work)
    except asyncio.CancelledError:
        stop.set()
        await asyncio.wait([work])  # the memory is free when the task ends
        work.exception()
        raise
    _receipt.keep(receipt)
    return tensors


def _loaded(filename, device, options):
    return _load.load_file(filename, device, **options), _receipt.last_receipt()


def bar(**options):
    """Returns a progress function that draws a tqdm bar, which must be installed."""
    from tqdm.auto import tqdm

    shown = tqdm(**{"unit": "B", "unit_scale": True, "desc": "load", **options})

    def advance(done, total):
        shown.total = total
        shown.update(min(done, total) - shown.n)
        if done >= total:
            shown.close()

    return advance
