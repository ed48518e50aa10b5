"""Measures the Python package on a machine with a GPU, torch and safetensors.

    python3 hardware.py DIRECTORY [--gib 8] [--culvert bin/culvert]

Makes a model of realistic shape in DIRECTORY (hundreds of tensors, bf16 and fp8,
odd sizes) with the safetensors package, warms it, and compares culvert.load_file
with safetensors.torch.load_file and with a pinned copy of the same bytes. Then:
bit equality, a tensor-parallel quarter, verification, saving from the GPU beside
plain O_DIRECT writes, and attaching to a model that another process serves. Prints
JSON; "phases" are durations of the steps, "targets" the guarantees and whether they
are met. Takes two minutes, 2.2 times the model's size on disk and 3 times on the GPU.

Without a GPU it runs on the software machine, which tests this script: the rates
then mean nothing.
"""

import argparse
import contextlib
import json
import mmap
import os
import platform
import signal
import statistics
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import safetensors
import safetensors.torch
import torch

import culvert
import culvert.torch
from culvert import _core, _load

REAL = torch.cuda.is_available()
DEVICE = "cuda:0" if REAL else "cpu"


def say(text):
    print(f"[{time.perf_counter() - START:6.1f}s] {text}", file=sys.stderr, flush=True)


def sync():
    if REAL:
        torch.cuda.synchronize()


# The GPU clears memory that was freed, with the engines that copy: 20 ms for 8 GiB,
# at the cost of whatever is copied meanwhile. So it rests before each measurement.
REST = 0.1


def clock(do, rest=REST):
    """Seconds that do() takes, and its result."""
    sync()
    if REAL:
        time.sleep(rest)
    start = time.perf_counter()
    result = do()
    sync()
    return time.perf_counter() - start, result


def times(do, runs, rest=REST):
    """The first time and the median of the others; results are dropped at once."""
    first, result = clock(do, rest)
    del result
    others = []
    for _ in range(runs):
        seconds, result = clock(do, rest)
        del result
        others.append(seconds)
    return {"first": first, "median": statistics.median(others), "all": others}


def model(gib):
    """Tensors of a transformer of that size, half of its layers in fp8."""
    hidden, middle, kv, vocab = (4096, 14336, 1024, 32003) if gib >= 2 else (512, 1792, 128, 32003)
    generator = torch.Generator(DEVICE).manual_seed(1)

    def make(dtype, *shape):
        size = torch.empty(0, dtype=dtype).element_size()
        count = size
        for dim in shape:
            count *= dim
        data = torch.randint(0, 256, (count,), dtype=torch.uint8, device=DEVICE, generator=generator)
        return data.view(dtype).view(shape)

    tensors = {"model.embed_tokens.weight": make(torch.bfloat16, vocab, hidden)}
    layer, total = 0, 2 * tensors["model.embed_tokens.weight"].nbytes
    while total < gib * 2**30:
        fp8 = layer % 2 == 1
        name = f"model.layers.{layer}."
        new = {}
        for part, rows, columns in (
            ("self_attn.q_proj", hidden, hidden), ("self_attn.k_proj", kv, hidden), ("self_attn.v_proj", kv, hidden),
            ("self_attn.o_proj", hidden, hidden), ("mlp.gate_proj", middle, hidden), ("mlp.up_proj", middle, hidden),
            ("mlp.down_proj", hidden, middle),
        ):
            new[f"{name}{part}.weight"] = make(torch.float8_e4m3fn if fp8 else torch.bfloat16, rows, columns)
            if fp8:
                new[f"{name}{part}.weight_scale"] = make(torch.float32, 1)
        new[name + "input_layernorm.weight"] = make(torch.bfloat16, hidden)
        new[name + "post_attention_layernorm.weight"] = make(torch.bfloat16, hidden)
        new[name + "rotary.inv_freq"] = make(torch.float32, 63)
        new[name + "odd"] = make(torch.uint8, 1 + 2 * layer)
        tensors.update(new)
        total += sum(t.nbytes for t in new.values())
        layer += 1
    tensors["model.norm.weight"] = make(torch.bfloat16, hidden)
    tensors["lm_head.weight"] = make(torch.bfloat16, vocab, hidden)
    return tensors


def warm(path):
    """Writes the file back and reads it once, so that it is in the page cache."""
    with open(path, "rb", buffering=0) as f:
        os.fsync(f.fileno())
        room = bytearray(16 << 20)
        while f.readinto(room):
            pass


def pinned_copy(total):
    """Seconds that a pinned copy of so many bytes takes at the link's speed."""
    if not REAL:
        return None
    size = 1 << 30
    host = torch.empty(size, dtype=torch.uint8, pin_memory=True)
    device = torch.empty(size, dtype=torch.uint8, device=DEVICE)
    best = min(clock(lambda: device.copy_(host, non_blocking=True))[0] for _ in range(6))
    return best * total / size


def bits(tensor):
    """The bytes of a tensor, on the device that it is on."""
    if isinstance(tensor, culvert.DeviceTensor):
        tensor = tensor.torch()
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def differing(a, b):
    """Names whose tensors differ in type, shape or any bit."""
    def same(x, y):
        if isinstance(x, torch.Tensor) and isinstance(y, torch.Tensor) and x.dtype != y.dtype:
            return False
        return tuple(x.shape) == tuple(y.shape) and torch.equal(bits(x), bits(y))

    return [name for name in a if name not in b or not same(a[name], b[name])] + [name for name in b if name not in a]


@contextlib.contextmanager
def timed(module, name, spent, label=None):
    """Adds up the time that a function of a module takes, by label or first argument."""
    original = getattr(module, name)

    def wrapper(*args, **kwargs):
        start = time.perf_counter()
        try:
            return original(*args, **kwargs)
        finally:
            key = label or args[0]
            spent[key] = spent.get(key, 0) + time.perf_counter() - start

    setattr(module, name, wrapper)
    try:
        yield
    finally:
        setattr(module, name, original)


def phases(do):
    """Where the time of do() goes: in Python, and by the core's receipt. In seconds."""
    spent = {}
    with timed(_core, "call", spent), timed(_load, "on_device", spent, "making tensors"):
        spent["all"], result = clock(do)
    del result
    return {"python": spent, "core": culvert.last_receipt()["phases"]}


def measure_load(path, out):
    say("culvert.load_file")
    out["culvert"] = times(lambda: culvert.torch.load_file(path, "cuda:0"), 5)
    out["phases"] = {"load": [phases(lambda: culvert.torch.load_file(path, "cuda:0")) for _ in range(3)]}
    out["receipt"] = {k: v for k, v in culvert.last_receipt().items() if k != "files"}
    out["routes"] = [f["receipt"]["bytes_by_route"] for f in culvert.last_receipt()["files"]]
    say("safetensors.torch.load_file")
    out["safetensors"] = times(lambda: safetensors.torch.load_file(path, DEVICE), 2)
    out["pinned_copy"] = pinned_copy(out["bytes"])
    # Again, next to the ceiling: the machine may have become slower meanwhile.
    out["culvert_again"] = times(lambda: culvert.torch.load_file(path, "cuda:0"), 3)
    out["back_to_back"] = times(lambda: culvert.torch.load_file(path, "cuda:0"), 3, rest=0)


def check_bits(path, out):
    say("bit equality")
    ours, theirs = culvert.torch.load_file(path, "cuda:0"), safetensors.torch.load_file(path, DEVICE)
    out["different"] = differing(ours, theirs)
    if REAL:
        # They are ordinary tensors, and outlive what they came with.
        name = "model.norm.weight"
        kept, want = ours[name], theirs[name].clone()
        del ours
        torch.cuda.synchronize()
        kept.float().sum().item()
        out["outlives"] = torch.equal(bits(kept), bits(want))


def measure_quarter(path, out):
    say("a tensor-parallel quarter")
    out["quarter"] = times(lambda: culvert.torch.load_file(path, "cuda:0", plan="tp=4,rank=1"), 3)
    r = culvert.last_receipt()
    out["quarter"]["read_share"] = r["read_bytes"] / (out["bytes"] / 4)
    part, whole = culvert.torch.load_file(path, "cuda:0", plan="tp=4,rank=1"), safetensors.torch.load_file(path, "cpu")
    wrong = []
    for name, dim in (("model.layers.1.self_attn.q_proj.weight", 0), ("model.layers.0.mlp.down_proj.weight", 1)):
        want = whole[name].view(torch.uint8).chunk(4, dim)[1]
        if not torch.equal(bits(part[name]).cpu(), bits(want)):
            wrong.append(name)
    out["quarter"]["different"] = wrong


def measure_verify(path, command, out):
    say("verification")
    subprocess.run([command, "verify", "--create", path], check=True, stdout=subprocess.DEVNULL)
    plain = times(lambda: culvert.torch.load_file(path, "cuda:0"), 5)
    checked = times(lambda: culvert.torch.load_file(path, "cuda:0", verify=True), 5)
    out["verify"] = {"plain": plain, "verified": checked, "tensors": culvert.last_receipt()["verified"]}
    # In turns: the machine's speed varies by more than the difference.
    pairs = []
    for _ in range(7):
        pair = [clock(lambda: culvert.torch.load_file(path, "cuda:0", verify=verify))[0] for verify in (False, True)]
        pairs.append(pair)
    out["verify"]["pairs"] = pairs
    out["verify"]["cost"] = statistics.median(p[1] for p in pairs) / statistics.median(p[0] for p in pairs) - 1
    out["phases"]["verified"] = [phases(lambda: culvert.torch.load_file(path, "cuda:0", verify=True)) for _ in range(3)]
    with open(path, "r+b") as f:  # one bit, in the middle
        f.seek(out["bytes"] // 2)
        byte = f.read(1)[0]
        f.seek(-1, os.SEEK_CUR)
        f.write(bytes([byte ^ 1]))
    try:
        culvert.torch.load_file(path, "cuda:0", verify=True)
        out["verify"]["found_damage"] = False
    except culvert.ChecksumError as e:
        out["verify"]["found_damage"] = str(e)
    with open(path, "r+b") as f:
        f.seek(out["bytes"] // 2)
        f.write(bytes([byte]))
    warm(path)


def measure_attach(path, command, sock, out):
    say("attaching to a served model")
    server = subprocess.Popen([command, "load", path, "gpu:0", "--hold", sock], stdout=subprocess.PIPE, text=True)
    try:
        for line in server.stdout:
            if line.startswith("holding "):
                break
        else:
            raise RuntimeError("the server ended")
        culvert.torch.load_file(path, "cuda:0", only="model.norm.weight")  # the GPU is open
        result = out["attach"] = times(lambda: culvert.attach(sock), 15, rest=0)  # it frees nothing
        result["first_tensor"] = statistics.median(clock(lambda: culvert.attach(sock)["model.norm.weight"])[0] for _ in range(7))
        result["all_tensors"] = statistics.median(clock(lambda: culvert.attach(sock).all())[0] for _ in range(7))
        out["phases"]["attach"] = [phases(lambda: culvert.attach(sock)) for _ in range(5)]
        served, second = culvert.attach(sock), culvert.attach(sock)
        result["shared"] = served.shared
        result["different"] = differing(dict(served), culvert.torch.load_file(path, "cuda:0"))
        if REAL:
            served["model.norm.weight"].zero_()
            torch.cuda.synchronize()
            result["writes_are_seen"] = not bool(bits(second["model.norm.weight"]).any())
        start = time.perf_counter()
        server.send_signal(signal.SIGINT)
        result["status"] = server.wait(20)
        result["release_seconds"] = time.perf_counter() - start
        result["socket_removed"] = not os.path.exists(sock)
        result["outlives_holder"] = torch.equal(bits(served["lm_head.weight"]), bits(second["lm_head.weight"]))
    finally:
        server.kill()
        server.wait()
        server.stdout.close()


def raw_writes(path, size, depth=8, chunk=4 << 20):
    """Seconds that plain O_DIRECT writes of host memory take, so many at a time,
    into a file whose space is reserved first and which is synced at the end."""
    start = time.perf_counter()
    fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_DIRECT)
    try:
        os.posix_fallocate(fd, 0, size)
        chunks, lock, errors = iter(range(0, size, chunk)), threading.Lock(), []

        def work():
            room = mmap.mmap(-1, chunk)
            room.write(os.urandom(4096) * (chunk // 4096))
            while True:
                with lock:
                    at = next(chunks, None)
                if at is None:
                    return
                n = os.pwrite(fd, memoryview(room)[: min(chunk, (size - at + 4095) // 4096 * 4096)], at)
                if n < min(chunk, size - at):
                    errors.append(f"{n} bytes at {at}")

        threads = [threading.Thread(target=work) for _ in range(depth)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        os.ftruncate(fd, size)
        os.fdatasync(fd)
        if errors:
            raise OSError(errors[0])
        return time.perf_counter() - start
    finally:
        os.close(fd)
        os.unlink(path)


def measure_save(path, tensors, out):
    say("saving from the GPU, and plain writes in turns")
    result = out["save"] = {"seconds": [], "raw_seconds": [], "rounds": 3}
    manifest = path + ".culvert.json"
    for i in range(result["rounds"]):
        if i > 0:
            os.remove(path)
            os.remove(manifest)
        result["raw_seconds"].append(raw_writes(path + ".raw", out["bytes"]))
        seconds, _ = clock(lambda: culvert.torch.save_file(tensors, path, metadata={"format": "pt"}))
        result["seconds"].append(seconds)
        result.setdefault("phases", []).append(culvert.last_receipt()["phases"])
    result["gb_per_second"] = out["bytes"] / statistics.median(result["seconds"]) / 1e9
    result["of_raw_writes"] = statistics.median(result["raw_seconds"]) / statistics.median(result["seconds"])
    with safetensors.safe_open(path, "pt", DEVICE) as f:
        names = sorted(f.keys())[:20]
        out["save"]["different"] = differing({n: f.get_tensor(n) for n in names}, {n: tensors[n] for n in names})
    out["save"]["names"] = set(culvert.safe_open(path).keys()) == set(tensors)


def measure_batches(path, program, out):
    """The same loads without Python."""
    if not os.path.exists(program):
        return
    say("loads without Python")
    report = path + ".loads.json"
    command = [program, "-test.run", "^TestHardware$", "-test.v", "-tensor.model", path, "-tensor.only", "^default", "-tensor.json", report]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    out["parcels"] = done.stdout.splitlines()[-5:]
    if os.path.exists(report):
        with open(report) as f:
            out["parcels"] = json.load(f)
        os.remove(report)


def leaks(path, out):
    """Loads more often than memory would last if a load leaked."""
    if not REAL:
        return
    say("leaks")
    files, free = len(os.listdir("/proc/self/fd")), torch.cuda.mem_get_info()[0]
    rounds = int(3 * torch.cuda.mem_get_info()[1] / out["bytes"]) + 1
    rounds = min(rounds, 60)
    for _ in range(rounds):
        culvert.torch.load_file(path, "cuda:0")
    out["leaks"] = {
        "rounds": rounds,
        "files": len(os.listdir("/proc/self/fd")) - files,
        "gpu_bytes": free - torch.cuda.mem_get_info()[0],
    }


def judge(out):
    """The guarantees, and whether they are met."""
    load = min(out["culvert"]["median"], out["culvert_again"]["median"])
    different = out["different"] + out["quarter"]["different"] + out["attach"]["different"] + out["save"]["different"]
    targets = {
        "5 x safetensors": (out["safetensors"]["median"] / load, lambda x: x >= 5),
        "0.85 of the pinned copy": (out["pinned_copy"] / load if out["pinned_copy"] else 0, lambda x: x >= 0.85),
        "bit-identical": (len(different), lambda x: x == 0),
        "a quarter reads at most 1.05 of a quarter": (out["quarter"]["read_share"], lambda x: x <= 1.05),
        "verification costs at most 5 %": (out["verify"]["cost"], lambda x: x <= 0.05),
        "verification finds a changed bit": (bool(out["verify"]["found_damage"]), lambda x: x),
        "attach takes under 1 % of the load": (out["attach"]["median"] / load, lambda x: x < 0.01),
        "save reaches 0.95 of plain O_DIRECT writes": (out["save"]["of_raw_writes"], lambda x: x >= 0.95),
        "the server ends within a second": (out["attach"]["release_seconds"], lambda x: x < 1),
    }
    return {name: {"value": value, "holds": bool(test(value))} for name, (value, test) in targets.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("directory")
    parser.add_argument("--gib", type=float, default=8)
    here = os.path.dirname(os.path.abspath(__file__))
    commands = [os.path.join(here, "culvert-command"), os.path.join(here, "..", "bin", "culvert")]
    parser.add_argument("--culvert", default=next(filter(os.path.exists, commands), "culvert"), help="the culvert command")
    args = parser.parse_args()
    os.makedirs(args.directory, exist_ok=True)
    theirs, ours = (os.path.join(args.directory, n) for n in ("theirs.safetensors", "ours.safetensors"))
    say(f"making {args.gib} GiB")
    tensors = model(args.gib)
    out = {
        "versions": {"torch": torch.__version__, "safetensors": safetensors.__version__, "python": platform.python_version()},
        "gpu": torch.cuda.get_device_name(0) if REAL else "software machine", "machine": culvert.machine()["why"],
        "tensors": len(tensors), "bytes": sum(t.nbytes for t in tensors.values()),
    }
    try:
        measure_save(ours, tensors, out)
        for path in (ours, ours + ".culvert.json"):
            os.remove(path)
        safetensors.torch.save_file(tensors, theirs, metadata={"format": "pt"})
        del tensors
        if REAL:
            torch.cuda.empty_cache()
        warm(theirs)
        measure_load(theirs, out)
        check_bits(theirs, out)
        measure_quarter(theirs, out)
        measure_verify(theirs, args.culvert, out)
        measure_batches(theirs, os.path.join(here, "tensor.test"), out)
        measure_attach(theirs, args.culvert, os.path.join(args.directory, "hold.sock"), out)
        leaks(theirs, out)
    finally:
        for path in (theirs, theirs + ".culvert.json", ours, ours + ".culvert.json"):
            if os.path.exists(path):
                os.remove(path)
    out["targets"] = judge(out)
    out["seconds"] = time.perf_counter() - START
    say("done")
    json.dump(out, sys.stdout, indent=1)
    print()
    return 0 if not REAL or all(t["holds"] for t in out["targets"].values()) else 1


START = time.perf_counter()

if __name__ == "__main__":
    sys.exit(main())
