"""Programs of others and ours, each in turns on our libcufile and on NVIDIA's, on a
machine with a GPU and without a network.

    bench.py SCRATCH OUT [ROWS]

Files go to SCRATCH (a disk; 24 GB) and /dev/shm; every result is appended to
OUT/results.jsonl as it is made, and OUT/table.md is written again after each row.
OUT/reports.md has what "culvert run" reports of torch.cuda.gds and NIXL.
ROWS is a regular expression: only rows with such names run. LIMIT (450 s by
default) is when no further row begins; ROUNDS (2) is how often each row runs;
SCALE (1) divides the sizes, to try the kit itself.
"""
import json
import mmap
import os
import re
import resource
import shutil
import subprocess
import sys
import time

import table

HERE = os.path.dirname(os.path.abspath(__file__))
SCALE = int(os.environ.get("SCALE", 1))
ROUNDS = int(os.environ.get("ROUNDS", 2))
LIMIT = float(os.environ.get("LIMIT", 450))
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
START = time.monotonic()


def cuda_libraries():
    """The directory with NVIDIA's libcudart and libcufile."""
    places = [os.environ.get("CUDA", ""), "/usr/local/cuda/lib64", "/usr/local/cuda/targets/x86_64-linux/lib"]
    for place in places:
        if os.path.exists(os.path.join(place, "libcudart.so.13")):
            return place
    sys.exit("no libcudart.so.13 under /usr/local/cuda: set CUDA to its directory")


def udev_record(directory):
    """NVIDIA's library rejects files whose block device has no udev record."""
    device = os.stat(directory).st_dev
    path = f"/run/udev/data/b{os.major(device)}:{os.minor(device)}"
    if not os.path.exists(path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as f:
            f.write("I:1\nE:ID_FS_USAGE=filesystem\nE:ID_FS_TYPE=ext4\n")


def disk_counters(path):
    """Requests, merges, sectors and milliseconds of reads, and so on, of the file's disk."""
    device = os.stat(path).st_dev
    with open(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/stat") as f:
        return list(map(int, f.read().split()))


class Bench:
    def __init__(self, scratch, out, rows):
        self.scratch, self.out, self.rows = scratch, out, re.compile(rows)
        self.cuda, self.ours = cuda_libraries(), os.path.join(HERE, "lib")
        self.startup = {}
        for directory in (scratch, out):
            os.makedirs(directory, exist_ok=True)
        udev_record(scratch)
        open(os.path.join(out, "results.jsonl"), "a").close()
        self.site = os.path.join(scratch, "site")
        self.unpack()

    def unpack(self):
        """Python cannot import shared objects from a wheel."""
        if os.path.exists(self.site):
            return
        for wheel in sorted(os.listdir(os.path.join(HERE, "wheels"))):
            shutil.unpack_archive(os.path.join(HERE, "wheels", wheel), self.site, "zip")
        shutil.copytree(os.path.join(HERE, "culvert"), os.path.join(self.site, "culvert"))

    def environment(self, who):
        """Our libcufile is found first, or NVIDIA's; the home directory is empty."""
        home = os.path.join(self.scratch, "home")
        shutil.rmtree(home, ignore_errors=True)
        os.makedirs(home)
        env = {k: v for k, v in os.environ.items() if not k.startswith("XDG_")}
        env.update(HOME=home, SITE=self.site, PYTHONPATH=self.site, PYTHONDONTWRITEBYTECODE="1")
        env["CULVERT_LIB"] = self.ours
        env["CULVERT_MACHINE"] = os.environ.get("CULVERT_MACHINE", "real")
        env["LD_LIBRARY_PATH"] = f"{self.ours}:{self.cuda}" if who == "culvert" else self.cuda
        if who == "culvert":
            env["LD_PRELOAD"] = os.path.join(self.ours, "libcufile.so.0")
        return env

    def call(self, who, *command, limit=60):
        """What the command prints, and the processor seconds that it took."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(command, env=self.environment(who), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, timeout=limit)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command[:4])}: status {done.returncode}: {(done.stderr or done.stdout)[-400:]}")
        return done.stdout, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    def result(self, row, who, rates=None, **more):
        entry = {"row": row, "who": who, "rates": rates or [], **more}
        with open(os.path.join(self.out, "results.jsonl"), "a") as f:
            f.write(json.dumps(entry) + "\n")
        print(f"{time.monotonic() - START:6.1f}s {row} | {who} | {' '.join(f'{r:.3g}' for r in entry['rates'])} {more}", flush=True)

    def attempt(self, row, who, work):
        """A program that fails or hangs is a result, too."""
        try:
            work()
        except subprocess.TimeoutExpired as e:
            self.result(row, who, error=f"hung for {e.timeout:.0f} s")
        except (RuntimeError, OSError, ValueError, KeyError) as e:
            self.result(row, who, error=str(e))

    def turns(self, row, work, whos=("culvert", "libcufile"), rounds=ROUNDS):
        """Each in turns, the other one first in every second round."""
        for i in range(rounds):
            for who in whos if i % 2 == 0 else reversed(whos):
                self.attempt(row, who, lambda: work(who))

    # Files.

    def file(self, name, size, directory=None):
        path = os.path.join(directory or self.scratch, name)
        size //= SCALE
        if not os.path.exists(path) or os.path.getsize(path) != size:
            chunk = os.urandom(min(size, 64 * MIB))
            with open(path, "wb", buffering=0) as f:
                for at in range(0, size, len(chunk)):
                    f.write(chunk[: size - at])
                os.fsync(f.fileno())
        return path

    def model(self, directory):
        """7.0 GB in four shards of 36 tensors."""
        path = os.path.join(directory, "model")
        if os.path.exists(path):
            return path
        os.makedirs(path)
        for shard in range(4):
            header, at = {}, 0
            for i in range(36):
                rows = 1 if i % 9 == 0 else 6670 // SCALE
                header[f"model.{shard}.{i}.weight"] = {"dtype": "BF16", "shape": [rows, 4096], "data_offsets": [at, at + rows * 8192]}
                at += rows * 8192
            text = json.dumps(header).encode()
            text += b" " * (-len(text) % 4096 + 4088)
            data = self.file(f"data{shard}", at * SCALE, path)
            with open(os.path.join(path, f"model-{shard}.safetensors"), "wb") as f, open(data, "rb") as source:
                f.write(len(text).to_bytes(8, "little") + text)
                shutil.copyfileobj(source, f, 64 * MIB)
                f.flush()
                os.fsync(f.fileno())
            os.remove(data)
        return path

    def cool(self, path):
        fd = os.open(path, os.O_RDONLY)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)

    def warm(self, path):
        room = mmap.mmap(-1, 16 * MIB)
        with open(path, "rb", buffering=0) as f:
            while f.readinto(room):
                pass

    # Programs.

    def blocks(self, row, who, *arguments, library="culvert", split=False):
        """blocks.c: a rate for each pass. With split, each pass is a row."""
        out, _ = self.call(library, os.path.join(HERE, "blocks"), *map(str, arguments))
        lines = [tuple(map(float, line.split())) for line in out.splitlines()]
        if split:
            for i, (rate, cpu) in enumerate(lines, 1):
                self.result(f"{row}, pass {i}", who, [rate], cpu=cpu)
        elif len(lines) == 1:
            self.result(row, who, [lines[0][0]], cpu=lines[0][1])
        else:
            self.result(row, who, [r for r, _ in lines[1:]], first=lines[0][0], cpu=sorted(c for _, c in lines)[len(lines) // 2])

    def fio(self, path, who, seconds, rw, bs, jobs, *more):
        """GB/s, operations per second, and processor seconds per GB without the start."""
        command = [os.path.join(HERE, "fio"), "--name=job", "--ioengine=libcufile", "--cuda_io=cufile", "--gpu_dev_ids=0", "--thread",
                   f"--filename={path}", f"--rw={rw}", f"--bs={bs}", f"--numjobs={jobs}", "--group_reporting", "--output-format=json", *more]
        if (who, jobs) not in self.startup:
            _, self.startup[who, jobs] = self.call(who, *command, "--io_size=4096", "--rw=read", "--bs=4096", "--invalidate=0")
        out, cpu = self.call(who, *command, "--time_based", f"--runtime={seconds}", f"--size={os.path.getsize(path)}")
        report = json.loads(out[out.index("{"):])["jobs"][0]["write" if "write" in rw else "read"]
        gb = report["io_bytes"] / 1e9
        return report["bw_bytes"] / 1e9, report["iops"], max(0, cpu - self.startup[who, jobs]) / gb

    def nixl(self, plugin, way, path, works, names, limit):
        def run(who):
            out, _ = self.call(who, sys.executable, os.path.join(HERE, "nixl_client.py"), plugin, way, path, *works, limit=limit)
            lines = [line for line in out.splitlines() if line.startswith("{")]  # NIXL's own go there, too
            for name, line in zip(names, lines):
                r = json.loads(line)
                self.result(name, who, r["rates"], first=r["first"], cpu=r["cpu"])

        self.turns(names[0], run)

    def loaders(self, row, directory, whos, later, rounds=ROUNDS):
        def run(who):
            out, _ = self.call(who, sys.executable, os.path.join(HERE, "loader.py"), who, directory, str(later), limit=90)
            r = json.loads(out.splitlines()[-1])
            self.result(row + ", first", who, [r["first"]])
            if later:
                self.result(row + ", later", who, r["rates"])

        self.turns(row + ", first", run, whos, rounds)

    # Rows, most important first.

    def link(self):
        self.attempt("pinned copy", "link", lambda: self.blocks("pinned copy", "link", "link"))

    def reports(self):
        """What "culvert run" reports of two programs, with each engine."""
        engines = (
            ("libcufile", ("--observe", "--libcufile", os.path.join(self.cuda, "libcufile.so.0"))),
            ("culvert", ("--engine", "culvert")),
        )
        for row, script, plugins in (("torch.cuda.gds", "torch_gds.py", ()), ("NIXL", "nixl_client.py", ("GDS", "GDS_MT"))):
            for who, flags in engines:
                self.attempt(f"report of {row}", who, lambda: self.report(row, who, flags, script, *plugins))

    def report(self, title, who, flags, script, *arguments):
        """Appends a report to reports.md, also of a program that fails."""
        directory, path = os.path.join(self.scratch, "reports"), os.path.join(self.out, "report.txt")
        os.makedirs(directory, exist_ok=True)
        command = [os.path.join(HERE, "culvert-command"), "run", *flags, "--report", path, "--", sys.executable,
                   os.path.join(HERE, "clients", script), directory, *arguments]
        said = ""
        try:
            said, _ = self.call("libcufile", *command, limit=90)
        finally:
            if os.path.exists(path):
                with open(path) as report, open(os.path.join(self.out, "reports.md"), "a") as all_of_them:
                    all_of_them.write(f"## {title}: {who}\n\n```\n{said}```\n\n```\n{report.read()}```\n\n")
                os.remove(path)

    def cold(self):
        path, row = self.file("four", 4 * GIB), "cold file"
        for _ in range(ROUNDS):
            for who in ("culvert", "libcufile"):
                self.cool(path)
                self.attempt(row, who, lambda: self.blocks(row, who, "cufile", "read", "plain", path, 4 * GIB, 1, 4, library=who, split=True))
            self.attempt(row, "culvert, warm before", lambda: self.blocks(row + ", warm", "culvert", "cufile", "read", "plain", path, 4 * GIB, 1, 4))
            for way, name in (("direct", "O_DIRECT reads"), ("whole", "O_DIRECT reads into new memory"), ("plain", "buffered reads")):
                self.cool(path)
                self.attempt(row, name, lambda: self.blocks(row + ", pass 1", name, "host", "read", way, path, 4 * MIB, 16, 1))

    def cold_readers(self):
        """Eight threads, each of which opens one file and reads all of it, 1 MiB at a
        time: how fast the file comes from the disk, and how often."""
        path, row = self.file("four", 4 * GIB), "cold file, eight readers"
        for _ in range(ROUNDS):
            for who in ("culvert", "libcufile", "buffered reads"):
                self.cool(path)
                how, library = ("host", "culvert") if who == "buffered reads" else ("cufile", who)
                before = disk_counters(path)
                out, _ = self.call(library, os.path.join(HERE, "blocks"), how, "read", "each", path, str(MIB), "8", "1")
                after = disk_counters(path)
                requests, size = after[0] - before[0], (after[2] - before[2]) * 512
                rate, cpu = map(float, out.split())
                self.result(row, who, [rate], cpu=cpu, of_file=round(size / os.path.getsize(path), 3), request=size // max(1, requests),
                            depth=round((after[3] - before[3]) / max(1, after[9] - before[9]), 1))

    def fio_default(self):
        self.fio_reads("", 4, ())

    def fio_warm(self):
        self.warm(self.file("four", 4 * GIB))
        self.fio_reads(", invalidate=0", 3, ("--invalidate=0",))

    def fio_reads(self, suffix, seconds, more):
        path = self.file("four", 4 * GIB)
        for rw, bs, jobs in (("read", "1M", 8), ("read", "16M", 4), ("read", "64k", 8), ("randread", "4k", 8)):
            row = f"fio {rw} {bs} × {jobs}{suffix}"

            def run(who):
                rate, iops, cpu = self.fio(path, who, seconds, rw, bs, jobs, *more)
                self.result(row, who, [rate], iops=iops, cpu=cpu)

            self.turns(row, run)

    def fio_writes(self):
        path = self.file("written", 4 * GIB)
        row = "fio write 1M × 4"

        def run(who):
            rate, iops, cpu = self.fio(path, who, 4, "write", "1M", 4)
            self.result(row, who, [rate], iops=iops, cpu=cpu)
            os.sync()

        self.turns(row, run)

    def nixl_mt(self):
        path = self.file("eight", 8 * GIB)
        for way in ("plain", "direct"):
            works, names = [], []
            for operation, block, total in (("read", 16 * MIB, 8 * GIB), ("read", MIB, 4 * GIB), ("read", 64 * KIB, GIB), ("write", 16 * MIB, 4 * GIB)):
                works.append(f"{operation}:{block}:{max(block, total // SCALE)}")
                names.append(f"NIXL GDS_MT {operation} {block // KIB} KiB {way}")
            self.warm(path)
            self.nixl("GDS_MT", way, path, works, names, 90)
            os.sync()

    def nixl_gds(self):
        path = self.file("eight", 8 * GIB)
        self.warm(path)
        works = [f"read:{16 * MIB}:{max(16 * MIB, GIB // SCALE)}", f"write:{16 * MIB}:{max(16 * MIB, GIB // SCALE)}"]
        self.nixl("GDS", "plain", path, works, ["NIXL GDS read 16384 KiB plain", "NIXL GDS write 16384 KiB plain"], 30)

    def load_ext4(self):
        directory = self.model(self.scratch)
        self.loaders("load ext4", directory, ("culvert", "instanttensor-mmap"), 4)

    def load_tmpfs(self):
        directory = self.model(self.memory())
        self.loaders("load tmpfs", directory, ("culvert", "instanttensor"), 4)

    def load_others(self):
        directory = self.model(self.scratch)
        others = ("instanttensor", "instanttensor-cufile", "fastsafetensors", "fastsafetensors-gds", "safetensors")
        self.loaders("load ext4", directory, others, 2, rounds=1)

    def callers(self):
        path = self.file("four", 4 * GIB)
        self.warm(path)
        for n in (8, 16):
            row = f"1 MiB, {n} callers, C library"
            self.turns(row, lambda who: self.blocks(row, who, "cufile", "read", "plain", path, MIB, n, 9, library=who))
            row = f"1 MiB, {n} callers, culvert bench"

            def bench(who):
                out, _ = self.call(who, os.path.join(HERE, "culvert-command"), "bench", path, "gpu:0", "--threads", str(n), "--time", "2s", "--json")
                self.result(row, who, [json.loads(out.splitlines()[-1])["gb_per_second"]])

            self.turns(row, bench, ("culvert",))

    def writes(self):
        """What our own writes cost, without anybody's program."""
        path = self.file("written", 4 * GIB)
        for way in ("plain", "direct"):
            row = f"1 MiB, 4 callers, writes {way}"

            def run(who):
                self.blocks(row, who, "cufile", "write", way, path, MIB, 4, 3, library=who)
                os.sync()

            self.turns(row, run)

    def memory(self):
        return os.environ.get("MEMORY", "/dev/shm")

    ROWS = (
        ("link", link), ("reports", reports), ("cold", cold), ("readers", cold_readers), ("load-ext4", load_ext4), ("fio", fio_default), ("nixl-mt", nixl_mt), ("fio-write", fio_writes), ("callers", callers),
        ("load-tmpfs", load_tmpfs), ("fio-warm", fio_warm), ("writes", writes), ("nixl-gds", nixl_gds), ("load-others", load_others),
    )

    def run(self):
        for name, work in self.ROWS:
            if not self.rows.search(name):
                continue
            if time.monotonic() - START > LIMIT:
                print(f"{name}: no time left", flush=True)
                continue
            work(self)
            with open(os.path.join(self.out, "table.md"), "w") as f:
                f.write(table.table(os.path.join(self.out, "results.jsonl")))
        shutil.rmtree(os.path.join(self.memory(), "model"), ignore_errors=True)


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    Bench(*sys.argv[1:3], sys.argv[3] if len(sys.argv) > 3 else "").run()
