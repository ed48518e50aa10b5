/*
 * CPU and GPU share pinned host memory: the CPU writes a number into it, the GPU
 * another one, and the CPU reads both.
 *
 *	pinned [fail]
 *
 * With "fail" it makes a mistake on purpose, to show how errors are reported.
 */
#include <stdio.h>
#include <string.h>

#include <cuda.h>

#define CHECK(op) check((op), #op, __FILE__, __LINE__)

static int check(CUresult code, const char *op, const char *file, int line)
{
	const char *name = NULL, *message = NULL;
	if (code == CUDA_SUCCESS)
		return 1;
	cuGetErrorName(code, &name);
	cuGetErrorString(code, &message);
	const char *slash = strrchr(file, '/');
	printf("%s:%d  %s failed. \n  code = %s, message = %s\n", slash ? slash + 1 : file, line, op, name, message);
	return 0;
}

int main(int argc, char **argv)
{
	CUcontext context = NULL;
	CUdevice device = 0;
	CUdeviceptr device_memory = 0;
	float *pinned = NULL;
	const float value = 555;
	unsigned int bits;

	if (argc > 1 && strcmp(argv[1], "fail") == 0)
		return !CHECK(cuMemAlloc(&device_memory, 100)); /* before cuInit */

	if (!CHECK(cuInit(0)) || !CHECK(cuCtxCreate(&context, NULL, CU_CTX_SCHED_AUTO, device)))
		return 1;
	printf("context = %p\n", (void *)context);
	if (!CHECK(cuMemAlloc(&device_memory, 100)))
		return 1;
	printf("device_memory_pointer = %p\n", (void *)device_memory);
	if (!CHECK(cuMemAllocHost((void **)&pinned, 100)))
		return 1;
	printf("host_page_locked_memory = %p\n", (void *)pinned);

	pinned[0] = 123;
	printf("host_page_locked_memory[0] = %f\n", pinned[0]);
	memcpy(&bits, &value, sizeof bits);
	if (!CHECK(cuMemsetD32((CUdeviceptr)pinned, bits, 1)) || !CHECK(cuCtxSynchronize()))
		return 1;
	printf("host_page_locked_memory[0] = %f\n", pinned[0]);

	if (!CHECK(cuMemFreeHost(pinned)) || !CHECK(cuMemFree(device_memory)) || !CHECK(cuCtxDestroy(context)))
		return 1;
	return 0;
}
