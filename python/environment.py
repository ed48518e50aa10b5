"""Makes a virtual environment with packages from PyPI, if it is not there yet.

    python3 environment.py DIRECTORY REQUIREMENTS [OPTION OF PIP INSTALL...]

Downloads are tried three times. Exits with status 75 if all fail, so that tests
can tell a registry that is down from a failure of their own.
"""

import pathlib
import subprocess
import sys
import venv

TRIES = 3
UNREACHABLE = 75  # EX_TEMPFAIL


def install(python, *arguments):
    """Runs pip install, and returns why it failed, or None."""
    command = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *map(str, arguments)]
    for _ in range(TRIES):
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode == 0:
            return None
    return f"pip install failed {TRIES} times: {done.stdout.strip()[-2000:]}"


def ensure(directory, requirements, *options):
    """Returns the environment's Python, and why it could not be made, or None."""
    directory, wanted = pathlib.Path(directory), pathlib.Path(requirements).read_text()
    python, stamp = directory / "bin" / "python", directory / "stamp"
    if stamp.exists() and stamp.read_text() == wanted:
        stamp.touch()  # make compares times
        return python, None
    venv.create(directory, with_pip=True, clear=True)
    reason = install(python, *options, "-r", requirements)
    if reason is None:
        stamp.write_text(wanted)
    return python, reason


if __name__ == "__main__":
    _, reason = ensure(*sys.argv[1:])
    if reason:
        print(reason, file=sys.stderr)
        sys.exit(UNREACHABLE)
