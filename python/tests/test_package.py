"""What pip, type checkers and import see of the package."""

import inspect
import re
import subprocess
import sys
import unittest

from support import ROOT, Case, culvert

import culvert.numpy

try:
    import tomllib
except ModuleNotFoundError:  # before Python 3.11
    tomllib = None


class Package(Case):
    @unittest.skipIf(tomllib is None, "needs Python 3.11 for its reader of TOML")
    def test_extras(self):
        """The modules that tensors are made of are extras: one is needed, none is forced on anybody."""
        project = tomllib.loads((ROOT / "python" / "pyproject.toml").read_text())["project"]
        frameworks = set(re.findall(r'find_spec\("(\w+)"\)', (ROOT / "python" / "culvert" / "_load.py").read_text()))
        self.assertEqual(frameworks, {"numpy", "torch"})
        self.assertEqual(project["dependencies"], [])
        extras = {name: [re.match(r"\w+", need)[0] for need in needs] for name, needs in project["optional-dependencies"].items()}
        self.assertEqual(extras, {name: [name] for name in frameworks})
        self.assertIn("./python[numpy]", (ROOT / "docs" / "python.md").read_text())

    def test_types(self):
        """The package says that it is typed (py.typed): public functions are, in full."""
        self.assertTrue((ROOT / "python" / "culvert" / "py.typed").exists())
        checked = 0
        for module in (culvert, culvert.numpy):
            for name in module.__all__:
                function = getattr(module, name)
                if not inspect.isfunction(function):
                    continue
                signature = inspect.signature(function)
                for parameter in signature.parameters.values():
                    self.assertIsNot(parameter.annotation, inspect.Parameter.empty, f"{name}: {parameter}")
                self.assertIsNot(signature.return_annotation, inspect.Signature.empty, name)
                self.assertTrue(function.__doc__, name)
                checked += 1
        self.assertGreater(checked, 10)

    def test_types_without_torch(self):
        """The types of signatures are known where torch is not installed."""
        script = "import sys; sys.modules['torch'] = sys.modules['numpy'] = None; import culvert._types"
        subprocess.run([sys.executable, "-c", script], check=True)

    def test_import(self):
        """Importing the package loads nothing that takes time."""
        script = "import sys, culvert; print(*sys.modules)"
        said = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout
        self.assertFalse({"asyncio", "numpy", "torch", "tqdm", "culvert._types"} & set(said.split()))


if __name__ == "__main__":
    unittest.main()
