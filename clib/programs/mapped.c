/*
 * Heap memory, pinned in place and mapped for the GPU: the registration gives it an
 * address on the GPU, and CPU and GPU use the same bytes.
 */
#include "counter.h"

enum { size = 64 << 10 };

int main(void)
{
	CUdevice device = use_device();
	unsigned int *host = (unsigned int *)aligned_alloc(4096, size);
	CUdeviceptr mapped = 0;

	if (!host)
		return 1;
	CHECK(cuMemHostRegister(host, size, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP));
	CHECK(cuMemHostGetDevicePointer(&mapped, host, 0));
	printf("host %s device address\n", (CUdeviceptr)host == mapped ? "equals" : "differs from");

	host[0] = 0;
	count_threads(mapped);
	printf("Results: %u\n", host[0]);

	CHECK(cuMemHostUnregister(host));
	free(host);
	CHECK(cuDevicePrimaryCtxRelease(device));
	return 0;
}
