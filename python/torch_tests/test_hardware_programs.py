"""hardware_programs.py, on the software machine: that it runs and checks its weights."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

PYTHON = pathlib.Path(__file__).resolve().parent.parent


class Programs(unittest.TestCase):
    def test_runs(self):
        env = {**os.environ, "PYTHONPATH": str(PYTHON), "CULVERT_MACHINE": "soft", "CUDA_VISIBLE_DEVICES": ""}
        with tempfile.TemporaryDirectory(prefix="culvert-") as directory:
            command = [sys.executable, "-W", "ignore", PYTHON / "hardware_programs.py", directory, "--runs", "1"]
            done = subprocess.run(command, env=env, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        answer = json.loads(done.stdout)
        self.assertEqual((answer["software_machine"], answer["targets"]), (True, None))
        self.assertEqual(list(answer["checkpoint"]["phases"]), ["reserve", "write", "sync", "publish", "other", "removal"])


if __name__ == "__main__":
    unittest.main()
