"""Builds the wheel that is published, and checks it: "make wheel".

    bin/wheel-tools/bin/python python/wheel.py bin/wheel

Zig is the C compiler, because it links against the glibc of any year: gcc takes
this machine's. Everything is built in a temporary directory. A wheel that needs a
newer glibc, another library, or more than its share of space is an error.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import zipfile

import backend
from elftools.elf.elffile import ELFFile
from packaging.metadata import Metadata

GLIBC = "2.28"
TAG = "manylinux_2_28_x86_64"
GLIBC_FILES = {"libc.so.6", "libdl.so.2", "libpthread.so.0", "ld-linux-x86-64.so.2"}
# Offsets in the header of an ELF file; e_shnum and e_shstrndx are neighbours.
E_SHOFF, E_SHNUM = 0x28, 0x3C
MOST_BYTES = 15_000_000
TOOLS = pathlib.Path(sys.prefix)


def main(directory):
    directory = pathlib.Path(directory).resolve()
    directory.mkdir(parents=True, exist_ok=True)
    for name in ("ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR"):
        os.environ[name] = str(TOOLS / "cache")
    with tempfile.TemporaryDirectory(prefix="culvert-wheel-") as built:
        compiler = f"{sys.executable} -m ziglang cc -target x86_64-linux-gnu.{GLIBC}"
        # lld rejects version scripts that name symbols of another release of CUDA.
        backend.build(built, f"CC={compiler}", "LDFLAGS=-s -Wl,--undefined-version", "ONE_SEGMENT=")
        problems = unstripped(pathlib.Path(built)) + drop_sections(pathlib.Path(built) / "culvert")
        wheel = directory / backend.pack(pathlib.Path(built), directory, TAG)
    problems += check(wheel)
    if problems:
        wheel.unlink()
        raise SystemExit(f"{wheel.name}: {'; '.join(problems)}")
    sdist = directory / backend.build_sdist(directory)
    for path in (wheel, sdist):
        print(f"{path} {path.stat().st_size / 1e6:.1f} MB")


def unstripped(built):
    """Returns which of the files still have names or debugging information: 0.3 MB of
    the wheel. Go strips by the C compiler, and Zig needs a flag of its own for it."""
    problems = []
    for name in ["culvert", *(f"lib/{library}" for library in backend.LIBRARIES)]:
        with open(built / name, "rb") as f:
            left = [s.name for s in ELFFile(f).iter_sections() if s.name == ".symtab" or s.name.startswith(".debug_")]
        if left:
            problems.append(f"{name} is not stripped: it has {', '.join(left)}")
    return problems


def drop_sections(command):
    """Removes the table of sections of the command, which nothing needs to run it:
    Go's linker writes an empty .gnu.version_r of a type that auditwheel cannot read.
    auditwheel then sees no needs of the command, so they are checked here."""
    with open(command, "r+b") as f:
        needs = [tag for s in ELFFile(f).iter_segments("PT_DYNAMIC") for tag in s.iter_tags()]
        problems = [f"the command needs {tag.needed}" for tag in needs if tag.entry.d_tag == "DT_NEEDED" and tag.needed not in GLIBC_FILES]
        if any(tag.entry.d_tag == "DT_VERNEED" and tag.entry.d_val for tag in needs):
            problems.append("the command needs symbols of a version of glibc")
        f.seek(E_SHOFF)
        f.write(bytes(8))
        f.seek(E_SHNUM)
        f.write(bytes(4))
    return problems


def check(wheel):
    """Returns what is wrong with a wheel."""
    problems = []
    if wheel.stat().st_size > MOST_BYTES:
        problems.append(f"{wheel.stat().st_size} bytes, more than {MOST_BYTES}")
    show = subprocess.run([TOOLS / "bin" / "auditwheel", "show", "--json", wheel], capture_output=True, text=True)
    if show.returncode:
        return [*problems, f"auditwheel: {show.stderr.strip()}"]
    tag = json.loads(show.stdout)["overall_tag"]
    glibc = tag.split("_")[1:3]
    if not tag.startswith("manylinux_") or tuple(map(int, glibc)) > tuple(map(int, GLIBC.split("."))):
        problems.append(f"auditwheel finds {tag}, not {TAG} or older")
    return problems + check_metadata(wheel)


def check_metadata(wheel):
    """Returns why PyPI would reject the metadata, and links that lead nowhere there."""
    with zipfile.ZipFile(wheel) as archive:
        text = archive.read(next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA")))
    try:
        description = Metadata.from_email(text).description
    except ExceptionGroup as e:
        return [str(problem) for problem in e.exceptions]
    return [f"the description links to {link}" for link in re.findall(r"\]\((?!#|https:)([^)]*)", description)]


if __name__ == "__main__":
    main(sys.argv[1])
