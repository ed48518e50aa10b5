"""KvikIO: it opens libcuda.so.1 and libcufile.so.0 at run time, and takes what it finds."""

import os

# KvikIO allows stream I/O only with a configuration file of cuFile, whatever its
# contents.
os.environ["CUFILE_ENV_PATH_JSON"] = os.path.abspath("cufile.json")
with open("cufile.json", "w") as config:
    config.write("{}\n")

import kvikio
import kvikio.cufile_driver
import kvikio.defaults
import numpy as np
from cuda.bindings import driver as cu


def ok(result):
    assert result[0] == cu.CUresult.CUDA_SUCCESS, result[0]
    return result[1] if len(result) == 2 else result[1:]


class Device:
    """Bytes in GPU memory, in the form in which Python libraries hand them on."""

    def __init__(self, n):
        self.n, self.address = n, int(ok(cu.cuMemAlloc(n)))

    @property
    def __cuda_array_interface__(self):
        return {"shape": (self.n,), "typestr": "|u1", "data": (self.address, False), "version": 3}

    def numpy(self):
        host = np.empty(self.n, np.uint8)
        ok(cu.cuMemcpyDtoH(host.ctypes.data, self.address, self.n))
        return host


def main():
    ok(cu.cuInit(0))
    ok(cu.cuCtxSetCurrent(ok(cu.cuDevicePrimaryCtxRetain(ok(cu.cuDeviceGet(0))))))
    assert kvikio.cufile_driver.get("is_gds_available")
    data = np.random.default_rng(1).integers(0, 256, 8_000_000, np.uint8)
    path = "kvikio.bin"

    with kvikio.CuFile(path, "w") as f:
        assert f.write(data) == data.nbytes
    host = np.empty_like(data)
    with kvikio.CuFile(path, "r") as f:
        assert f.read(host) == data.nbytes
    assert (host == data).all()
    print("host memory: works")

    # With the compatibility mode off KvikIO does not read by itself: what it
    # gets comes through cuFile.
    with kvikio.defaults.set({"compat_mode": kvikio.CompatMode.OFF}):
        device = Device(data.nbytes)
        with kvikio.CuFile(path, "r") as f:
            assert f.pread(device).get() == data.nbytes
        assert (device.numpy() == data).all()
        print("device memory: works")

        with kvikio.defaults.set({"num_threads": 8, "task_size": 65536}), kvikio.CuFile(path, "r") as f:
            ok(cu.cuMemsetD8(device.address, 0, device.n))
            assert f.pread(device).get() == data.nbytes
        assert (device.numpy() == data).all()
        print("parallel reads: work")

        with kvikio.CuFile(path, "r+") as f:
            ok(cu.cuMemsetD8(device.address, 7, 1000))
            assert f.pwrite(device, 1000, file_offset=5000).get() == 1000
        assert (np.fromfile(path, np.uint8)[5000:6000] == 7).all()
        assert os.path.getsize(path) == data.nbytes
        print("unaligned write: works")

        with kvikio.CuFile(path, "r") as f:
            kvikio.memory_register(device)
            assert f.raw_read(device, 4096, file_offset=8192) == 4096
            kvikio.memory_deregister(device)
        assert (device.numpy()[:4096] == data[8192:12288]).all()
        print("registered buffer: works")

        stream = ok(cu.cuStreamCreate(1))
        with kvikio.CuFile(path, "r") as f:
            ok(cu.cuMemsetD8Async(device.address, 0, device.n, stream))
            future = f.raw_read_async(device, int(stream), 100_000, file_offset=12345, dev_offset=77)
            assert future.check_bytes_done() == 100_000
        assert (device.numpy()[77:100_077] == data[12345:112345]).all()
        print("stream: works")
    os.remove(path)


if __name__ == "__main__":
    main()
