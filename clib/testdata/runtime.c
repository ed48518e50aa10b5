/*
 * The runtime API call by call, one line each; like driver.c.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda.h>
#include <cuda_runtime.h>

#define SHOW(call) printf("%s = %d\n", #call, (int)(call))

enum { N = 1 << 20 };

static void devices(void)
{
	int n = 0, dev = -1, v = -1;
	char pci[32] = "";
	unsigned flags = 99;
	puts("# devices");
	SHOW(cudaGetDeviceCount(&n));
	printf("there is one: %d\n", n >= 1);
	SHOW(cudaGetDevice(&dev));
	printf("device %d\n", dev);
	SHOW(cudaSetDevice(64));
	SHOW(cudaPeekAtLastError());
	SHOW(cudaGetLastError());
	SHOW(cudaGetLastError());
	SHOW(cudaSetDevice(0));
	SHOW(cudaDeviceGetAttribute(&v, cudaDevAttrUnifiedAddressing, 0));
	printf("unified addressing %d\n", v);
	SHOW(cudaDeviceGetAttribute(&v, cudaDevAttrUnifiedAddressing, 64));
	SHOW(cudaDeviceGetPCIBusId(pci, sizeof pci, 0));
	SHOW(cudaDeviceGetByPCIBusId(&dev, pci));
	printf("device %d\n", dev);
	SHOW(cudaDriverGetVersion(&v));
	printf("13.0 or newer: %d\n", v >= 13000);
	SHOW(cudaRuntimeGetVersion(&v));
	printf("13: %d\n", v / 1000 == 13);
	SHOW(cudaGetDeviceFlags(&flags));
	SHOW(cudaGetLastError());
}

/* same compares a member with the attribute that it must be. */
static void same(const char *what, long long got, int attr)
{
	int v = -1;
	cudaError_t e = cudaDeviceGetAttribute(&v, (enum cudaDeviceAttr)attr, 0);
	printf("%s: %s\n", what, e == cudaSuccess && got == v ? "as the attribute" : "not as the attribute");
}

static void properties(void)
{
	struct cudaDeviceProp p;
	size_t free_mem = 0, total = 0, limit = 0;
	puts("# properties");
	memset(&p, 0xee, sizeof p);
	SHOW(cudaGetDeviceProperties(&p, 64));
	SHOW(cudaGetDeviceProperties(&p, 0));
	SHOW(cudaGetLastError());
	cudaMemGetInfo(&free_mem, &total);
	printf("name: %d, memory: %d\n", strstr(p.name, "NVIDIA") != NULL, p.totalGlobalMem >= total);
	same("warpSize", p.warpSize, 10);
	same("maxThreadsPerBlock", p.maxThreadsPerBlock, 1);
	same("maxGridSize[2]", p.maxGridSize[2], 7);
	same("totalConstMem", (long long)p.totalConstMem, 9);
	same("major", p.major, 75);
	same("multiProcessorCount", p.multiProcessorCount, 16);
	same("canMapHostMemory", p.canMapHostMemory, 19);
	same("concurrentKernels", p.concurrentKernels, 31);
	same("pciBusID", p.pciBusID, 33);
	same("pciDomainID", p.pciDomainID, 50);
	same("asyncEngineCount", p.asyncEngineCount, 40);
	same("unifiedAddressing", p.unifiedAddressing, 41);
	same("maxThreadsPerMultiProcessor", p.maxThreadsPerMultiProcessor, 39);
	same("managedMemory", p.managedMemory, 83);
	same("pageableMemoryAccess", p.pageableMemoryAccess, 88);
	same("concurrentManagedAccess", p.concurrentManagedAccess, 89);
	same("hostRegisterSupported", p.hostRegisterSupported, 99);
	same("hostRegisterReadOnlySupported", p.hostRegisterReadOnlySupported, 113);
	same("gpuDirectRDMASupported", p.gpuDirectRDMASupported, 116);
	same("gpuDirectRDMAFlushWritesOptions", p.gpuDirectRDMAFlushWritesOptions, 117);
	same("gpuDirectRDMAWritesOrdering", p.gpuDirectRDMAWritesOrdering, 118);
	SHOW(cudaDeviceSetLimit(cudaLimitMallocHeapSize, 16 << 20));
	SHOW(cudaDeviceGetLimit(&limit, cudaLimitMallocHeapSize));
	printf("limit %zu\n", limit);
	SHOW(cudaDeviceGetLimit(&limit, (enum cudaLimit)99));
	SHOW(cudaGetLastError());
}

static void memory(void)
{
	char *d = NULL, *p = NULL, *m = NULL, host[4096];
	size_t free_mem = 0, total = 0, pitch = 0;
	puts("# memory");
	SHOW(cudaFree(NULL));
	SHOW(cudaFreeHost(NULL));
	SHOW(cudaMemGetInfo(&free_mem, &total));
	SHOW(cudaMalloc((void **)&d, 0));
	printf("NULL: %d\n", d == NULL);
	SHOW(cudaMalloc(NULL, 16));
	SHOW(cudaMalloc((void **)&d, (size_t)1 << 60));
	SHOW(cudaGetLastError());
	SHOW(cudaMalloc((void **)&d, N));
	memset(host, 'x', sizeof host);
	SHOW(cudaMemcpy(d, host, sizeof host, cudaMemcpyHostToDevice));
	SHOW(cudaMemcpy(d + 4096, d, sizeof host, cudaMemcpyDeviceToDevice));
	SHOW(cudaMemcpy(d, host, sizeof host, (enum cudaMemcpyKind)9));
	SHOW(cudaMemset(d, 0x1161, 16));
	SHOW(cudaMemcpy(host, d, sizeof host, cudaMemcpyDefault));
	printf("%c%c\n", host[15], host[16]);
	SHOW(cudaMemcpy(d, host, 0, cudaMemcpyHostToDevice));
	SHOW(cudaMemcpy(d, host, (size_t)2 * N, cudaMemcpyDeviceToDevice));
	cudaGetLastError();
	SHOW(cudaMallocHost((void **)&p, 4096));
	SHOW(cudaMemcpyAsync(p, d + 4096, 4096, cudaMemcpyDeviceToHost, 0));
	SHOW(cudaStreamSynchronize(0));
	printf("%c\n", p[4095]);
	SHOW(cudaFree(p));
	SHOW(cudaFreeHost(p));
	SHOW(cudaHostAlloc((void **)&p, 4096, cudaHostAllocPortable));
	SHOW(cudaHostGetDevicePointer((void **)&m, p, 0));
	printf("the same: %d\n", m == p);
	SHOW(cudaFreeHost(p));
	SHOW(cudaMallocManaged((void **)&m, 4096, cudaMemAttachGlobal));
	strcpy(m, "managed");
	SHOW(cudaMemset(m, 'M', 1));
	SHOW(cudaDeviceSynchronize());
	puts(m);
	SHOW(cudaFree(m));
	p = aligned_alloc(4096, 8192);
	SHOW(cudaHostRegister(p, 8192, cudaHostRegisterDefault));
	SHOW(cudaHostRegister(p, 8192, cudaHostRegisterDefault));
	SHOW(cudaHostUnregister(p));
	SHOW(cudaHostUnregister(p));
	free(p);
	cudaGetLastError();
	SHOW(cudaMallocPitch((void **)&p, &pitch, 100, 10));
	printf("a pitch for it: %d\n", pitch >= 100 && pitch % 32 == 0);
	SHOW(cudaMemcpy2D(p, pitch, host, 100, 100, 10, cudaMemcpyHostToDevice));
	SHOW(cudaMemcpy2D(p, 50, host, 100, 100, 10, cudaMemcpyHostToDevice));
	SHOW(cudaFree(p));
	SHOW(cudaFree(d));
	SHOW(cudaFree(d));
	SHOW(cudaGetLastError());
}

static void attribute(const char *kind, void *p)
{
	struct cudaPointerAttributes a;
	memset(&a, 0x77, sizeof a);
	int err = (int)cudaPointerGetAttributes(&a, p);
	printf("%s: %d type %d device %d devicePointer %d hostPointer %d\n", kind, err, (int)a.type, a.device, a.devicePointer == p,
	       a.hostPointer == p);
}

static void pointers(void)
{
	void *d = NULL, *p = NULL, *m = NULL;
	int on_stack;
	puts("# what an address is");
	cudaMalloc(&d, N);
	cudaMallocHost(&p, N);
	cudaMallocManaged(&m, N, cudaMemAttachGlobal);
	attribute("device", d);
	attribute("pinned", p);
	attribute("managed", m);
	attribute("stack", &on_stack);
	SHOW(cudaFree(d));
	SHOW(cudaFreeHost(p));
	SHOW(cudaFree(m));
}

static void add(void *user)
{
	++*(int *)user;
}

static void streams(void)
{
	cudaStream_t s = NULL;
	cudaEvent_t a = NULL, b = NULL;
	float ms = -1;
	int n = 0;
	char *d = NULL;
	CUcontext ctx = NULL;
	puts("# streams, events, the driver underneath");
	cudaMalloc((void **)&d, N);
	SHOW(cudaStreamCreate(&s));
	SHOW(cudaEventCreate(&a));
	SHOW(cudaEventCreateWithFlags(&b, cudaEventBlockingSync));
	SHOW(cudaEventRecord(a, s));
	SHOW(cudaMemsetAsync(d, 1, N, s));
	SHOW(cudaLaunchHostFunc(s, add, &n));
	SHOW(cudaEventRecord(b, s));
	SHOW(cudaStreamWaitEvent(0, b, 0));
	SHOW(cudaDeviceSynchronize());
	SHOW(cudaStreamQuery(s));
	enum cudaStreamCaptureStatus capturing = cudaStreamCaptureStatusInvalidated;
	unsigned long long id = 7;
	SHOW(cudaStreamGetCaptureInfo(s, &capturing, &id, NULL, NULL, NULL, NULL));
	printf("capturing %d, id %llu\n", capturing, id);
	SHOW(cudaEventQuery(b));
	SHOW(cudaEventElapsedTime(&ms, a, b));
	printf("called %d times, took time %d\n", n, ms >= 0);
	SHOW(cudaEventDestroy(a));
	SHOW(cudaEventDestroy(b));
	SHOW(cudaStreamDestroy(s));
	SHOW(cuCtxGetCurrent(&ctx));
	printf("the runtime's context is current: %d\n", ctx != NULL);
	CUdeviceptr base = 0;
	SHOW(cuMemGetAddressRange(&base, NULL, (CUdeviceptr)d + 7));
	printf("the driver knows the memory: %d\n", base == (CUdeviceptr)d);
	SHOW(cudaFree(d));
	printf("%s: %s\n", cudaGetErrorName(cudaErrorMemoryAllocation), cudaGetErrorString(cudaErrorMemoryAllocation));
	printf("%s\n", cudaGetErrorString((cudaError_t)12345));
	SHOW(cudaDeviceReset());
	SHOW(cudaMalloc((void **)&d, 16));
	SHOW(cudaGetLastError());
}

int main(void)
{
	devices();
	properties();
	memory();
	pointers();
	streams();
	return 0;
}
