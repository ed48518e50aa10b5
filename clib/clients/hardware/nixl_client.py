"""NIXL's GDS or GDS_MT plugin between a file and GPU memory: one JSON line for each
piece of work.

    nixl_client.py PLUGIN plain|direct FILE read|write:BLOCK:TOTAL...

Each is one request of TOTAL/BLOCK descriptors, posted four times, the first of
which counts separately.
"""
import ctypes
import json
import os
import resource
import sys
import time

sys.path.insert(0, os.environ["SITE"])
import nixl_cu13 as nixl


def device_memory(size):
    """The address of so many bytes on the first GPU."""
    cudart = ctypes.CDLL("libcudart.so.13")
    pointer = ctypes.c_void_p()
    if cudart.cudaSetDevice(0) or cudart.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(size)):
        raise MemoryError(f"cudaMalloc of {size} bytes")
    return pointer.value


def processor():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def post(agent, request):
    """Seconds and processor seconds of one transfer."""
    begin, cpu = time.perf_counter(), processor()
    state = agent.transfer(request)
    while state == "PROC":
        time.sleep(0.0002)
        state = agent.check_xfer_state(request)
    if state != "DONE":
        raise OSError(f"NIXL says {state}")
    return time.perf_counter() - begin, processor() - cpu


def measure(agent, plugin, memory, fd, work):
    operation, block, total = work.split(":")
    block, total = int(block), int(total)
    offsets = range(0, total, block)
    local = agent.get_xfer_descs([(memory + at, block, 0) for at in offsets], "VRAM")
    remote = agent.get_xfer_descs([(at, block, fd) for at in offsets], "FILE")
    request = agent.initialize_xfer(operation.upper(), local, remote, agent.name, backends=[plugin])
    runs = [post(agent, request) for _ in range(4)]
    agent.release_xfer_handle(request)
    gb = total / 1e9
    rates = [gb / seconds for seconds, _ in runs]
    print(json.dumps({"work": work, "first": rates[0], "rates": rates[1:], "cpu": sorted(cpu / gb for _, cpu in runs)[1]}), flush=True)


def main(plugin, way, path, *works):
    largest = max(int(w.split(":")[2]) for w in works)
    memory = device_memory(largest)
    agent = nixl.nixl_agent("bench", nixl.nixl_agent_config(backends=[]))
    agent.create_backend(plugin)
    fd = os.open(path, os.O_RDWR | (os.O_DIRECT if way == "direct" else 0))
    agent.register_memory([(memory, largest, 0, "")], "VRAM", backends=[plugin])
    agent.register_memory([(0, largest, fd, path)], "FILE", backends=[plugin])
    for work in works:
        measure(agent, plugin, memory, fd, work)
        if work.startswith("write"):
            os.fsync(fd)
    os._exit(0)  # what the libraries do at exit is no part of this


main(*sys.argv[1:])
