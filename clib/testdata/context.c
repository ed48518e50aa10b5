/* cuFile calls keep the caller's CUDA context current: one that the caller created,
 * and none. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cuda.h>
#include <cufile.h>

enum { SIZE = 4 << 20 };

static const char *same(CUcontext want)
{
	CUcontext now = NULL;
	cuCtxGetCurrent(&now);
	return now == want ? "kept" : "CHANGED";
}

int main(int argc, char **argv)
{
	if (argc != 2) {
		fprintf(stderr, "usage: %s FILE\n", argv[0]);
		return 2;
	}
	CUcontext own = NULL;
	CUdeviceptr mem = 0;
	cuInit(0);
	if (cuCtxCreate(&own, NULL, 0, 0) || cuMemAlloc(&mem, SIZE)) {
		fprintf(stderr, "no context or no memory\n");
		return 1;
	}
	int fd = open(argv[1], O_RDWR | O_CREAT, 0600);
	if (fd < 0 || ftruncate(fd, SIZE)) {
		perror(argv[1]);
		return 1;
	}
	CUfileHandle_t h = NULL;
	CUfileDescr_t d;
	memset(&d, 0, sizeof d);
	d.handle.fd = fd;
	d.type = CU_FILE_HANDLE_TYPE_OPAQUE_FD;
	printf("open %d: %s\n", cuFileDriverOpen().err, same(own));
	printf("register file %d: %s\n", cuFileHandleRegister(&h, &d).err, same(own));
	printf("register buffer %d: %s\n", cuFileBufRegister((void *)mem, SIZE, 0).err, same(own));
	printf("read 4096: %zd: %s\n", cuFileRead(h, (void *)mem, 4096, 0, 0), same(own));
	printf("read all: %zd: %s\n", cuFileRead(h, (void *)mem, SIZE, 0, 0), same(own));
	printf("write all: %zd: %s\n", cuFileWrite(h, (void *)mem, SIZE, 0, 0), same(own));
	cuCtxSetCurrent(NULL);
	printf("read with none: %zd: %s\n", cuFileRead(h, (void *)mem, SIZE, 0, 0), same(NULL));
	cuCtxSetCurrent(own);
	cuFileHandleDeregister(h);
	printf("close %d: %s\n", cuFileDriverClose().err, same(own));
	return 0;
}
