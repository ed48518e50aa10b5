/*
 * Write GPU memory to a file and read it back: the smallest whole cuFile
 * program. It compiles as C and as C++.
 *
 *	rw FILE
 *
 * The buffer is filled on the GPU, written through one registered buffer, read
 * into another, and compared on the host.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cuda_runtime.h>
#include <cufile.h>

static const size_t size = 4 << 20;

static int cufile_ok(CUfileError_t status, const char *what)
{
	if (status.err == CU_FILE_SUCCESS)
		return 1;
	fprintf(stderr, "%s failed: %s (%d)\n", what, cuFileGetErrorString(status), (int)status.err);
	return 0;
}

static int cuda_ok(cudaError_t err, const char *what)
{
	if (err == cudaSuccess)
		return 1;
	fprintf(stderr, "%s failed: %s\n", what, cudaGetErrorString(err));
	return 0;
}

/* A transfer that fails leaves the reason in errno: the system's, or cuFile's. */
static int whole(ssize_t n, const char *what)
{
	if (n == (ssize_t)size)
		return 1;
	if (n >= 0)
		fprintf(stderr, "%s: %zd bytes of %zu\n", what, n, size);
	else
		fprintf(stderr, "%s failed: %s\n", what, IS_CUFILE_ERR(errno) ? CUFILE_ERRSTR(errno) : strerror(errno));
	return 0;
}

static int same(const void *device, unsigned char byte)
{
	unsigned char *host = (unsigned char *)malloc(size);
	int ok = host && cuda_ok(cudaMemcpy(host, device, size, cudaMemcpyDeviceToHost), "cudaMemcpy");
	for (size_t i = 0; ok && i < size; i++)
		if (host[i] != byte) {
			fprintf(stderr, "byte %zu is %02x, not %02x\n", i, host[i], byte);
			ok = 0;
		}
	free(host);
	return ok;
}

static int transfer(CUfileHandle_t handle, void *from, void *to)
{
	const unsigned char byte = 0x5a;
	return cuda_ok(cudaMemset(from, byte, size), "cudaMemset") && cuda_ok(cudaStreamSynchronize(0), "cudaStreamSynchronize") &&
	       whole(cuFileWrite(handle, from, size, 0, 0), "cuFileWrite") &&
	       whole(cuFileRead(handle, to, size, 0, 0), "cuFileRead") && same(to, byte);
}

static int with_buffers(CUfileHandle_t handle)
{
	void *from = NULL, *to = NULL;
	int ok = 0;
	if (cuda_ok(cudaMalloc(&from, size), "cudaMalloc") && cuda_ok(cudaMalloc(&to, size), "cudaMalloc") &&
	    cufile_ok(cuFileBufRegister(from, size, 0), "cuFileBufRegister")) {
		if (cufile_ok(cuFileBufRegister(to, size, 0), "cuFileBufRegister")) {
			ok = transfer(handle, from, to);
			ok = cufile_ok(cuFileBufDeregister(to), "cuFileBufDeregister") && ok;
		}
		ok = cufile_ok(cuFileBufDeregister(from), "cuFileBufDeregister") && ok;
	}
	cudaFree(from);
	cudaFree(to);
	return ok;
}

static int with_file(const char *path)
{
	int fd = open(path, O_CREAT | O_RDWR | O_DIRECT, 0664);
	if (fd < 0 && errno == EINVAL) /* a file system without O_DIRECT */
		fd = open(path, O_CREAT | O_RDWR, 0664);
	if (fd < 0) {
		perror(path);
		return 0;
	}
	CUfileDescr_t descr;
	CUfileHandle_t handle;
	memset(&descr, 0, sizeof descr);
	descr.type = CU_FILE_HANDLE_TYPE_OPAQUE_FD;
	descr.handle.fd = fd;
	int ok = cufile_ok(cuFileHandleRegister(&handle, &descr), "cuFileHandleRegister");
	if (ok) {
		ok = with_buffers(handle);
		cuFileHandleDeregister(handle);
	}
	close(fd);
	return ok;
}

int main(int argc, char **argv)
{
	if (argc != 2) {
		fprintf(stderr, "usage: %s FILE (which is overwritten with 4 MiB)\n", argv[0]);
		return 2;
	}
	if (!cufile_ok(cuFileDriverOpen(), "cuFileDriverOpen"))
		return 1;
	int ok = with_file(argv[1]);
	ok = cufile_ok(cuFileDriverClose(), "cuFileDriverClose") && ok;
	if (ok)
		printf("wrote and read %zu bytes\n", size);
	return ok ? 0 : 1;
}
