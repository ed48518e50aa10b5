# The Python package: its tests and its wheel, in environments of their own.
# Included by the Makefile at the root.

PYTHON      ?= python3
PYTHON_VENV ?= bin/python
PYTHON_TORCH ?= bin/python-torch
WHEEL_TOOLS ?= bin/wheel-tools

.PHONY: python-test
## python-test: the Python package against the safetensors package from PyPI
python-test: lib-core $(PYTHON_VENV)/stamp
	CGO_ENABLED=0 go build -trimpath -o bin/culvert ./cmd/culvert
	PYTHONPATH=python PYTHONDONTWRITEBYTECODE=1 $(PYTHON_VENV)/bin/python -W error::ResourceWarning -m unittest discover -s python/tests -t python/tests

# Importing torch takes seconds where its bytecode is not kept, and many processes do.
.PHONY: python-torch-test
## python-torch-test: with torch, transformers and safetensors' own tests (0.6 GB from PyPI)
python-torch-test: lib-core $(PYTHON_TORCH)/ready
	export PYTHONDONTWRITEBYTECODE= PYTHONPYCACHEPREFIX=$(CURDIR)/$(PYTHON_TORCH)/bytecode; \
	PYTHONPATH=python:python/tests $(PYTHON_TORCH)/bin/python -m unittest test_torch test_software test_suite && \
	PYTHONPATH=python $(PYTHON_TORCH)/bin/python -m unittest discover -s python/torch_tests -t python/torch_tests

# What hardware.py needs on a machine without Go: the package with its library
# inside, the command, and the measurements of package tensor.
.PHONY: python-hardware
## python-hardware: bin/python-hardware, to be run on a machine with a GPU and torch
python-hardware: lib-core
	rm -rf bin/python-hardware && mkdir -p bin/python-hardware/culvert/lib
	cp python/culvert/*.py bin/python-hardware/culvert
	cp $(LIB)/libculvert.so bin/python-hardware/culvert/lib
	cp python/hardware*.py bin/python-hardware
	CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" -o bin/python-hardware/culvert-command ./cmd/culvert
	CGO_ENABLED=0 go test -c -trimpath -ldflags "-s -w" -o bin/python-hardware/tensor.test ./tensor

# Zig links against an old glibc: needed here, and by no other target.
.PHONY: wheel wheel-test
## wheel: the wheel for all Linux of glibc 2.28 and later, and the sdist, into bin/wheel
wheel: $(WHEEL_TOOLS)/stamp
	$(WHEEL_TOOLS)/bin/python python/wheel.py bin/wheel

## wheel-test: build the wheel and try it in empty environments
wheel-test:
	PYTHONDONTWRITEBYTECODE=1 $(PYTHON) python/wheel_test.py

$(PYTHON_VENV)/stamp: python/requirements.txt
	$(PYTHON) python/environment.py $(PYTHON_VENV) $<

clients: $(PYTHON_TORCH)/ready

# gcc makes the libraries.
$(PYTHON_TORCH)/ready: python/torch-requirements.txt python/torch_libraries.py | deps
	$(PYTHON) python/environment.py $(PYTHON_TORCH) $< --no-deps --no-compile
	$(PYTHON) python/torch_libraries.py $(PYTHON_TORCH)
	touch $@

$(WHEEL_TOOLS)/stamp: python/wheel-requirements.txt
	$(PYTHON) python/environment.py $(WHEEL_TOOLS) $<
