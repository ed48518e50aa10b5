/*
 * Reverse the text of a file on the GPU.
 *
 *	strrev FILE
 *
 * cuFileRead reads the file into GPU memory, a kernel reverses it there and counts it,
 * cuFileWrite writes it back: the text is in host memory only to be printed. The file
 * keeps its length; a second run restores it.
 *
 * The kernel is PTX text. CUDA compiles it; the software GPU has a kernel of this name.
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

#include <cuda.h>
#include <cuda_runtime.h>
#include <cufile.h>

#include "strrev_ptx.h"

enum { room = 4096 };

static void check(int ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "%s failed\n", what);
	exit(1);
}

static void check_cufile(CUfileError_t status, const char *what)
{
	if (status.err == CU_FILE_SUCCESS)
		return;
	fprintf(stderr, "%s failed: %s\n", what, cuFileGetErrorString(status));
	exit(1);
}

static void launch(void *text, void *length)
{
	CUmodule module;
	CUfunction function;
	void *params[] = {&text, &length};
	check(cuModuleLoadData(&module, strrev_ptx) == CUDA_SUCCESS, "cuModuleLoadData");
	check(cuModuleGetFunction(&function, module, "strrev") == CUDA_SUCCESS, "cuModuleGetFunction");
	check(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL) == CUDA_SUCCESS, "cuLaunchKernel");
	check(cuCtxSynchronize() == CUDA_SUCCESS, "the kernel");
	check(cuModuleUnload(module) == CUDA_SUCCESS, "cuModuleUnload");
}

static int open_direct(const char *path)
{
	int fd = open(path, O_RDWR | O_DIRECT);
	if (fd < 0 && errno == EINVAL) /* a file system without O_DIRECT */
		fd = open(path, O_RDWR);
	if (fd < 0) {
		perror(path);
		exit(1);
	}
	return fd;
}

int main(int argc, char **argv)
{
	char text[room];
	int length = 0;
	void *gpu_text, *gpu_length;
	CUfileDescr_t descr;
	CUfileHandle_t handle;

	if (argc != 2) {
		fprintf(stderr, "usage: %s FILE\n", argv[0]);
		return 2;
	}
	check(cudaMalloc(&gpu_text, room) == cudaSuccess, "cudaMalloc");
	check(cudaMalloc(&gpu_length, sizeof length) == cudaSuccess, "cudaMalloc");
	/* Nothing promises that fresh GPU memory is zero, and the text ends at the first zero. */
	check(cudaMemset(gpu_text, 0, room) == cudaSuccess, "cudaMemset");
	check(cudaDeviceSynchronize() == cudaSuccess, "cudaDeviceSynchronize");

	check_cufile(cuFileDriverOpen(), "cuFileDriverOpen");
	int fd = open_direct(argv[1]);
	memset(&descr, 0, sizeof descr);
	descr.type = CU_FILE_HANDLE_TYPE_OPAQUE_FD;
	descr.handle.fd = fd;
	check_cufile(cuFileHandleRegister(&handle, &descr), "cuFileHandleRegister");
	check_cufile(cuFileBufRegister(gpu_text, room, 0), "cuFileBufRegister");

	check(cuFileRead(handle, gpu_text, room - 1, 0, 0) >= 0, "cuFileRead");
	launch(gpu_text, gpu_length);
	check(cudaMemcpy(&length, gpu_length, sizeof length, cudaMemcpyDeviceToHost) == cudaSuccess, "cudaMemcpy");
	printf("sys_len : %d\n", length);
	check(cuFileWrite(handle, gpu_text, (size_t)length, 0, 0) == length, "cuFileWrite");
	check(cudaMemcpy(text, gpu_text, room, cudaMemcpyDeviceToHost) == cudaSuccess, "cudaMemcpy");
	printf("%s\n", text);
	printf("See also %s\n", argv[1]);

	check_cufile(cuFileBufDeregister(gpu_text), "cuFileBufDeregister");
	cuFileHandleDeregister(handle);
	close(fd);
	check_cufile(cuFileDriverClose(), "cuFileDriverClose");
	check(cudaFree(gpu_text) == cudaSuccess, "cudaFree");
	check(cudaFree(gpu_length) == cudaSuccess, "cudaFree");
	return 0;
}
