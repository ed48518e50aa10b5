/*
 * A read by a lease waits for the default stream of the caller's context, as every
 * read does: tested on the software machine, with a libcuda that only reports whether
 * the stream is busy (fakecuda.c).
 *
 *	ordered FILE
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cuda_runtime.h>
#include <cufile.h>

#include "leased.h"

enum { SIZE = 4096, READS = 100 };

static CUfileHandle_t file;
static void *dev;
static unsigned char host[SIZE];

static const char *memory(void)
{
	cudaMemcpy(host, dev, SIZE, cudaMemcpyDeviceToHost);
	return host[0] == 0x11 && host[SIZE - 1] == 0x11 ? "new" : host[0] == 0xC5 && host[SIZE - 1] == 0xC5 ? "old" : "mixed";
}

static void on_wait(void)
{
	printf("wait: memory is %s\n", memory());
}

/* How many of some reads go by leases: all, but where one has run out. */
static int by_leases(int reads)
{
	uint64_t before = leased();
	for (int i = 0; i < reads; i++)
		if (cuFileRead(file, dev, SIZE, 0, 0) != SIZE)
			exit(4);
	return (int)(leased() - before);
}

int main(int argc, char **argv)
{
	void *lib = dlopen("libcuda.so.1", RTLD_NOW);
	if (argc != 2 || !lib)
		return 2;
	void **context = dlsym(lib, "fake_context");
	int *busy = dlsym(lib, "fake_busy");
	long *queries = dlsym(lib, "fake_queries"), *waits = dlsym(lib, "fake_waits"), *sets = dlsym(lib, "fake_sets");
	void (**hook)(void) = dlsym(lib, "fake_on_wait");
	if (!context || !busy || !queries || !waits || !sets || !hook)
		return 3;
	CUfileDescr_t d;
	memset(&d, 0, sizeof d);
	memset(host, 0x11, SIZE);
	d.type = CU_FILE_HANDLE_TYPE_OPAQUE_FD;
	d.handle.fd = open(argv[1], O_CREAT | O_RDWR, 0600);
	if (pwrite(d.handle.fd, host, SIZE, 0) != SIZE || cuFileHandleRegister(&file, &d).err || cudaMalloc(&dev, SIZE) ||
	    cuFileBufRegister(dev, SIZE, 0).err)
		return 1;

	*context = (void *)0x1230;
	long before = *queries;
	int many = by_leases(READS) > READS / 2;
	printf("idle: by leases %d, queries %ld, waits %ld\n", many, *queries - before, *waits);

	/* The lease may run out while the memory is made old again. */
	for (int tries = 0; tries < 1000; tries++) {
		*hook = NULL;
		by_leases(2);
		cudaMemset(dev, 0xC5, SIZE);
		*busy = 1;
		*hook = on_wait;
		fflush(stdout);
		before = *waits;
		if (by_leases(1) == 1) {
			printf("busy: by a lease, waits %ld, memory is %s\n", *waits - before, memory());
			break;
		}
	}
	*hook = NULL;

	*context = NULL;
	before = *queries;
	many = by_leases(READS) > READS / 2;
	printf("no context: by leases %d, queries %ld\n", many, *queries - before);
	printf("context: %s, set %ld times\n", *context ? "CHANGED" : "kept", *sets);
	return 0;
}
