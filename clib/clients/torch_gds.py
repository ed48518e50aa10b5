"""PyTorch on a GPU or on the software machine, and torch.cuda.gds, unmodified.

Needs PyTorch with CUDA. Run it with Culvert's library in front:

    culvert run -- python3 torch_gds.py [DIRECTORY]

Allocates, copies, pins, uses streams and events; registers buffers, saves and loads
storages, compares the bytes, from several threads, from forked DataLoader workers and
from a spawned process. Prints one line per step; the last one is "all as expected".
The software machine runs no kernels, and says so to who launches one.
"""

import os
import sys
import threading

import torch
import torch.cuda.gds as gds
import torch.multiprocessing as mp

SIZE = 8 << 20  # bytes of a storage


def core():
    """Culvert's core, which its libcufile loads when it is called for the first time.

    PyTorch maps the libcufile of its own wheel as well; that says nothing about
    whose functions are called.
    """
    with open("/proc/self/maps") as maps:
        return sorted({line.split()[-1] for line in maps if "libculvert.so" in line})


def observed():
    """Whether "culvert run --observe" leaves the work to NVIDIA's library."""
    library = os.environ.get("CULVERT_WATCHED", "")
    return library != "" and not os.path.exists(os.path.join(os.path.dirname(library), "libculvert.so"))


def numbers(seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 255, (SIZE,), dtype=torch.uint8, generator=generator)


def memory():
    want = numbers(3)
    first = want.cuda()
    second = torch.empty_like(first)
    second.copy_(first)
    free, total = torch.cuda.mem_get_info()
    used = torch.cuda.memory_allocated()
    good = torch.equal(second.cpu(), want) and torch.equal(first[5:100].cpu(), want[5:100]) and 0 < free < total and used >= 2 * SIZE
    del first, second
    torch.cuda.empty_cache()
    return good and torch.cuda.memory_allocated() == used - 2 * SIZE


def streams():
    """Copies from and to pinned memory in two streams, in the order of an event."""
    source, back = numbers(4).pin_memory(), torch.zeros(SIZE, dtype=torch.uint8).pin_memory()
    one, two = torch.cuda.Stream(), torch.cuda.Stream(priority=-1)
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    with torch.cuda.stream(one):
        start.record()
        device = source.to("cuda", non_blocking=True)
        end.record()
    two.wait_event(end)
    with torch.cuda.stream(two):
        back.copy_(device, non_blocking=True)
    two.synchronize()
    return source.is_pinned() and torch.equal(back, source) and end.query() and start.elapsed_time(end) >= 0


def kernel():
    """Launches one. The software machine refuses it, and the next copy works."""
    try:
        works = int(torch.ones(4, dtype=torch.uint8, device="cuda").sum()) == 4
    except torch.AcceleratorError as e:
        works = "software" in torch.cuda.get_device_name(0) and "not supported" in str(e)
    return works and torch.equal(torch.arange(4).cuda().cpu(), torch.arange(4))


def round_trip(directory, name, seed, register):
    want = numbers(seed)
    src, dst = want.cuda(), torch.empty(SIZE, dtype=torch.uint8, device="cuda")
    if register:
        gds.gds_register_buffer(src.untyped_storage())
        gds.gds_register_buffer(dst.untyped_storage())
    f = gds.GdsFile(os.path.join(directory, name), os.O_CREAT | os.O_RDWR)
    f.save_storage(src.untyped_storage(), offset=0)
    f.load_storage(dst.untyped_storage(), offset=0)
    same = torch.equal(dst.cpu(), want)
    if register:
        gds.gds_deregister_buffer(src.untyped_storage())
        gds.gds_deregister_buffer(dst.untyped_storage())
    del f
    with open(os.path.join(directory, name), "rb") as plain:
        on_disk = torch.frombuffer(bytearray(plain.read()), dtype=torch.uint8)
    return same and torch.equal(on_disk, want)


def threads(directory, n):
    good = [False] * n

    def work(i):
        good[i] = all(round_trip(directory, f"thread{i}", 100 * i + k, k % 2 == 0) for k in range(4))

    pool = [threading.Thread(target=work, args=(i,)) for i in range(n)]
    for t in pool:
        t.start()
    for t in pool:
        t.join()
    return all(good)


class Numbers(torch.utils.data.Dataset):
    """A data set whose workers are forked beside a process that uses the GPU."""

    def __len__(self):
        return 64

    def __getitem__(self, i):
        return torch.full((4,), i)


def forked_workers():
    loader = torch.utils.data.DataLoader(Numbers(), batch_size=8, num_workers=4, multiprocessing_context="fork")
    return sum(int(batch.sum()) for batch in loader) == 4 * sum(range(64))


def spawned(directory, queue):
    queue.put(round_trip(directory, "spawned", 7, True))


def in_spawned_process(directory):
    context = mp.get_context("spawn")
    queue = context.Queue()
    child = context.Process(target=spawned, args=(directory, queue))
    child.start()
    good = queue.get(timeout=120)
    child.join()
    return good


def main():
    directory = sys.argv[1] if len(sys.argv) > 1 else "."
    print("torch", torch.__version__, torch.cuda.get_device_name(0))
    steps = [
        ("DataLoader workers forked before the first call", forked_workers),
        ("memory", memory),
        ("streams, events, pinned memory", streams),
        ("a kernel", kernel),
        ("save, load, compare, unregistered", lambda: round_trip(directory, "plain", 1, False)),
        ("save, load, compare, registered", lambda: round_trip(directory, "registered", 2, True)),
        ("eight threads", lambda: threads(directory, 8)),
        ("DataLoader workers forked after", forked_workers),
        ("a spawned process", lambda: in_spawned_process(directory)),
    ]
    good = True
    for name, step in steps:
        ok = step()
        good = good and ok
        print(f"{name}: {'ok' if ok else 'WRONG'}", flush=True)
    print("core:", *(os.path.basename(path) for path in core()))
    good = good and (len(core()) == 1 or observed())
    print("all as expected" if good else "NOT all as expected")
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
