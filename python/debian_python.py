"""Gets a Python that is newer than the system's, from Debian's packages.

    python3 debian_python.py DIRECTORY VERSION

It has its own glibc beside it, because it needs a newer one. Nothing is installed and
no privileges are needed: the packages are unpacked, and a program is linked that loads
them from there. Debian's Python makes environments without pip; see make_environment().
"""

import hashlib
import io
import lzma
import pathlib
import re
import subprocess
import sys
import tarfile
import urllib.request

import environment

MIRROR = "https://deb.debian.org/debian"
RELEASE = "forky"
PIP = "pip==26.3"
LIBRARIES = "usr/lib/x86_64-linux-gnu"
# What the interpreter, the standard library and numpy load.
PACKAGES = [
    "libpython{}", "libpython{}-minimal", "libpython{}-stdlib", "libc6", "libgcc-s1", "libstdc++6",
    "libbz2-1.0", "libexpat1", "libffi8", "liblzma5", "libssl3t64", "libuuid1", "libzstd1", "zlib1g",
]
MAIN = "int Py_BytesMain(int, char **); int main(int argc, char **argv) { return Py_BytesMain(argc, argv); }"


def get(path):
    """Downloads a file of the mirror."""
    for left in reversed(range(environment.TRIES)):
        try:
            with urllib.request.urlopen(f"{MIRROR}/{path}", timeout=60) as reply:
                return reply.read()
        except OSError as e:
            if not left:
                raise SystemExit(f"download {MIRROR}/{path}: {e}") from e


def index():
    """Returns path and checksum of every package of the release."""
    text = lzma.decompress(get(f"dists/{RELEASE}/main/binary-amd64/Packages.xz")).decode()
    fields = (dict(re.findall(r"^(Package|Filename|SHA256): (.*)$", p, re.MULTILINE)) for p in text.split("\n\n"))
    return {f["Package"]: (f["Filename"], f["SHA256"]) for f in fields if len(f) == 3}


def members(archive):
    """Yields the files of an ar archive, which a package is."""
    at = len(b"!<arch>\n")
    while at < len(archive):
        header = archive[at : at + 60]
        size = int(header[48:58])
        yield header[:16].decode().strip().rstrip("/"), archive[at + 60 : at + 60 + size]
        at += 60 + size + size % 2


def unpack(package, directory):
    for name, data in members(package):
        if name.startswith("data.tar"):
            with tarfile.open(fileobj=io.BytesIO(data)) as tar:
                tar.extractall(directory, filter="tar")


def link(directory, version):
    """Links the interpreter, with the loader and the libraries of the directory."""
    libraries, python = directory / LIBRARIES, directory / "usr" / "bin" / f"python{version}"
    python.parent.mkdir(parents=True, exist_ok=True)
    command = [
        "gcc", "-x", "c", "-", "-x", "none", libraries / f"libpython{version}.so.1.0", "-o", python,
        f"-Wl,--dynamic-linker,{libraries}/ld-linux-x86-64.so.2", f"-Wl,--disable-new-dtags,-rpath,{libraries}",
        "-Wl,--unresolved-symbols=ignore-in-shared-libs",  # those of the newer glibc
    ]
    subprocess.run(command, check=True, input=MAIN, text=True)
    return python


def ensure(directory, version):
    """Returns the interpreter, which is made if it is not there yet."""
    directory = pathlib.Path(directory).resolve()
    python = directory / "usr" / "bin" / f"python{version}"
    if python.exists():
        return python
    known = index()
    for name in (p.format(version) for p in PACKAGES):
        if name not in known:
            raise SystemExit(f"Debian {RELEASE} has no package {name}")
        path, checksum = known[name]
        package = get(path)
        if hashlib.sha256(package).hexdigest() != checksum:
            raise SystemExit(f"{MIRROR}/{path} does not have the checksum of the index")
        unpack(package, directory)
    download = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", directory, PIP]
    subprocess.run(download, check=True)
    return link(directory, version)


def make_environment(python, directory):
    """Makes a virtual environment with pip."""
    wheel = next(python.parents[2].glob("pip-*.whl"))
    subprocess.run([python, "-m", "venv", "--without-pip", directory], check=True)
    subprocess.run([f"{directory}/bin/python", wheel / "pip", "install", "--quiet", "--no-index", wheel], check=True)


if __name__ == "__main__":
    print(ensure(*sys.argv[1:]))
