"""Builds the wheel and the sdist: a PEP 517 backend without requirements.

A wheel has everything: the package, libculvert, libcufile, the CUDA libraries of the
software machine, and the command. Built here, it needs Go and gcc, and runs on
machines with this glibc or a newer one; wheel.py builds the one for all of them.
"""

import base64
import hashlib
import io
import os
import pathlib
import re
import shutil
import subprocess
import sysconfig
import tarfile
import tempfile
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
NEEDS = "building culvert from source needs Linux, Python 3.11, Go 1.26, make and gcc"
# Zip files begin in 1980. One time for all files: equal inputs give equal wheels.
TIME = (1980, 1, 1, 0, 0, 0)
LIBRARIES = ["libculvert.so", "libcufile.so.0", "libgdrapi.so.2", "watch/libcufile.so.0", "soft/libcuda.so.1", "soft/libibverbs.so.1", "soft/libcudart.so.12", "soft/libcudart.so.13", "soft/libculvert-dev.so"]
DOCS = "https://github.com/culvert-io/culvert/blob/main/docs/"
NOTICES = ["LICENSE", "NOTICE", "THIRD_PARTY_NOTICES.md"]


def project():
    """The table [project] of pyproject.toml."""
    try:
        import tomllib
    except ModuleNotFoundError:
        raise SystemExit(f"{NEEDS}: this Python is older") from None
    return tomllib.loads((HERE / "pyproject.toml").read_text())["project"]


def metadata():
    """METADATA and PKG-INFO."""
    p = project()
    lines = [
        "Metadata-Version: 2.4", f"Name: {p['name']}", f"Version: {p['version']}", f"Summary: {p['description']}",
        f"License-Expression: {p['license']}", f"Requires-Python: {p['requires-python']}",
    ]
    lines += [f"Classifier: {c}" for c in p["classifiers"]]
    lines += [f"License-File: {name}" for name in NOTICES]
    for extra, needs in p["optional-dependencies"].items():
        lines += [f"Provides-Extra: {extra}"] + [f'Requires-Dist: {need} ; extra == "{extra}"' for need in needs]
    lines += ["Description-Content-Type: text/markdown", "", description()]
    return "\n".join(lines)


def description():
    """docs/python.md. Its links to other documents lead nowhere outside the source tree."""
    text = (ROOT / "docs" / "python.md").read_text()
    return re.sub(r"\]\((?!#|https:)", f"]({DOCS}", text)


def entry_points():
    p = project()
    groups = {"console_scripts": p["scripts"], **p.get("entry-points", {})}
    return "".join(f"[{g}]\n" + "".join(f"{k} = {v}\n" for k, v in names.items()) + "\n" for g, names in groups.items())


class Wheel:
    """A wheel being written. It records what it has."""

    def __init__(self, path, tag):
        self._zip = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9)
        self._tag, self._record = tag, []
        self._info = "{name}-{version}.dist-info".format(**project())

    def add(self, name, data, mode=0o644):
        entry = zipfile.ZipInfo(name, TIME)
        entry.external_attr, entry.compress_type = (0o100000 | mode) << 16, zipfile.ZIP_DEFLATED
        data = data.encode() if isinstance(data, str) else data
        self._zip.writestr(entry, data)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        self._record.append(f"{name},sha256={digest},{len(data)}\n")

    def close(self):
        self.add(f"{self._info}/METADATA", metadata())
        self.add(f"{self._info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: culvert\nRoot-Is-Purelib: false\nTag: py3-none-{self._tag}\n")
        self.add(f"{self._info}/entry_points.txt", entry_points())
        for name in NOTICES:
            self.add(f"{self._info}/licenses/{name}", (ROOT / name).read_bytes())
        record = f"{self._info}/RECORD"
        self.add(record, "".join(self._record) + f"{record},,\n")
        self._zip.close()


def pack(built, directory, tag):
    """Writes the wheel of what build() has built, and returns its name."""
    p = project()
    name = f"{p['name']}-{p['version']}-py3-none-{tag}.whl"
    wheel = Wheel(os.path.join(directory, name), tag)
    package = HERE / "culvert"
    for path in sorted(package.rglob("*")):
        if path.suffix == ".py" or path.name == "py.typed":
            wheel.add(f"culvert/{path.relative_to(package)}", path.read_bytes())
    for library in LIBRARIES:
        wheel.add(f"culvert/lib/{library}", (built / "lib" / library).read_bytes(), 0o755)
    wheel.add("culvert/bin/culvert", (built / "culvert").read_bytes(), 0o755)
    wheel.close()
    return name


def build(directory, *variables):
    """Builds libraries and command into a directory, outside the source tree."""
    missing = [tool for tool in ("go", "make") if not shutil.which(tool)]
    if missing or not (ROOT / "go.mod").exists():
        what = f"not found: {', '.join(missing)}" if missing else f"{ROOT} has no Go sources"
        raise SystemExit(f"{NEEDS} ({what}). Wheels are for Linux on x86-64 with glibc 2.28 or newer.")
    subprocess.run(["make", "--silent", "lib", f"LIB={directory}/lib", *variables], cwd=ROOT, check=True)
    command = ["go", "build", "-trimpath", "-ldflags", "-s -w", "-o", f"{directory}/culvert", "./cmd/culvert"]
    subprocess.run(command, cwd=ROOT, check=True, env={**os.environ, "CGO_ENABLED": "0"})


# The hooks that pip calls.


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    with tempfile.TemporaryDirectory(prefix="culvert-wheel-") as directory:
        build(directory)
        return pack(pathlib.Path(directory), wheel_directory, re.sub(r"[-.]", "_", sysconfig.get_platform()))


def build_sdist(sdist_directory, config_settings=None):
    """The Go sources, too: without them there is nothing to build."""
    p = project()
    base = f"{p['name']}-{p['version']}"
    root = (HERE / "pyproject.toml").read_text().replace('backend-path = ["."]', 'backend-path = ["python"]')
    listed = subprocess.run(["git", "ls-files", "-coz", "--exclude-standard"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    with tarfile.open(os.path.join(sdist_directory, f"{base}.tar.gz"), "w:gz", format=tarfile.PAX_FORMAT) as tar:
        for name, data in (("PKG-INFO", metadata()), ("pyproject.toml", root)):
            entry = tarfile.TarInfo(f"{base}/{name}")
            data = data.encode()
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
        for name in listed.split("\0"):
            if name and (ROOT / name).is_file():
                tar.add(ROOT / name, f"{base}/{name}", recursive=False)
    return f"{base}.tar.gz"
