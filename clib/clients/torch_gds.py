"""PyTorch's torch.cuda.gds on Culvert's libcufile, unmodified.

Needs a GPU and PyTorch with CUDA. Run it with Culvert's library in front:

    culvert run -- python3 torch_gds.py DIRECTORY

Registers buffers, saves and loads storages, compares the bytes, from several
threads, from forked DataLoader workers and from a spawned process. Prints one
line per step; the last one is "all as expected".
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


def round_trip(directory, name, seed, register):
    torch.manual_seed(seed)
    src = torch.randint(0, 255, (SIZE,), dtype=torch.uint8, device="cuda")
    dst = torch.empty_like(src)
    if register:
        gds.gds_register_buffer(src.untyped_storage())
        gds.gds_register_buffer(dst.untyped_storage())
    f = gds.GdsFile(os.path.join(directory, name), os.O_CREAT | os.O_RDWR)
    f.save_storage(src.untyped_storage(), offset=0)
    f.load_storage(dst.untyped_storage(), offset=0)
    same = torch.equal(src, dst)
    if register:
        gds.gds_deregister_buffer(src.untyped_storage())
        gds.gds_deregister_buffer(dst.untyped_storage())
    del f
    with open(os.path.join(directory, name), "rb") as plain:
        on_disk = torch.frombuffer(bytearray(plain.read()), dtype=torch.uint8)
    return same and torch.equal(src.cpu(), on_disk)


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
    directory = sys.argv[1]
    print("torch", torch.__version__, torch.cuda.get_device_name(0))
    steps = [
        ("DataLoader workers forked before the first call", forked_workers),
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
    print("core:", *core())
    good = good and len(core()) == 1
    print("all as expected" if good else "NOT all as expected")
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
