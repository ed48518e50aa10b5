"""Models of object stores and web servers, by their URLs."""

import hashlib
import http.server
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import unittest

import numpy
from support import Case, culvert, random_tensors, write_raw

import culvert.numpy


class Store(http.server.BaseHTTPRequestHandler):
    """Serves the files of a directory with ranges, and counts their bytes."""

    protocol_version = "HTTP/1.1"

    def do_HEAD(self):
        self.answer(body=False)

    def do_GET(self):
        self.answer(body=True)

    def answer(self, body):
        path = self.server.directory / self.path.partition("?")[0].lstrip("/")
        if not path.is_file():
            self.send_response(404)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        data, span = path.read_bytes(), self.headers.get("Range")
        total, tag = len(data), hashlib.sha256(data).hexdigest()
        begin = 0
        if span:
            first, last = span.removeprefix("bytes=").split("-")
            begin, end = int(first), min(int(last or total - 1), total - 1)
            data = data[begin : end + 1]
        self.send_response(206 if span else 200)
        if span:
            self.send_header("Content-Range", f"bytes {begin}-{begin + len(data) - 1}/{total}")
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("ETag", f'"{tag}"')
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if body:
            self.wfile.write(data)

    def log_message(self, *_):
        pass


class Silent(unittest.TestCase):
    def test_interrupt(self):
        """Ctrl-C ends a call that waits for a server which does not answer."""
        self.addCleanup(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, signal.default_int_handler))
        with socket.create_server(("127.0.0.1", 0)) as server:
            url = f"http://127.0.0.1:{server.getsockname()[1]}/model.safetensors"
            for wait in (culvert.load_file, culvert.numpy.load_file, lambda u: culvert.safe_open(u, "np")):
                threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
                with self.assertRaises(KeyboardInterrupt):
                    wait(url)


class Objects(Case):
    def setUp(self):
        super().setUp()
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Store)
        self.server.directory = self.dir
        self.server.handle_error = lambda *_: None  # clients leave requests that they no longer need
        thread = threading.Thread(target=self.server.serve_forever, args=[0.01])  # seconds between looks at shutdown
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def test_load_file(self):
        tensors = random_tensors(31)
        write_raw(self.path("m.safetensors"), tensors)
        expect = {name: data for name, (_, _, data) in tensors.items()}
        host = culvert.numpy.load_file(f"{self.url}/m.safetensors")
        self.assertEqual({name: array.tobytes() for name, array in host.items()}, expect)
        gpu = culvert.load_file(f"{self.url}/m.safetensors", device="cuda:1")
        self.assertEqual({name: tensor.numpy().tobytes() for name, tensor in gpu.items()}, expect)

    def test_shards_and_slices(self):
        numbers = numpy.arange(12, dtype=numpy.uint8).reshape(3, 4)
        write_raw(self.path("a.safetensors"), {"a": ("U8", [3, 4], numbers.tobytes())})
        self.path("model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "a.safetensors"}}))
        with culvert.safe_open(f"{self.url}/", framework="np") as model:
            self.assertEqual(model.get_slice("a")[1:, 2].tolist(), [6, 10])

    def test_missing_object(self):
        with self.assertRaisesRegex(FileNotFoundError, "none.safetensors"):
            culvert.load_file(f"{self.url}/none.safetensors")

    def test_s3(self):
        """In a process of its own: the settings of AWS are read from the environment."""
        os.mkdir(self.path("bucket"))
        write_raw(self.path("bucket/m.safetensors"), {"a": ("U8", [4], b"WXYZ")})
        program = "import culvert; print(culvert.load_file('s3://bucket/m.safetensors')['a'].numpy().tobytes().decode())"
        environment = {**os.environ, "AWS_ENDPOINT_URL": self.url, "AWS_REGION": "us-east-1", "CULVERT_S3_ANONYMOUS": "1"}
        run = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
        self.assertEqual((run.stdout, run.stderr), ("WXYZ\n", ""))

    def test_s3_variables_set_late(self):
        """A notebook sets os.environ after the library was loaded, and removes what it inherited."""
        os.mkdir(self.path("bucket"))
        write_raw(self.path("bucket/m.safetensors"), {"a": ("U8", [4], b"WXYZ")})
        program = (
            "import os, culvert; culvert.machine()\n"
            f"os.environ.update(AWS_ENDPOINT_URL={self.url!r}, AWS_REGION='us-east-1', CULVERT_S3_ANONYMOUS='1')\n"
            "del os.environ['AWS_PROFILE']\n"
            "print(culvert.load_file('s3://bucket/m.safetensors')['a'].numpy().tobytes().decode())"
        )
        environment = {**os.environ, "AWS_PROFILE": "unknown"}
        run = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
        self.assertEqual((run.stdout, run.stderr), ("WXYZ\n", ""))

