/*
 * The cost of the C library: nanoseconds per empty call and per 4 KiB read into
 * registered GPU memory, in the best of several rounds; and how many of the reads
 * used a lease, without entering Go.
 *
 *	cost FILE
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cuda_runtime.h>
#include <cufile.h>

#include "leased.h"

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

int main(int argc, char **argv)
{
	enum { ROUNDS = 20, CALLS = 2000 };
	CUfileDescr_t d;
	CUfileHandle_t h;
	void *dev = NULL;
	int version;
	double best_call = 1e18, best_read = 1e18;
	if (argc != 2)
		return 2;
	memset(&d, 0, sizeof d);
	d.type = CU_FILE_HANDLE_TYPE_OPAQUE_FD;
	d.handle.fd = open(argv[1], O_RDWR);
	if (cuFileHandleRegister(&h, &d).err || cudaMalloc(&dev, 4096) || cuFileBufRegister(dev, 4096, 0).err)
		return 1;
	for (int r = 0; r < ROUNDS; r++) {
		double t = now();
		for (int i = 0; i < CALLS; i++)
			cuFileGetVersion(&version);
		t = (now() - t) / CALLS;
		if (t < best_call)
			best_call = t;
		t = now();
		for (int i = 0; i < CALLS; i++)
			if (cuFileRead(h, dev, 4096, 0, 0) != 4096)
				return 1;
		t = (now() - t) / CALLS;
		if (t < best_read)
			best_read = t;
	}
	printf("call %.0f ns, read %.0f ns, %lu of %d by leases\n", best_call, best_read, (unsigned long)leased(), ROUNDS * CALLS);
	return 0;
}
