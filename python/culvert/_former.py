"""Removes the files of former and of unfinished checkpoints, while the program goes on:
on file systems that discard blocks this takes a third of the time to write them."""

import contextlib
import fcntl
import glob
import os
import threading
import warnings

FILES = "__*_*.safetensors"
MANIFEST = ".culvert.json"

_running: set[threading.Thread] = set()


@contextlib.contextmanager
def locked(directory):
    """Keeps other processes from completing a checkpoint in the directory, and from
    removing files there. Some network file systems have no such locks."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def remove(directory, used):
    """Begins to remove the files of all checkpoints but the one whose files used()
    returns, now and when the removal has the lock: another save may have completed
    until then. The process does not end before they are removed. What a crash leaves,
    or an error, the next call removes."""
    directory = os.path.realpath(directory)
    # Listed now: whatever the next save writes is not among them.
    names = glob.glob(FILES, root_dir=directory) + glob.glob(FILES + MANIFEST, root_dir=directory)
    others = _without(names, used())
    if not others:
        return
    thread = _Removal(directory, others, used)
    try:
        thread.start()
    except RuntimeError:  # no more threads
        thread.run()
        return
    _running.add(thread)


def _without(names, used):
    return [name for name in names if name.removesuffix(MANIFEST) not in used]


def wait(directory):
    """Returns when no files are being removed in the directory, so that their space
    is free."""
    directory = os.path.realpath(directory)
    for thread in list(_running):
        if thread.directory == directory:
            thread.join()
        if not thread.is_alive():
            _running.discard(thread)


class _Removal(threading.Thread):
    def __init__(self, directory, names, used):
        super().__init__(name="culvert-removal", daemon=False)
        self.directory, self.names, self.used = directory, names, used

    def run(self):
        try:
            with locked(self.directory):
                for name in _without(self.names, self.used()):
                    self.unlink(name)
        except FileNotFoundError:
            pass  # the directory was removed
        except Exception as e:  # pickle raises anything
            warnings.warn(f"a former checkpoint stays until the next save: {e}")

    def unlink(self, name):
        try:
            os.unlink(os.path.join(self.directory, name))
        except FileNotFoundError:
            pass  # somebody else removed it
        except OSError as e:
            warnings.warn(f"a former checkpoint stays until the next save: {e}")
