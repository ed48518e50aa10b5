#!/bin/sh
# Runs what "make clients-hardware" packed, on a machine with a GPU, Python with
# torch and numpy, and no network: see bench.py.
#
#	run.sh SCRATCH OUT [ROWS]
exec "${PYTHON:-python3}" "$(dirname "$0")/bench.py" "$@"
