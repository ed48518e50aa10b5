"""What pip is told of the package."""

import re
import unittest

from support import ROOT, Case

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


if __name__ == "__main__":
    unittest.main()
