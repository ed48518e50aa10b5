"""Puts wheels from PyPI into a directory, NIXL's without what its GDS plugins do not
need (of 59 MB, most is for torch and for networks).

    pack.py DIRECTORY PYTHON REQUIREMENT...

PYTHON is the version on the machine with the GPU, such as 3.12.
"""
import os
import re
import subprocess
import sys
import tempfile
import zipfile

PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_27_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")
NEEDED = re.compile(r"NEEDED.*\[(.*)\]")


def download(directory, python, requirements):
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:",
               "--python-version", python, "--dest", directory]
    for platform in PLATFORMS:
        command += ["--platform", platform]
    subprocess.run(command + list(requirements), check=True)


def wanted(root):
    """NIXL's Python, its GDS plugins, and the libraries that they need."""
    files = [os.path.relpath(os.path.join(d, f), root) for d, _, names in os.walk(root) for f in names]
    todo = [f for f in files if f.startswith("nixl_cu13/") or re.search(r"/libnixl\.so$|/libplugin_GDS(_MT)?\.so$", f)]
    kept = set()
    while todo:
        f = todo.pop()
        if f in kept:
            continue
        kept.add(f)
        if ".so" in f:
            out = subprocess.run(["readelf", "-d", os.path.join(root, f)], stdout=subprocess.PIPE, text=True, check=True).stdout
            names = NEEDED.findall(out)
            todo += [other for other in files if os.path.basename(other) in names]
    return sorted(kept)


def trim(wheel):
    with tempfile.TemporaryDirectory() as root:
        with zipfile.ZipFile(wheel) as z:
            z.extractall(root)
        with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as z:
            for f in wanted(root):
                z.write(os.path.join(root, f), f)


def main(directory, python, *requirements):
    os.makedirs(directory, exist_ok=True)
    download(directory, python, requirements)
    for name in os.listdir(directory):
        if name.startswith("nixl_"):
            trim(os.path.join(directory, name))


main(*sys.argv[1:])
