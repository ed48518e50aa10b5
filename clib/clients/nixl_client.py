"""NIXL's storage plugins: GDS and GDS_MT call cuFile with GPU memory, POSIX reads and writes host memory.

    nixl_client.py [DIRECTORY [PLUGIN...]]
"""

import ctypes
import os
import sys

os.environ["NIXL_LOG_LEVEL"] = "WARN"  # it writes to standard output

import nixl_cu13 as nixl
from nixl_cu13._bindings import nixlBackendError as BackendError

BLOCK, COUNT = 64 << 10, 24
SIZE = BLOCK * COUNT

cudart = ctypes.CDLL("libcudart.so.13")


class Device:
    """Memory of the first GPU."""

    kind = "VRAM"

    def __init__(self, size):
        pointer = ctypes.c_void_p()
        assert cudart.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(size)) == 0
        self.address, self.size = pointer.value, size

    def store(self, data):
        assert cudart.cudaMemcpy(ctypes.c_void_p(self.address), data, ctypes.c_size_t(len(data)), 1) == 0

    def load(self):
        data = ctypes.create_string_buffer(self.size)
        assert cudart.cudaMemcpy(data, ctypes.c_void_p(self.address), ctypes.c_size_t(self.size), 2) == 0
        return data.raw


class Host:
    """Memory of the process."""

    kind = "DRAM"

    def __init__(self, size):
        self.data, self.size = ctypes.create_string_buffer(size), size
        self.address = ctypes.addressof(self.data)

    def store(self, data):
        ctypes.memmove(self.address, data, len(data))

    def load(self):
        return self.data.raw


def pattern(seed):
    return b"".join(bytes([(seed + 7 * i) % 251]) * BLOCK for i in range(COUNT))


def transfer(agent, plugin, operation, memory, fd, blocks):
    """One request of several blocks: block i of the memory, and block blocks[i] of the file."""
    local = agent.get_xfer_descs([(memory.address + i * BLOCK, BLOCK, 0) for i in range(len(blocks))], memory.kind)
    remote = agent.get_xfer_descs([(at * BLOCK, BLOCK, fd) for at in blocks], "FILE")
    request = agent.initialize_xfer(operation, local, remote, agent.name, backends=[plugin])
    try:
        state = agent.transfer(request)
        while state == "PROC":
            state = agent.check_xfer_state(request)
        return state
    except BackendError:
        return "failed"
    finally:
        agent.release_xfer_handle(request)


def run(plugin, memory):
    agent = nixl.nixl_agent("client", nixl.nixl_agent_config(backends=[]))
    agent.create_backend(plugin)
    path = f"{plugin}.bin"
    fd = os.open(path, os.O_CREAT | os.O_RDWR)
    registered = [
        agent.register_memory([(memory.address, SIZE, 0, "")], memory.kind, backends=[plugin]),
        agent.register_memory([(0, 2 * SIZE, fd, "")], "FILE", backends=[plugin]),
    ]

    want = pattern(1)
    memory.store(want)
    assert transfer(agent, plugin, "WRITE", memory, fd, range(COUNT)) == "DONE"
    with open(path, "rb") as f:
        assert f.read() == want, "the file"

    backwards = range(COUNT - 1, -1, -1)
    memory.store(bytes(SIZE))
    assert transfer(agent, plugin, "READ", memory, fd, backwards) == "DONE"
    got = memory.load()
    for i, at in enumerate(backwards):
        assert got[i * BLOCK : (i + 1) * BLOCK] == want[at * BLOCK : (at + 1) * BLOCK], f"block {at}"

    print(plugin, "behind the end of the file:", transfer(agent, plugin, "READ", memory, fd, [COUNT]), flush=True)
    assert transfer(agent, plugin, "READ", memory, fd, [3]) == "DONE"
    assert memory.load()[:BLOCK] == want[3 * BLOCK : 4 * BLOCK], "after a failure"

    for r in registered:
        agent.deregister_memory(r, backends=[plugin])
    os.close(fd)
    print(f"{plugin}: works", flush=True)


def main():
    os.chdir(sys.argv[1] if len(sys.argv) > 1 else ".")
    assert cudart.cudaSetDevice(0) == 0
    kinds = {"GDS": Device, "GDS_MT": Device, "POSIX": Host}
    for plugin in sys.argv[2:] or kinds:
        run(plugin, kinds[plugin](SIZE))


main()
