"""python -m culvert run: a Python program whose safetensors functions are Culvert's."""

import argparse
import itertools
import os
import runpy
import sys

from ._patch import patch

NAME = "python -m culvert run"


def is_python(arguments):
    """Whether the arguments after "run" are for this module. Those of the culvert
    command run a C program: culvert run -- PROGRAM."""
    own = itertools.takewhile(lambda a: a != "--", arguments)  # a program may have a "--" among its arguments
    return arguments in ([], ["-h"], ["--help"]) or any(a == "-m" or a.endswith(".py") for a in own)


def main(arguments):
    parser = argparse.ArgumentParser(
        NAME, usage=f"{NAME} [--device cuda:0] [--save] [--log FILE] SCRIPT.py|-m MODULE [ARGUMENT...]",
        description="Run a Python program whose safetensors functions are Culvert's (culvert.patch). "
        "Receipts are written to standard error at exit. Other programs are run by: culvert run -- PROGRAM",
    )
    parser.add_argument("--device", help="GPU for files that the program opens for the CPU")
    parser.add_argument("--save", action="store_true", help="save through Culvert, too")
    parser.add_argument("--log", help="file for the receipts (default standard error)")
    parser.add_argument("-m", dest="module", help="module to run")
    at = next((i for i, a in enumerate(arguments) if a == "-m" or a.endswith(".py")), len(arguments))
    end = at + 2 if arguments[at : at + 1] == ["-m"] else at
    options = parser.parse_args(arguments[:end])
    if at == len(arguments):
        parser.error("SCRIPT.py or -m MODULE is missing")
    program = [options.module or arguments[at], *arguments[max(end, at + 1) :]]
    if not options.module and not os.path.exists(program[0]):
        parser.error(f"{program[0]}: no such file")
    try:
        patch(options.device, save=options.save, log=options.log or sys.stderr)
    except (ImportError, ValueError, OSError) as e:
        parser.error(str(e))
    sys.argv = program
    if options.module:
        runpy.run_module(options.module, run_name="__main__", alter_sys=True)
    else:
        path = os.path.abspath(program[0])  # Python has it so in __file__
        sys.path[0] = os.path.dirname(path)
        runpy.run_path(path, run_name="__main__")
