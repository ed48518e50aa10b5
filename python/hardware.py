"""Measures the Python package on a machine with a GPU, torch and safetensors.

    python3 hardware.py DIRECTORY [--gib 8] [--culvert bin/culvert]

Makes a model of realistic shape in DIRECTORY (hundreds of tensors, bf16 and fp8,
odd sizes) with the safetensors package, warms it, and compares culvert.load_file
with safetensors.torch.load_file and with a pinned copy of the same bytes. Then:
bit equality, a tensor-parallel quarter, verification, saving from the GPU, and
attaching to a model that another process holds. Prints JSON; "targets" says what
was promised and whether it holds. Takes a minute, 2.2 times the model's size on
disk and 3 times on the GPU.

Without a GPU it runs on the software machine, to show that it works: then the
figures mean nothing.
"""

import argparse
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import safetensors
import safetensors.torch
import torch

import culvert
import culvert.torch

REAL = torch.cuda.is_available()
DEVICE = "cuda:0" if REAL else "cpu"


def say(text):
    print(f"[{time.perf_counter() - START:6.1f}s] {text}", file=sys.stderr, flush=True)


def sync():
    if REAL:
        torch.cuda.synchronize()


def clock(do):
    """Seconds that do() takes, and its result."""
    sync()
    start = time.perf_counter()
    result = do()
    sync()
    return time.perf_counter() - start, result


def times(do, runs):
    """The first time and the median of the others; results are dropped at once."""
    first, result = clock(do)
    del result
    rest = []
    for _ in range(runs):
        seconds, result = clock(do)
        del result
        rest.append(seconds)
    return {"first": first, "median": statistics.median(rest), "all": rest}


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
    """Writes back and reads once, so that everything comes from the page cache."""
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


def measure_load(path, out):
    say("culvert.load_file")
    out["culvert"] = times(lambda: culvert.torch.load_file(path, "cuda:0"), 5)
    out["receipt"] = {k: v for k, v in culvert.last_receipt().items() if k != "files"}
    out["routes"] = [f["receipt"]["bytes_by_route"] for f in culvert.last_receipt()["files"]]
    say("safetensors.torch.load_file")
    out["safetensors"] = times(lambda: safetensors.torch.load_file(path, DEVICE), 2)
    out["pinned_copy"] = pinned_copy(out["bytes"])
    # Again, next to the ceiling: the machine may have become slower meanwhile.
    out["culvert_again"] = times(lambda: culvert.torch.load_file(path, "cuda:0"), 3)


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
    out["verify"]["cost"] = checked["median"] / plain["median"] - 1


def measure_attach(path, command, sock, out):
    say("attaching to a held model")
    holder = subprocess.Popen([command, "load", path, "gpu:0", "--hold", sock], stdout=subprocess.PIPE, text=True)
    try:
        for line in holder.stdout:
            if line.startswith("holding "):
                break
        else:
            raise RuntimeError("the holder ended")
        culvert.torch.load_file(path, "cuda:0", only="model.norm.weight")  # the GPU is open
        result = out["attach"] = times(lambda: culvert.attach(sock), 9)
        result["all_tensors"] = statistics.median(clock(lambda: dict(culvert.attach(sock)))[0] for _ in range(5))
        held, second = culvert.attach(sock), culvert.attach(sock)
        result["shared"] = held.shared
        result["different"] = differing(dict(held), culvert.torch.load_file(path, "cuda:0"))
        if REAL:
            held["model.norm.weight"].zero_()
            torch.cuda.synchronize()
            result["writes_are_seen"] = not bool(bits(second["model.norm.weight"]).any())
        start = time.perf_counter()
        holder.send_signal(signal.SIGINT)
        result["status"] = holder.wait(20)
        result["release_seconds"] = time.perf_counter() - start
        result["socket_removed"] = not os.path.exists(sock)
        result["outlives_holder"] = torch.equal(bits(held["lm_head.weight"]), bits(second["lm_head.weight"]))
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()


def measure_save(path, tensors, out):
    say("saving from the GPU")
    seconds, _ = clock(lambda: culvert.torch.save_file(tensors, path, metadata={"format": "pt"}))
    out["save"] = {"seconds": seconds, "gb_per_second": out["bytes"] / seconds / 1e9}
    with safetensors.safe_open(path, "pt", DEVICE) as f:
        names = sorted(f.keys())[:20]
        out["save"]["different"] = differing({n: f.get_tensor(n) for n in names}, {n: tensors[n] for n in names})
    out["save"]["names"] = set(culvert.safe_open(path).keys()) == set(tensors)


def leaks(path, out):
    """Loads until memory would have run out several times over."""
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
    """The promises, and whether they hold."""
    load = min(out["culvert"]["median"], out["culvert_again"]["median"])
    different = out["different"] + out["quarter"]["different"] + out["attach"]["different"] + out["save"]["different"]
    targets = {
        "5 x safetensors": (out["safetensors"]["median"] / load, lambda x: x >= 5),
        "0.85 of the pinned copy": (out["pinned_copy"] / load if out["pinned_copy"] else 0, lambda x: x >= 0.85),
        "bit-identical": (len(different), lambda x: x == 0),
        "a quarter reads at most 1.05 of a quarter": (out["quarter"]["read_share"], lambda x: x <= 1.05),
        "verification costs at most 5 %": (out["verify"]["cost"], lambda x: x <= 0.05),
        "attach takes under 1 % of the load": (out["attach"]["median"] / load, lambda x: x < 0.01),
        "the holder ends within a second": (out["attach"]["release_seconds"], lambda x: x < 1),
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
