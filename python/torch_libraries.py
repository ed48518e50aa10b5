"""Lets torch start without CUDA's mathematics, for tests on the CPU.

    python3 torch_libraries.py ENVIRONMENT

torch for the CPU is not on PyPI. The one that is there needs 2.6 GB of libraries
whose functions only work on a GPU calls. This makes libraries with the same names
and functions, where torch looks for them; a function that is called ends the
process with its name. torch itself is not changed.
"""

import collections
import pathlib
import subprocess
import sys
import tempfile

# By library: the version of its names, or, where they have none, how they begin.
VERSIONS = {
    "libcublas.so.13": "libcublas.so.13",
    "libcublasLt.so.13": "libcublasLt.so.13",
    "libcudnn.so.9": "libcudnn.so.9",
    "libcufft.so.12": "libcufft.so.12",
    "libcupti.so.13": "libcupti.so.13",
    "libcusparse.so.12": "libcusparse.so.12",
    "libnvrtc.so.13": "libnvrtc.so.13",
    "libnvshmem_host.so.3": "NVSHMEM",
}
PREFIXES = {"libcusparseLt.so.0": "cusparseLt", "libnccl.so.2": "nccl"}

PROLOGUE = """
#include <stdio.h>
#include <stdlib.h>
#define FUNCTION(name) void name(void) { fputs(LIBRARY ": " #name " was called, and is not here (python/torch_libraries.py)\\n", stderr); abort(); }
"""


def needed(libraries):
    """Returns the names that torch's libraries need, by the library that has them."""
    names = collections.defaultdict(set)
    for path in libraries.glob("*.so"):
        listed = subprocess.run(["nm", "-D", "--undefined-only", "--with-symbol-versions", path], check=True, capture_output=True, text=True)
        for line in listed.stdout.splitlines():
            name, _, version = line.split()[-1].partition("@")
            for library in (*VERSIONS, *PREFIXES):
                if version == VERSIONS.get(library, "") and name.startswith(PREFIXES.get(library, "")):
                    names[library].add(name)
    return names


def build(library, names, directory):
    """Compiles one library."""
    with tempfile.TemporaryDirectory(prefix="culvert-") as scratch:
        source, script = pathlib.Path(scratch, "names.c"), pathlib.Path(scratch, "names.map")
        source.write_text(PROLOGUE + "".join(f"FUNCTION({name})\n" for name in sorted(names)))
        script.write_text(f"{VERSIONS.get(library, '')} {{ global: *; }};\n")
        command = ["gcc", "-shared", "-fPIC", f'-DLIBRARY="{library}"', f"-Wl,-soname,{library}", f"-Wl,--version-script,{script}"]
        subprocess.run([*command, "-o", directory / library, source], check=True)


def main(environment):
    packages = next(pathlib.Path(environment).glob("lib/python3.*/site-packages"))
    directory = packages / "nvidia" / "cu13" / "lib"
    directory.mkdir(parents=True, exist_ok=True)
    names = needed(packages / "torch" / "lib")
    missing = {*VERSIONS, *PREFIXES} - names.keys()
    if missing:
        raise SystemExit(f"torch needs nothing of {', '.join(sorted(missing))}: torch_libraries.py is for another release")
    for library in names:
        build(library, names[library], directory)


if __name__ == "__main__":
    main(sys.argv[1])
