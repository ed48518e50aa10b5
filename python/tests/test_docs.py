"""The sessions in docs/python.md, replayed."""

import doctest
import importlib.util
import os
import re
import signal
import subprocess
import unittest

from support import CULVERT, ROOT, Case


class Docs(Case):
    @unittest.skipIf(importlib.util.find_spec("torch"), "the sessions are those of a machine without torch")
    def test_sessions(self):
        text = (ROOT / "docs" / "python.md").read_text()
        blocks = re.findall(r"^```(python|console)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
        self.assertGreater(len(blocks), 7)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.dir)
        self.names = {}
        for kind, block in blocks:
            (self.python if kind == "python" else self.console)(block)

    def python(self, block):
        test = doctest.DocTestParser().get_doctest(block, self.names, block.splitlines()[0], "docs/python.md", 0)
        said = []
        doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=said.append, clear_globs=False)
        self.names.update(test.globs)
        self.assertEqual("".join(said), "")

    def console(self, block):
        """A holder, which stays until the test ends. Its figures differ each time."""
        command, *want = block.splitlines()
        program, *arguments = command.removeprefix("$ ").split()
        self.assertEqual(program, "culvert")
        # What a bench on this machine has measured would be in the receipt.
        fresh = {**os.environ, "XDG_CACHE_HOME": str(self.dir)}
        holder = subprocess.Popen([CULVERT, *arguments], stdout=subprocess.PIPE, text=True, env=fresh)
        self.addCleanup(holder.stdout.close)
        self.addCleanup(holder.wait)
        self.addCleanup(holder.send_signal, signal.SIGINT)
        figures = re.compile(r"=[^ ]+|[0-9.]+ (?:[nµm]?s|[kMG]?B/s)\b")
        for line in want:
            self.assertEqual(figures.sub("=", holder.stdout.readline().rstrip()), figures.sub("=", line))


if __name__ == "__main__":
    unittest.main()
