"""Calls into libculvert.so: requests and answers are JSON, memory is an address."""

from __future__ import annotations

import contextvars
import ctypes
import itertools
import json
import os
import threading
from typing import Any

from ._errors import CulvertError, ForkError, exception

ABI = 5

_FAILED = -1
_FORKED = -2
_PENDING = -3

# Operations that may take long: they wait for the machine, bytes or a server, as all
# do with the path of an object. This side waits in turns, between which Ctrl-C reaches
# the main thread.
_LONG = {"arrived", "attach", "fill", "finish", "load", "read", "save"}
_TURN_MS = 100

# An event that ends the long calls of this context, if it is set.
stopping: contextvars.ContextVar[threading.Event | None] = contextvars.ContextVar("stopping", default=None)

_lock = threading.Lock()
_library = None
# The library knows a call by its ticket. It is one for all interpreters of a process,
# and this module is not: mod_wsgi gives each application an interpreter.
_tickets = itertools.count(int.from_bytes(os.urandom(7), "little"))


def places():
    """Yields the search paths of the library."""
    here = os.path.dirname(os.path.abspath(__file__))
    env = os.environ.get("CULVERT_LIB")
    if env:
        yield os.path.join(env, "libculvert.so") if os.path.isdir(env) else env
        return
    yield os.path.join(here, "lib", "libculvert.so")
    yield os.path.join(here, "..", "..", "lib", "libculvert.so")
    yield "/usr/local/lib/culvert/libculvert.so"
    yield "/usr/lib/culvert/libculvert.so"


def library():
    """Returns the library, which is loaded at first use."""
    global _library
    if _library is None:
        with _lock:
            if _library is None:
                _library = _load()
    return _library


def _load():
    tried = []
    for path in places():
        path = os.path.realpath(path)
        if os.path.exists(path):
            return _declare(ctypes.CDLL(path), path)
        tried.append(path)
    raise CulvertError(f"libculvert.so not found at {' or '.join(tried)} (fix: run make lib, or set CULVERT_LIB)")


def _declare(lib, path):
    try:
        have = lib.culvert_tensor_abi
    except AttributeError:
        raise CulvertError(f"{path} is of another release: it has no functions for Python (fix: install both from one release)") from None
    have.restype = ctypes.c_int64
    if have() != ABI:
        raise CulvertError(f"{path} has interface version {have()}, this package {ABI} (fix: install both from one release)")
    u64, text = ctypes.c_uint64, ctypes.c_void_p  # the address of a reply is needed to free it
    reply = ctypes.POINTER(text)
    for name, result, arguments in (
        ("call", ctypes.c_int64, [ctypes.c_char_p, u64, reply]),
        ("begin", ctypes.c_int64, [u64, ctypes.c_char_p, u64]),
        ("wait", ctypes.c_int64, [u64, u64, reply]),
        ("cancel", None, [u64]),
        ("copy", ctypes.c_int64, [u64, u64, u64, ctypes.c_void_p, u64, reply]),
        ("read", ctypes.c_int64, [u64, u64, u64, ctypes.c_void_p, u64, reply]),
        ("dlpack", ctypes.c_int64, [u64, u64, u64, ctypes.POINTER(ctypes.c_void_p), reply]),
        ("drop", None, [ctypes.c_void_p]),
        ("release", None, [u64]),
        ("free", None, [ctypes.c_void_p]),
    ):
        function = getattr(lib, "culvert_tensor_" + name)
        function.restype, function.argtypes = result, arguments
    _tell_environment(lib)
    return lib


_NETWORK = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR")


def _tell_environment(lib):
    """Passes the current environment to the core: a Go library sees that of the
    process's start, but programs set variables later."""
    names = {n: v for n, v in os.environ.items() if n.startswith(("CULVERT_", "AWS_")) or n.upper() in _NETWORK}
    _ask(lib, json.dumps({"op": "environment", "variables": names}).encode())


def _take(lib, status, reply):
    """Returns the answer of a call, or raises its exception."""
    text = None
    if reply.value:
        text = ctypes.string_at(reply.value).decode()  # json would first guess the encoding of bytes
        lib.culvert_tensor_free(reply)
    if status == _FORKED:
        raise ForkError()
    answer = json.loads(text) if text else None
    if status == _FAILED:
        raise exception(answer or {"kind": "memory", "error": "out of host memory"})
    return answer


def call(op, quick=False, **fields):
    """Calls the core and returns its answer. A quick call is not interrupted."""
    lib = library()
    fields["op"] = op
    request = json.dumps(fields).encode()
    remote = "://" in fields.get("path", "")
    if remote:
        _tell_environment(lib)  # which may name the store and its keys by now
    if (op in _LONG or remote) and not quick:
        return _take(lib, *_patiently(lib, request))
    return _ask(lib, request)


def _ask(lib, request):
    reply = ctypes.c_void_p()
    status = lib.culvert_tensor_call(request, len(request), ctypes.byref(reply))
    return _take(lib, status, reply)


def _patiently(lib, request):
    """Makes a call that may take long, and cancels it if this thread is interrupted."""
    ticket, reply, status = next(_tickets), ctypes.c_void_p(), _PENDING
    try:
        if lib.culvert_tensor_begin(ticket, request, len(request)) == _FORKED:
            return _FORKED, reply
        stop = stopping.get()
        while status == _PENDING:
            if stop is not None and stop.is_set():
                raise CulvertError("the call was cancelled")
            status = lib.culvert_tensor_wait(ticket, _TURN_MS, ctypes.byref(reply))
    except BaseException:
        # If it has not begun, the core returns an error at once.
        lib.culvert_tensor_cancel(ticket)
        while status == _PENDING:
            status = lib.culvert_tensor_wait(ticket, _TURN_MS, ctypes.byref(reply))
        if status == 0:
            _discard(lib, reply)
        elif reply.value:
            lib.culvert_tensor_free(reply)
        raise
    return status, reply


def _discard(lib, reply):
    """Releases the objects of a call that was interrupted too late."""
    answer = _take(lib, 0, reply) or {}
    for kind in ("memory", "model", "plan"):
        if isinstance(answer.get(kind), int):  # an attached model has a name
            lib.culvert_tensor_release(answer[kind])


class Handle:
    """An object of the core, released with its last reference in Python."""

    def __init__(self, number):
        self._release = library().culvert_tensor_release
        self.number = number

    def __reduce__(self):
        raise TypeError("what Culvert has loaded or attached cannot be pickled (fix: load it, or attach to it, in each process)")

    def __del__(self):
        if getattr(self, "number", 0):
            self._release(self.number)
            self.number = 0


def stopper(memory):
    """Returns a function that stops a load while its tensors are in use. It needs no
    global names: a generator that the end of the process closes has none any more."""
    lib, ticket, reply = library(), next(_tickets), ctypes.c_void_p()
    request = json.dumps({"op": "finish", "memory": memory.number}).encode()
    size, answer, turn, forked, pending = len(request), ctypes.byref(reply), _TURN_MS, _FORKED, _PENDING

    def stop():
        if lib.culvert_tensor_begin(ticket, request, size) == forked:
            return
        lib.culvert_tensor_cancel(ticket)  # and with the call what it waits for
        while lib.culvert_tensor_wait(ticket, turn, answer) == pending:
            pass
        lib.culvert_tensor_free(reply)

    return stop


def copy(memory, index, offset, address, size):
    """Copies bytes of a loaded tensor into host memory."""
    lib, reply = library(), ctypes.c_void_p()
    status = lib.culvert_tensor_copy(memory.number, index, offset, address, size, ctypes.byref(reply))
    _take(lib, status, reply)


def read(model, index, offset, address, size):
    """Reads bytes of a tensor of an open model into host memory. It is not interrupted."""
    lib, reply = library(), ctypes.c_void_p()
    status = lib.culvert_tensor_read(model.number, index, offset, address, size, ctypes.byref(reply))
    if status:
        _take(lib, status, reply)


_DLTENSOR = b"dltensor"

# A separate prototype: all users of ctypes.pythonapi share its attributes.
_new_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", ctypes.pythonapi)
)


def capsules(memory, first, count):
    """Returns DLPack capsules of loaded tensors, each with a reference to the memory."""
    lib, reply = library(), ctypes.c_void_p()
    views = (ctypes.c_void_p * count)()
    status = lib.culvert_tensor_dlpack(memory.number, first, count, views, ctypes.byref(reply))
    _take(lib, status, reply)
    new, drop = _new_capsule, ctypes.cast(lib.culvert_tensor_drop, ctypes.c_void_p)
    return [new(view, _DLTENSOR, drop) for view in views]


def path_of(filename):
    """Returns a path as text for a request."""
    path = os.fspath(filename)
    if not path:
        raise ValueError("the path is empty")
    if isinstance(path, bytes):
        path = os.fsdecode(path)
    try:
        path.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{path!r}: the path is not UTF-8") from None
    return path


def machine() -> dict[str, Any]:
    """Describes the machine that Culvert uses: real or software, why, and its GPUs."""
    return call("machine")
