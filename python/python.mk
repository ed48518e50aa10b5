# The Python package: nothing to build, tests in an environment of their own.
# Included by the Makefile at the root.

PYTHON      ?= python3
PYTHON_VENV ?= bin/python

.PHONY: python-test
## python-test: the Python package against the safetensors package from PyPI
python-test: lib-core $(PYTHON_VENV)/stamp
	CGO_ENABLED=0 go build -trimpath -o bin/culvert ./cmd/culvert
	PYTHONPATH=python PYTHONDONTWRITEBYTECODE=1 $(PYTHON_VENV)/bin/python -W error::ResourceWarning -m unittest discover -s python/tests -t python/tests

$(PYTHON_VENV)/stamp: python/requirements.txt
	$(PYTHON) -m venv $(PYTHON_VENV)
	$(PYTHON_VENV)/bin/pip install --quiet --disable-pip-version-check -r $<
	touch $@
