"""Removes the files of former and of unfinished checkpoints, while the program goes on:
on file systems that discard blocks this takes a third of the time to write them."""

import glob
import os
import threading
import warnings

FILES = "__*_*.safetensors"
MANIFEST = ".culvert.json"

_running: set[threading.Thread] = set()


def remove(directory, used):
    """Begins to remove the files of all checkpoints but the one whose files are used.
    The process does not end before they are removed. What a crash leaves, or an
    error, the next call removes."""
    directory = os.path.realpath(directory)
    # Listed now: whatever the next save writes is not among them.
    names = glob.glob(FILES, root_dir=directory) + glob.glob(FILES + MANIFEST, root_dir=directory)
    others = [os.path.join(directory, name) for name in names if name.removesuffix(MANIFEST) not in used]
    if not others:
        return
    thread = _Removal(directory, others)
    try:
        thread.start()
    except RuntimeError:  # no more threads
        thread.run()
        return
    _running.add(thread)


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
    def __init__(self, directory, paths):
        super().__init__(name="culvert-removal", daemon=False)
        self.directory, self.paths = directory, paths

    def run(self):
        for path in self.paths:
            try:
                os.unlink(path)
            except FileNotFoundError:
                pass  # somebody else removed it
            except OSError as e:
                warnings.warn(f"a former checkpoint stays until the next save: {e}")
