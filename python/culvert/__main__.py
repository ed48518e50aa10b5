"""python -m culvert: the culvert command, and "run" for Python programs."""

import sys

from . import _command, _run

if sys.argv[1:2] == ["run"] and _run.is_python(sys.argv[2:]):
    _run.main(sys.argv[2:])
else:
    _command.main()
