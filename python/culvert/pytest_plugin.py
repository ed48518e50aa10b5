"""Fixtures for pytest; the package registers them as a plugin."""

import pytest

from .testing import Faults


@pytest.fixture
def culvert_faults():
    """Breaks the software machine: culvert_faults("errno=EIO,call=read,nth=1"). The
    faults end with the test. It needs CULVERT_MACHINE=soft before the first load."""
    broken = Faults()
    yield broken
    broken.clear()
