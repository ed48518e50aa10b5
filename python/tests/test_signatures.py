"""One import line changes, and no call: the signatures are those of safetensors."""

import ast
import pathlib
import unittest

import safetensors
from support import ROOT

THEIRS = pathlib.Path(safetensors.__file__).parent
OURS = ROOT / "python" / "culvert"
FUNCTIONS = {
    "torch.py": ["load", "load_file", "load_model", "save", "save_file", "save_model"],
    "numpy.py": ["load", "load_file", "save", "save_file"],
}


def signature(path, name):
    """The parameters of a function in a source file, which need not be importable:
    name, default and whether it goes by keyword only."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            break
    else:
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ImportFrom) and any(a.name == name for a in node.names):
                return signature(path.parent / f"{node.module}.py", name)
        raise LookupError(f"{path} has no {name}")
    args = node.args
    assert not args.posonlyargs and not args.vararg and not args.kwarg
    none = [None] * (len(args.args) - len(args.defaults))
    plain = [(a.arg, d and ast.unparse(d), False) for a, d in zip(args.args, none + args.defaults)]
    keyword = [(a.arg, d and ast.unparse(d), True) for a, d in zip(args.kwonlyargs, args.kw_defaults)]
    return plain, keyword


def names(path):
    """The functions that a module defines or imports from its package."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.ImportFrom) and node.level:
            found.update(alias.asname or alias.name for alias in node.names)
    return found


class Signatures(unittest.TestCase):
    def test_functions(self):
        for module, functions in FUNCTIONS.items():
            for name in functions:
                with self.subTest(module=module, name=name):
                    theirs, ours = signature(THEIRS / module, name), signature(OURS / module, name)
                    self.assertEqual(ours[0], theirs[0])
                    # What we add goes by keyword, and has a default.
                    self.assertEqual(ours[1][: len(theirs[1])], theirs[1])
                    for parameter, default, _ in ours[1]:
                        self.assertIsNotNone(default, parameter)

    def test_all_functions_are_there(self):
        for module, functions in FUNCTIONS.items():
            theirs = {n for n in names(THEIRS / module) if n.startswith(("load", "save"))}
            self.assertEqual(theirs, set(functions), module)
            self.assertLessEqual(theirs, names(OURS / module), module)


if __name__ == "__main__":
    unittest.main()
