"""The culvert command, which comes with the package."""

import os
import sys

from ._errors import CulvertError


def places():
    """Yields where the command may be: in the package, or in bin/ of the source tree."""
    here = os.path.dirname(os.path.abspath(__file__))
    yield os.path.join(here, "bin", "culvert")
    yield os.path.join(here, "..", "..", "bin", "culvert")


def find():
    """Returns the path of the command."""
    tried = [os.path.realpath(path) for path in places()]
    for path in tried:
        if os.path.exists(path):
            return path
    raise CulvertError(f"the culvert command is not at {' or '.join(tried)} (fix: install the wheel, or run make build)")


def main():
    """Becomes the command: signals, exit status and output are its own."""
    try:
        path = find()
    except CulvertError as e:
        sys.exit(f"culvert: {e}")
    os.execv(path, [path, *sys.argv[1:]])
