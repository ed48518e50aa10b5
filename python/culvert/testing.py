"""Breaks the software machine in tests: with culvert.testing.faults("errno=EIO,call=read"): ...

docs/testing.md lists the kinds of faults. A pytest plugin has the same as a fixture:

    def test_retry(culvert_faults):
        culvert_faults("errno=EIO,call=read,nth=1")
        ...
        assert culvert_faults.fired()
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from . import _core


class Faults:
    """Breaks the software machine of this process. Nothing may be transferred while
    faults are set or cleared."""

    def __call__(self, spec: str) -> None:
        """Sets the faults, in place of those before."""
        _core.call("break", spec=spec)

    def fired(self) -> list[str]:
        """Lists the faults that came about since they were set: "SPEC: N times"."""
        return _core.call("fired")["fired"]

    def clear(self) -> None:
        """Ends all faults. What they have broken stays broken."""
        _core.call("break", spec="")


@contextlib.contextmanager
def faults(spec: str) -> Iterator[Faults]:
    """Breaks the software machine inside of a with statement."""
    broken = Faults()
    broken(spec)
    try:
        yield broken
    finally:
        broken.clear()
