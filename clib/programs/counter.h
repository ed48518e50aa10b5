/* What uvm.c and mapped.c share: half a million threads count themselves. */
#include <stdio.h>
#include <stdlib.h>

#include <cuda.h>

#include "culvert_counter_ptx.h"

#define CHECK(op) check((op), #op)

static inline void check(CUresult code, const char *op)
{
	const char *name = "?", *message = "?";
	if (code == CUDA_SUCCESS)
		return;
	cuGetErrorName(code, &name);
	cuGetErrorString(code, &message);
	fprintf(stderr, "%s failed: code = %s, message = %s\n", op, name, message);
	exit(1);
}

static inline CUdevice use_device(void)
{
	CUdevice device;
	CUcontext context;
	CHECK(cuInit(0));
	CHECK(cuDeviceGet(&device, 0));
	CHECK(cuDevicePrimaryCtxRetain(&context, device));
	CHECK(cuCtxSetCurrent(context));
	return device;
}

static inline int attribute(CUdevice device, CUdevice_attribute attribute)
{
	int value = 0;
	CHECK(cuDeviceGetAttribute(&value, attribute, device));
	return value;
}

/* 512 blocks of 1000 threads, each of which adds one. */
static inline void count_threads(CUdeviceptr counter)
{
	CUmodule module;
	CUfunction function;
	void *params[] = {&counter};
	CHECK(cuModuleLoadData(&module, culvert_counter_ptx));
	CHECK(cuModuleGetFunction(&function, module, "culvert_counter"));
	CHECK(cuLaunchKernel(function, 512, 1, 1, 1000, 1, 1, 0, NULL, params, NULL));
	CHECK(cuCtxSynchronize());
	CHECK(cuModuleUnload(module));
}
