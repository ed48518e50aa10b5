# The Python package: nothing to build, tests in an environment of their own.
# Included by the Makefile at the root.

PYTHON      ?= python3
PYTHON_VENV ?= bin/python

.PHONY: python-test
## python-test: the Python package against the safetensors package from PyPI
python-test: lib-core $(PYTHON_VENV)/stamp
	CGO_ENABLED=0 go build -trimpath -o bin/culvert ./cmd/culvert
	PYTHONPATH=python PYTHONDONTWRITEBYTECODE=1 $(PYTHON_VENV)/bin/python -W error::ResourceWarning -m unittest discover -s python/tests -t python/tests

# What hardware.py needs on a machine without Go: the package with its library
# inside, the command, and the measurements of package tensor.
.PHONY: python-hardware
## python-hardware: bin/python-hardware, to be run on a machine with a GPU and torch
python-hardware: lib-core
	rm -rf bin/python-hardware && mkdir -p bin/python-hardware/culvert
	cp python/culvert/*.py bin/python-hardware/culvert
	cp $(LIB)/libculvert.so bin/python-hardware/culvert
	cp python/hardware.py bin/python-hardware
	CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" -o bin/python-hardware/culvert-command ./cmd/culvert
	CGO_ENABLED=0 go test -c -trimpath -ldflags "-s -w" -o bin/python-hardware/tensor.test ./tensor

$(PYTHON_VENV)/stamp: python/requirements.txt
	$(PYTHON) -m venv $(PYTHON_VENV)
	$(PYTHON_VENV)/bin/pip install --quiet --disable-pip-version-check -r $<
	touch $@
