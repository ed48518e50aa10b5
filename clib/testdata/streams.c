/*
 * Stream I/O of a program that uses only the runtime, and of one with wild pointers.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cuda_runtime.h>
#include <cufile.h>

int main(int argc, char **argv)
{
	CUfileDescr_t d = {.type = CU_FILE_HANDLE_TYPE_OPAQUE_FD};
	CUfileHandle_t h;
	cudaStream_t s;
	void *dev, *nowhere = (void *)0x10000;
	size_t size = 4096;
	off_t file_offset = 0, buf_offset = 0;
	ssize_t n = 0;
	(void)argc;
	setvbuf(stdout, NULL, _IOLBF, 0); /* a crash shows how far it came */
	d.handle.fd = open(argv[1], O_CREAT | O_TRUNC | O_RDWR, 0644);
	if (ftruncate(d.handle.fd, 1 << 20) || cudaMalloc(&dev, 1 << 20) || cudaStreamCreate(&s) || cuFileHandleRegister(&h, &d).err)
		return 1;
#define TRY(what, call)                                                    \
	do {                                                               \
		n = 0;                                                     \
		int err = (int)(call).err;                                 \
		cudaStreamSynchronize(s);                                  \
		cudaStreamSynchronize(NULL);                               \
		printf("%s: %d, %zd bytes\n", what, err, n);               \
	} while (0)
	TRY("read", cuFileReadAsync(h, dev, &size, &file_offset, &buf_offset, &n, (CUstream)s));
	TRY("write", cuFileWriteAsync(h, dev, &size, &file_offset, &buf_offset, &n, (CUstream)s));
	TRY("default stream", cuFileReadAsync(h, dev, &size, &file_offset, &buf_offset, &n, NULL));
	TRY("size nowhere", cuFileReadAsync(h, dev, nowhere, &file_offset, &buf_offset, &n, (CUstream)s));
	TRY("file offset nowhere", cuFileReadAsync(h, dev, &size, nowhere, &buf_offset, &n, (CUstream)s));
	TRY("buffer offset nowhere", cuFileWriteAsync(h, dev, &size, &file_offset, nowhere, &n, (CUstream)s));
	TRY("result nowhere", cuFileReadAsync(h, dev, &size, &file_offset, &buf_offset, nowhere, (CUstream)s));
	TRY("result in a constant", cuFileWriteAsync(h, dev, &size, &file_offset, &buf_offset, (ssize_t *)(void *)"constants", (CUstream)s));
	TRY("stream nowhere", cuFileReadAsync(h, dev, &size, &file_offset, &buf_offset, &n, nowhere));
	return 0;
}
