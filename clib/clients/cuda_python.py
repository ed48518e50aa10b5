"""cuda-python's bindings of the driver and of cuFile, on whatever machine there is."""

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
    forked(ctx)
    sys.exit(0)
