"""python -m culvert: the culvert command."""

from ._command import main

main()
