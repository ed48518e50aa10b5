"""cuda-python's bindings of the driver and of cuFile, on whatever machine there is."""

import ctypes
import os
import sys
import tempfile
import threading

from cuda.bindings import cufile
from cuda.bindings import driver as cu


def ok(result):
    assert result[0] == cu.CUresult.CUDA_SUCCESS, cu.cuGetErrorName(result[0])
    return result[1] if len(result) == 2 else result[1:]


def fails(error, call, *args):
    try:
        call(*args)
    except cufile.cuFileError as e:
        assert error in str(e), e
        print("refused:", error)
        return
    raise AssertionError(f"{call.__name__} did not fail")


def driver():
    ok(cu.cuInit(0))
    assert ok(cu.cuDriverGetVersion()) >= 13000
    assert ok(cu.cuDeviceGetCount()) >= 1
    device = ok(cu.cuDeviceGet(0))
    assert b"NVIDIA" in ok(cu.cuDeviceGetName(64, device))
    context = ok(cu.cuDevicePrimaryCtxRetain(device))
    ok(cu.cuCtxSetCurrent(context))
    memory = ok(cu.cuMemAlloc(4096))
    ok(cu.cuMemsetD8(memory, 0x41, 4096))
    host = bytearray(4096)
    ok(cu.cuMemcpyDtoH(host, memory, 4096))
    assert host == b"A" * 4096
    kind = cu.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE
    assert ok(cu.cuPointerGetAttribute(kind, memory)) == cu.CUmemorytype.CU_MEMORYTYPE_DEVICE
    stream = ok(cu.cuStreamCreate(0))
    ok(cu.cuMemsetD8Async(memory, 0x42, 4096, stream))
    ok(cu.cuStreamSynchronize(stream))
    ok(cu.cuStreamDestroy(stream))
    ok(cu.cuMemFree(memory))
    assert cu.cuMemFree(memory)[0] == cu.CUresult.CUDA_ERROR_INVALID_VALUE
    assert cu.cuMemAlloc(1 << 50)[0] == cu.CUresult.CUDA_ERROR_OUT_OF_MEMORY
    print("driver: works")
    return context


def register(fd):
    descr = cufile.Descr()
    descr.type = cufile.FileHandleType.OPAQUE_FD
    descr.handle.fd = fd
    return cufile.handle_register(descr.ptr)


def files(context):
    print("cuFile version", cufile.get_version() // 1000)
    cufile.driver_open()
    with tempfile.NamedTemporaryFile(dir=".") as f:
        f.write(b"hello from a file")
        f.flush()
        fd = os.open(f.name, os.O_RDWR)
        handle = register(fd)
        fails("HANDLE_ALREADY_REGISTERED", register, fd)
        memory = int(ok(cu.cuMemAlloc(4096)))
        cufile.buf_register(memory, 4096, 0)
        fails("MEMORY_ALREADY_REGISTERED", cufile.buf_register, memory, 4096, 0)
        assert cufile.read(handle, memory, 4096, 0, 0) == 17
        host = bytearray(17)
        ok(cu.cuMemcpyDtoH(host, memory, 17))
        assert host == b"hello from a file", host
        ok(cu.cuMemsetD8(memory, ord("J"), 1))
        assert cufile.write(handle, memory, 1, 0, 0) == 1
        with open(f.name, "rb") as again:
            assert again.read() == b"Jello from a file"
        fails("INVALID_MAPPING_RANGE", cufile.read, handle, memory, 8192, 0, 0)
        in_threads(handle, memory, context)
        cufile.buf_deregister(memory)
        fails("MEMORY_NOT_REGISTERED", cufile.buf_deregister, memory)
        cufile.handle_deregister(handle)
        fails("HANDLE_NOT_REGISTERED", cufile.read, handle, memory, 1, 0, 0)
        ok(cu.cuMemFree(memory))
        os.close(fd)
    cufile.driver_close()
    print("cuFile: works")


def in_threads(handle, memory, context):
    counts = []

    def work(i):
        ok(cu.cuCtxSetCurrent(context))
        for _ in range(50):
            counts.append(cufile.read(handle, memory, 1, i, i))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert counts == [1] * 400
    print("threads: work")


def settings():
    """Parameters before and after the driver opens, and statistics."""
    size = cufile.SizeTConfigParameter.PROPERTIES_IO_BATCHSIZE
    cufile.set_parameter_size_t(size, 32)
    cufile.set_parameter_bool(cufile.BoolConfigParameter.PREFER_IO_URING, True)
    cufile.driver_open()
    assert cufile.get_parameter_size_t(size) == 32
    assert cufile.get_parameter_bool(cufile.BoolConfigParameter.PREFER_IO_URING)
    low, high = cufile.get_parameter_min_max_value(size)
    assert (low, high) == (1, 256)
    fails("DRIVER_ALREADY_OPEN", cufile.set_parameter_size_t, size, 64)
    assert cufile.get_bar_size_in_kb(0) > 0
    cufile.set_stats_level(1)
    cufile.stats_start()
    with tempfile.NamedTemporaryFile(dir=".") as f:
        f.write(b"x" * 4096)
        f.flush()
        fd = os.open(f.name, os.O_RDONLY)
        handle = register(fd)
        host = bytearray(4096)
        assert cufile.read(handle, ctypes.addressof(ctypes.c_char.from_buffer(host)), 4096, 0, 0) == 4096
        stats = cufile.StatsLevel1()
        cufile.get_stats_l1(stats.ptr)
        assert (int(stats.read_ops.ok), int(stats.read_bytes)) == (1, 4096)
        cufile.handle_deregister(handle)
        os.close(fd)
    cufile.stats_stop()
    cufile.driver_close()
    print("parameters, statistics: work")


def batch():
    """Four reads at once, one of them across the end of the file."""
    cufile.driver_open()
    with tempfile.NamedTemporaryFile(dir=".") as f:
        f.write(bytes(i % 251 for i in range(10000)))
        f.flush()
        fd = os.open(f.name, os.O_RDONLY)
        handle = register(fd)
        memory = int(ok(cu.cuMemAlloc(1 << 16)))
        params = cufile.IOParams(4)
        for i in range(4):
            params[i].mode = cufile.BatchMode.BATCH
            params[i].fh = handle
            params[i].opcode = cufile.Opcode.READ
            params[i].cookie = i
            params[i].u.batch.dev_ptr_base = memory
            params[i].u.batch.dev_ptr_offset = i * 4096
            params[i].u.batch.file_offset = i * 3000
            params[i].u.batch.size_ = 3000
        ident = cufile.batch_io_set_up(4)
        cufile.batch_io_submit(ident, 4, params.ptr, 0)
        done = {}
        while len(done) < 4:
            events, n = cufile.IOEvents(4), ctypes.c_uint(4)
            cufile.batch_io_get_status(ident, 1, ctypes.addressof(n), events.ptr, 0)
            for e in range(n.value):
                assert events[e].status == cufile.Status.COMPLETE
                done[int(events[e].cookie)] = int(events[e].ret)
        assert done == {0: 3000, 1: 3000, 2: 3000, 3: 1000}, done
        host = bytearray(3000)
        ok(cu.cuMemcpyDtoH(host, memory + 8192, 3000))
        assert host == bytes(i % 251 for i in range(6000, 9000))
        cufile.batch_io_destroy(ident)
        ok(cu.cuMemFree(memory))
        cufile.handle_deregister(handle)
        os.close(fd)
    cufile.driver_close()
    print("batch: works")


def forked(context):
    """A child of a process that has used the library gets errors, not a hang."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            cufile.driver_open()
        except cufile.cuFileError as e:
            status = 0 if "DRIVER_NOT_INITIALIZED" in str(e) else 2
        os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0
    print("forked child: refused")


if __name__ == "__main__":
    ctx = driver()
    files(ctx)
    settings()
    batch()
    forked(ctx)
    sys.exit(0)
