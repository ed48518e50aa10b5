/*
 * One pointer for CPU and GPU: the CPU sets a counter, the threads of the GPU add to
 * it, the CPU prints it.
 *
 * If the GPU can access all memory of the process (heterogeneous memory management),
 * the counter is on the heap. Otherwise that pointer would be an illegal address for
 * the GPU, and the counter is managed memory.
 */
#include "counter.h"

int main(void)
{
	CUdevice device = use_device();
	int pageable = attribute(device, CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS);
	unsigned int *counter = NULL;

	if (pageable)
		counter = (unsigned int *)malloc(sizeof *counter);
	else
		CHECK(cuMemAllocManaged((CUdeviceptr *)&counter, sizeof *counter, CU_MEM_ATTACH_GLOBAL));
	printf("counter in %s memory\n", pageable ? "pageable" : "managed");

	*counter = 0;
	count_threads((CUdeviceptr)counter);
	printf("Results: %u\n", *counter);

	if (pageable)
		free(counter);
	else
		CHECK(cuMemFree((CUdeviceptr)counter));
	CHECK(cuDevicePrimaryCtxRelease(device));
	return 0;
}
