/*
 * The driver API call by call, one line each: the code and visible effects. NVIDIA's
 * driver must give the same lines.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cuda.h>

#include "../programs/strrev_ptx.h"

#define SHOW(call) printf("%s = %d\n", #call, (int)(call))

enum { N = 1 << 20 };

static CUdevice dev;

static void before_init(void)
{
	int n = -1, version = 0;
	CUdeviceptr d = 0;
	CUcontext ctx = NULL;
	puts("# before cuInit");
	SHOW(cuDriverGetVersion(&version));
	printf("version is 13.0 or newer: %d\n", version >= 13000);
	SHOW(cuDeviceGetCount(&n));
	SHOW(cuMemAlloc(&d, 16));
	SHOW(cuCtxGetCurrent(&ctx));
	SHOW(cuInit(1));
	SHOW(cuInit(0));
	SHOW(cuInit(0));
}

static void devices(void)
{
	char name[128] = "", shortname[7], pci[32] = "";
	int n = 0, v = -1, major = 0, minor = 0;
	size_t mem = 0;
	CUuuid uuid;
	CUdevice found = -1;
	memset(&uuid, 0, sizeof uuid);
	puts("# devices");
	SHOW(cuDeviceGetCount(&n));
	SHOW(cuDeviceGetCount(NULL));
	SHOW(cuDeviceGet(&dev, 0));
	SHOW(cuDeviceGet(&found, 64));
	SHOW(cuDeviceGet(&found, -1));
	SHOW(cuDeviceGetName(name, sizeof name, dev));
	printf("has a name: %d\n", strstr(name, "NVIDIA") != NULL);
	SHOW(cuDeviceGetName(shortname, sizeof shortname, dev));
	printf("cut off: %s\n", shortname);
	SHOW(cuDeviceGetName(name, sizeof name, 64));
	SHOW(cuDeviceGetUuid(&uuid, dev));
	printf("uuid is not zero: %d\n", uuid.bytes[0] || uuid.bytes[1] || uuid.bytes[2]);
	SHOW(cuDeviceTotalMem(&mem, dev));
	printf("has memory: %d\n", mem >= 128 << 20);
	SHOW(cuDeviceGetAttribute(&v, CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, dev));
	printf("unified addressing %d\n", v);
	SHOW(cuDeviceGetAttribute(&v, (CUdevice_attribute)10, dev));
	printf("warp size %d\n", v);
	SHOW(cuDeviceGetAttribute(&v, (CUdevice_attribute)100000, dev));
	SHOW(cuDeviceGetAttribute(&v, CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 64));
	SHOW(cuDeviceComputeCapability(&major, &minor, dev));
	printf("capability is 7.0 or newer: %d\n", major >= 7);
	SHOW(cuDeviceGetPCIBusId(pci, sizeof pci, dev));
	printf("of length %zu\n", strlen(pci));
	SHOW(cuDeviceGetPCIBusId(pci, 4, dev));
	cuDeviceGetPCIBusId(pci, sizeof pci, dev);
	SHOW(cuDeviceGetByPCIBusId(&found, pci));
	printf("found: %d\n", found == dev);
	SHOW(cuDeviceGetByPCIBusId(&found, "nonsense"));
}

static void contexts(void)
{
	CUcontext primary = NULL, again = NULL, own = NULL, cur = NULL;
	CUdevice d = -1;
	unsigned flags = 9, version = 0;
	int active = -1;
	CUdeviceptr p = 0;
	puts("# contexts");
	SHOW(cuCtxGetCurrent(&cur));
	printf("none: %d\n", cur == NULL);
	SHOW(cuMemAlloc(&p, 16));
	SHOW(cuCtxGetDevice(&d));
	SHOW(cuCtxSynchronize());
	SHOW(cuCtxPopCurrent(&cur));
	SHOW(cuDevicePrimaryCtxGetState(dev, &flags, &active));
	printf("flags %u active %d\n", flags, active);
	SHOW(cuDevicePrimaryCtxRelease(dev));
	SHOW(cuDevicePrimaryCtxRetain(&primary, dev));
	SHOW(cuDevicePrimaryCtxRetain(&again, dev));
	printf("the same: %d\n", primary == again);
	SHOW(cuDevicePrimaryCtxGetState(dev, &flags, &active));
	printf("active %d\n", active);
	SHOW(cuCtxGetCurrent(&cur));
	printf("still none: %d\n", cur == NULL);
	SHOW(cuCtxSetCurrent(primary));
	SHOW(cuCtxGetDevice(&d));
	printf("device %d\n", d);
	SHOW(cuCtxGetApiVersion(primary, &version));
	SHOW(cuCtxDestroy(primary));
	SHOW(cuCtxCreate(&own, NULL, 0, dev));
	printf("another one: %d\n", own != primary);
	SHOW(cuCtxGetCurrent(&cur));
	printf("current: %d\n", cur == own);
	SHOW(cuCtxPopCurrent(&cur));
	printf("popped: %d\n", cur == own);
	SHOW(cuCtxGetCurrent(&cur));
	printf("primary again: %d\n", cur == primary);
	SHOW(cuCtxPushCurrent(own));
	SHOW(cuMemAlloc(&p, 4096));
	SHOW(cuCtxDestroy(own));
	SHOW(cuCtxGetCurrent(&cur));
	printf("primary again: %d\n", cur == primary);
	SHOW(cuCtxPushCurrent(NULL));
	SHOW(cuCtxSetCurrent(NULL));
	SHOW(cuCtxGetCurrent(&cur));
	printf("none: %d\n", cur == NULL);
	CUctxCreateParams params;
	memset(&params, 0, sizeof params);
	SHOW(cuCtxCreate(&own, &params, 0, dev));
	SHOW(cuCtxDestroy(own));
	SHOW(cuCtxCreate(&own, NULL, 0, 64));
	SHOW(cuCtxCreate(&own, NULL, 0xffff, dev));
	SHOW(cuDevicePrimaryCtxRelease(dev));
	SHOW(cuCtxSetCurrent(primary));
}

static void memory(void)
{
	CUdeviceptr d = 0, base = 0, m = 0;
	size_t size = 0, free_mem = 0, total = 0;
	unsigned char *host = malloc(N), *pinned = NULL;
	unsigned flags = 0;
	puts("# memory");
	SHOW(cuMemGetInfo(&free_mem, &total));
	printf("some is free: %d\n", free_mem > 0 && free_mem <= total);
	SHOW(cuMemAlloc(&d, 0));
	SHOW(cuMemAlloc(NULL, 16));
	SHOW(cuMemAlloc(&d, (size_t)1 << 60));
	SHOW(cuMemAlloc(&d, N));
	SHOW(cuMemGetAddressRange(&base, &size, d + 100));
	printf("base and size: %d %zu\n", base == d, size);
	SHOW(cuMemGetAddressRange(NULL, &size, d));
	SHOW(cuMemGetAddressRange(&base, &size, (CUdeviceptr)host));
	for (int i = 0; i < N; i++)
		host[i] = (unsigned char)(i * 7);
	SHOW(cuMemcpyHtoD(d, host, N));
	SHOW(cuMemcpyHtoD(d, host, 0));
	SHOW(cuMemcpyHtoD(d + 1, host, N));
	SHOW(cuMemcpyHtoD(0, host, 16));
	memset(host, 0, N);
	SHOW(cuMemcpyDtoH(host, d, N));
	printf("came back: %d\n", host[1] == 7 && host[N - 1] == (unsigned char)((N - 1) * 7));
	SHOW(cuMemcpyDtoD(d, d + 512 * 1024, 4096));
	SHOW(cuMemsetD8(d, 0x11, 16));
	SHOW(cuMemsetD16(d + 16, 0x2233, 8));
	SHOW(cuMemsetD32(d + 32, 0x44556677, 4));
	SHOW(cuMemsetD32(d + 2, 1, 1));
	SHOW(cuMemsetD16(d + 1, 1, 1));
	SHOW(cuMemsetD8(d, 0, 0));
	SHOW(cuMemsetD8(d, 0, (size_t)N + 1));
	SHOW(cuMemcpyDtoH(host, d, 48));
	printf("bytes %02x %02x%02x %02x%02x%02x%02x\n", host[15], host[16], host[17], host[32], host[33], host[34], host[35]);
	SHOW(cuMemFree(d + 16));
	SHOW(cuMemFree(d));
	SHOW(cuMemFree(d));
	SHOW(cuMemFree((CUdeviceptr)host));
	SHOW(cuMemcpyHtoD(d, host, 16));

	SHOW(cuMemAllocHost((void **)&pinned, 4096));
	SHOW(cuMemHostGetDevicePointer(&d, pinned, 0));
	printf("the same address: %d\n", d == (CUdeviceptr)pinned);
	SHOW(cuMemHostGetDevicePointer(&d, host, 0));
	SHOW(cuMemHostGetDevicePointer(&d, pinned, 1));
	SHOW(cuMemsetD8((CUdeviceptr)pinned, 0xab, 4096));
	SHOW(cuCtxSynchronize());
	printf("written by the GPU: %02x\n", pinned[4095]);
	SHOW(cuMemFree((CUdeviceptr)pinned));
	SHOW(cuMemFreeHost(pinned + 1));
	SHOW(cuMemFreeHost(pinned));
	SHOW(cuMemFreeHost(host));
	SHOW(cuMemHostAlloc((void **)&pinned, 4096, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_WRITECOMBINED));
	SHOW(cuMemHostGetFlags(&flags, pinned));
	printf("write-combined: %d\n", (flags & CU_MEMHOSTALLOC_WRITECOMBINED) != 0);
	SHOW(cuMemHostGetFlags(&flags, host));
	SHOW(cuMemFreeHost(pinned));
	SHOW(cuMemHostAlloc((void **)&pinned, 4096, 0x100));
	SHOW(cuMemHostAlloc((void **)&pinned, 0, 0));

	unsigned char *map = mmap(NULL, 2 * N, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	SHOW(cuMemHostUnregister(map));
	SHOW(cuMemHostRegister(map, N, 0));
	SHOW(cuMemHostRegister(map, 4096, 0));
	SHOW(cuMemHostRegister(map + 4096, N, 0));
	SHOW(cuMemHostGetDevicePointer(&d, map + 64, 0));
	SHOW(cuMemHostUnregister(map + 4096));
	SHOW(cuMemHostUnregister(map));
	SHOW(cuMemHostUnregister(map));
	SHOW(cuMemHostRegister(map, 0, 0));
	SHOW(cuMemHostRegister(NULL, 4096, 0));

	SHOW(cuMemAllocManaged(&m, N, CU_MEM_ATTACH_GLOBAL));
	memset((void *)m, 3, 16);
	SHOW(cuMemsetD8(m + 8, 4, 8));
	SHOW(cuCtxSynchronize());
	printf("both sides: %d %d\n", ((char *)m)[7], ((char *)m)[8]);
	SHOW(cuMemFree(m));
	SHOW(cuMemAllocManaged(&m, N, 0));
	SHOW(cuMemAllocManaged(&m, 0, CU_MEM_ATTACH_GLOBAL));
	munmap(map, 2 * N);
	free(host);
}

/* Virtual memory: sizes and addresses are in units of the granularity. */
static void virtual_memory(void)
{
	CUmemAllocationProp prop, told;
	CUmemAccessDesc access;
	CUmemGenericAllocationHandle h = 0, again = 0;
	CUdeviceptr p = 0, base = 0;
	size_t grain = 0, size = 0;
	unsigned long long flags = 99;
	char host[16] = "virtual memory", back[16] = "";
	puts("# virtual memory");
	memset(&prop, 0, sizeof prop);
	memset(&told, 0, sizeof told);
	memset(&access, 0, sizeof access);
	SHOW(cuMemGetAllocationGranularity(&grain, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
	prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
	prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	SHOW(cuMemGetAllocationGranularity(&grain, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
	printf("2 MiB: %d\n", grain == 2 << 20);
	SHOW(cuMemCreate(&h, grain + 1, &prop, 0));
	SHOW(cuMemCreate(&h, 2 * grain, &prop, 0));
	SHOW(cuMemGetAllocationPropertiesFromHandle(&told, h));
	printf("told: %d %d\n", told.type == prop.type, told.location.type == prop.location.type);
	SHOW(cuMemAddressReserve(&p, 100, 0, 0, 0));
	SHOW(cuMemAddressReserve(&p, 4 * grain, 0, 0, 0));
	printf("aligned: %d\n", p % grain == 0);
	SHOW(cuMemMap(p, 2 * grain, 0, h, 0));
	SHOW(cuMemMap(p, 2 * grain, 0, h, 0));
	SHOW(cuMemMap(p + 64 * grain, 2 * grain, 0, h, 0));
	access.location = prop.location;
	access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
	SHOW(cuMemSetAccess(p + 2 * grain, grain, &access, 1));
	SHOW(cuMemSetAccess(p, 2 * grain, &access, 1));
	SHOW(cuMemGetAccess(&flags, &prop.location, p));
	printf("access %llu\n", flags);
	SHOW(cuMemcpyHtoD(p + grain - 8, host, sizeof host));
	SHOW(cuMemcpyDtoH(back, p + grain - 8, sizeof back));
	printf("came back: %s\n", back);
	SHOW(cuMemGetAddressRange(&base, &size, p + 5));
	printf("range: %d %d\n", base == p, size == 2 * grain);
	SHOW(cuMemFree(p));
	SHOW(cuMemRetainAllocationHandle(&again, (void *)(p + 5)));
	printf("the same: %d\n", again == h);
	SHOW(cuMemRelease(again));
	SHOW(cuMemRelease(h));
	SHOW(cuMemcpyDtoH(back, p + grain - 8, sizeof back));
	SHOW(cuMemAddressFree(p, 4 * grain));
	SHOW(cuMemUnmap(p, 2 * grain));
	SHOW(cuMemAddressFree(p, 4 * grain));
}

static void attribute(const char *kind, CUdeviceptr p)
{
	unsigned type = 77, managed = 77, mapped = 77;
	int ordinal = 77;
	CUdeviceptr d = 77, start = 77;
	void *host = (void *)77;
	size_t size = 77;
	printf("%s: type %d", kind, (int)cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p));
	printf(" %u", type);
	printf(" managed %d", (int)cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, p));
	printf(" %u", managed & 0xff);
	printf(" ordinal %d", (int)cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, p));
	printf(" %d", ordinal);
	printf(" device %d", (int)cuPointerGetAttribute(&d, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, p));
	printf(" %d", d == p);
	printf(" host %d", (int)cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, p));
	printf(" %d", (CUdeviceptr)host == p);
	printf(" start %d", (int)cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, p));
	printf(" %d", start == p - 64);
	printf(" size %d", (int)cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, p));
	printf(" %zu", size);
	printf(" mapped %d", (int)cuPointerGetAttribute(&mapped, CU_POINTER_ATTRIBUTE_MAPPED, p));
	printf(" %u\n", mapped & 0xff);
}

static void pointers(void)
{
	CUdeviceptr d = 0, m = 0;
	void *pinned = NULL;
	char host[256];
	unsigned one = 1, type = 77, sync = 77;
	int ordinal = 77;
	CUcontext ctx = (CUcontext)77, cur = NULL;
	unsigned long long a = 0, b = 0;
	puts("# what an address is");
	cuMemAlloc(&d, N);
	cuMemAllocHost(&pinned, N);
	cuMemAllocManaged(&m, N, CU_MEM_ATTACH_GLOBAL);
	attribute("device", d + 64);
	attribute("pinned", (CUdeviceptr)pinned + 64);
	attribute("managed", m + 64);
	attribute("heap", (CUdeviceptr)host);
	cuCtxGetCurrent(&cur);
	SHOW(cuPointerGetAttribute(&ctx, CU_POINTER_ATTRIBUTE_CONTEXT, d));
	printf("of the current context: %d\n", ctx == cur);
	SHOW(cuPointerGetAttribute(&a, CU_POINTER_ATTRIBUTE_BUFFER_ID, d));
	SHOW(cuPointerGetAttribute(&b, CU_POINTER_ATTRIBUTE_BUFFER_ID, m));
	printf("ids differ: %d\n", a != b);
	SHOW(cuPointerGetAttribute(&a, (CUpointer_attribute)1000, d));
	SHOW(cuPointerGetAttribute(NULL, CU_POINTER_ATTRIBUTE_CONTEXT, d));
	CUpointer_attribute want[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_CONTEXT};
	void *outs[] = {&type, &ordinal, &ctx};
	SHOW(cuPointerGetAttributes(3, want, outs, d));
	printf("type %u ordinal %d context %d\n", type, ordinal, ctx == cur);
	SHOW(cuPointerGetAttributes(3, want, outs, (CUdeviceptr)host));
	printf("type %u ordinal %d context %d\n", type, ordinal, ctx == NULL);
	SHOW(cuPointerSetAttribute(&one, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, d));
	SHOW(cuPointerGetAttribute(&sync, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, d));
	printf("sync memops %u\n", sync & 0xff);
	SHOW(cuPointerSetAttribute(&one, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, (CUdeviceptr)host));
	SHOW(cuPointerSetAttribute(&one, CU_POINTER_ATTRIBUTE_BUFFER_ID, d));
	SHOW(cuMemFree(d));
	SHOW(cuMemFree(m));
	SHOW(cuMemFreeHost(pinned));
	attribute("freed", d + 64);
}

static int order[4], at;

static void note(void *user)
{
	order[at++ & 3] = *(int *)user;
}

static void callback(CUstream s, CUresult status, void *user)
{
	(void)s;
	order[at++ & 3] = status == CUDA_SUCCESS ? *(int *)user : -1;
}

static void streams(void)
{
	CUstream s = NULL, nb = NULL, gone;
	CUevent start = NULL, end = NULL, untimed = NULL;
	CUdeviceptr d = 0, flag = 0;
	CUcontext ctx = NULL, cur = NULL;
	unsigned char *pinned = NULL;
	unsigned flags = 9;
	float ms = -1;
	static int one = 1, two = 2, three = 3;
	puts("# streams and events");
	cuMemAlloc(&d, N);
	cuMemAlloc(&flag, 8);
	cuMemAllocHost((void **)&pinned, N);
	SHOW(cuStreamCreate(&s, CU_STREAM_DEFAULT));
	SHOW(cuStreamCreate(&nb, CU_STREAM_NON_BLOCKING));
	SHOW(cuStreamCreate(&gone, 0x80));
	SHOW(cuStreamGetFlags(nb, &flags));
	printf("flags %u\n", flags);
	cuCtxGetCurrent(&cur);
	SHOW(cuStreamGetCtx(s, &ctx));
	printf("current context: %d\n", ctx == cur);
	SHOW(cuStreamQuery(s));
	SHOW(cuEventCreate(&start, CU_EVENT_DEFAULT));
	SHOW(cuEventCreate(&end, CU_EVENT_BLOCKING_SYNC));
	SHOW(cuEventCreate(&untimed, CU_EVENT_DISABLE_TIMING));
	SHOW(cuEventCreate(&untimed, 0x100));
	SHOW(cuEventQuery(start));
	SHOW(cuEventElapsedTime(&ms, start, end));
	SHOW(cuEventRecord(start, s));
	SHOW(cuMemsetD8Async(d, 0x77, N, s));
	SHOW(cuMemcpyDtoHAsync(pinned, d, N, s));
	SHOW(cuLaunchHostFunc(s, note, &one));
	SHOW(cuStreamAddCallback(s, callback, &two, 0));
	SHOW(cuEventRecord(end, s));
	SHOW(cuStreamWaitEvent(nb, end, 0));
	SHOW(cuLaunchHostFunc(nb, note, &three));
	SHOW(cuStreamSynchronize(nb));
	printf("in order: %d %d %d, byte %02x\n", order[0], order[1], order[2], pinned[N - 1]);
	SHOW(cuEventSynchronize(end));
	SHOW(cuEventQuery(end));
	SHOW(cuEventElapsedTime(&ms, start, end));
	printf("took time: %d\n", ms >= 0);
	SHOW(cuEventElapsedTime(&ms, start, untimed));
	SHOW(cuLaunchHostFunc(s, NULL, NULL));

	/* A stream that waits for a value is busy until it is there. */
	SHOW(cuMemsetD32(flag, 0, 2));
	SHOW(cuStreamWaitValue32(nb, flag, 5, CU_STREAM_WAIT_VALUE_GEQ));
	SHOW(cuEventRecord(end, nb));
	SHOW(cuStreamQuery(nb));
	SHOW(cuEventQuery(end));
	SHOW(cuStreamWriteValue32(s, flag, 6, 0));
	SHOW(cuStreamSynchronize(nb));
	SHOW(cuStreamWriteValue64(s, flag, 1ull << 40, 0));
	SHOW(cuStreamWaitValue64(nb, flag, 1ull << 40, CU_STREAM_WAIT_VALUE_EQ));
	SHOW(cuStreamSynchronize(nb));
	SHOW(cuStreamWaitValue32(nb, flag, 5, 77));

	/* The default stream waits for blocking streams implicitly. */
	SHOW(cuMemsetD8Async(d, 0x21, N, s));
	SHOW(cuMemcpyDtoHAsync(pinned, d, N, NULL));
	SHOW(cuStreamSynchronize(NULL));
	printf("byte %02x\n", pinned[N - 1]);
	SHOW(cuMemcpyAsync(d, (CUdeviceptr)pinned, N, CU_STREAM_LEGACY));
	SHOW(cuStreamSynchronize(CU_STREAM_PER_THREAD));

	SHOW(cuStreamDestroy(s));
	SHOW(cuStreamDestroy(nb));
	SHOW(cuEventDestroy(start));
	SHOW(cuEventDestroy(end));
	SHOW(cuMemFree(d));
	SHOW(cuMemFree(flag));
	SHOW(cuMemFreeHost(pinned));
}

static void kernels(void)
{
	CUmodule mod = NULL;
	CUfunction f = NULL, again = NULL;
	CUdeviceptr text = 0, length = 0;
	char host[16] = "abcdef";
	int n = 0, max = 0;
	puts("# kernels");
	cuMemAlloc(&text, 4096);
	cuMemAlloc(&length, 4);
	SHOW(cuModuleLoadData(&mod, "this is not PTX"));
	SHOW(cuModuleLoadData(&mod, strrev_ptx));
	SHOW(cuModuleGetFunction(&f, mod, "no_such_kernel"));
	SHOW(cuModuleGetFunction(&f, mod, "strrev"));
	SHOW(cuModuleGetFunction(&again, mod, "strrev"));
	printf("the same: %d\n", f == again);
	SHOW(cuFuncGetAttribute(&max, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, f));
	printf("threads per block %d\n", max);
	SHOW(cuMemcpyHtoD(text, host, sizeof host));
	void *params[] = {&text, &length};
	SHOW(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
	SHOW(cuCtxSynchronize());
	SHOW(cuMemcpyDtoH(host, text, sizeof host));
	SHOW(cuMemcpyDtoH(&n, length, sizeof n));
	printf("%s %d\n", host, n);
	CUdeviceptr packed[] = {text, length};
	size_t size = sizeof packed;
	void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END};
	SHOW(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra));
	SHOW(cuMemcpyDtoH(host, text, sizeof host));
	printf("%s\n", host);
	SHOW(cuLaunchKernel(f, 0, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
	SHOW(cuLaunchKernel(f, 1, 1, 1, 2048, 1, 1, 0, NULL, params, NULL));
	SHOW(cuModuleUnload(mod));
	SHOW(cuMemFree(text));
	SHOW(cuMemFree(length));
}

static void names(void)
{
	const char *s = "";
	void *fn = (void *)1;
	CUdriverProcAddressQueryResult status;
	puts("# names");
	SHOW(cuGetErrorName(CUDA_ERROR_OUT_OF_MEMORY, &s));
	puts(s);
	SHOW(cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &s));
	puts(s);
	SHOW(cuGetErrorName((CUresult)12345, &s));
	printf("NULL: %d\n", s == NULL);
	SHOW(cuGetProcAddress("cuMemAlloc", &fn, 12000, 0, &status));
	printf("found: %d, status %d\n", fn != NULL, (int)status);
	SHOW(cuGetProcAddress("cuNoSuchFunction", &fn, 12000, 0, &status));
	printf("found: %d, status %d\n", fn != NULL, (int)status);
	CUresult (*count)(int *) = NULL;
	int n = 0;
	SHOW(cuGetProcAddress("cuDeviceGetCount", (void **)&count, 12000, 0, NULL));
	SHOW(count(&n));
	printf("there is one: %d\n", n >= 1);
}

int main(void)
{
	setvbuf(stdout, NULL, _IOLBF, 0); // a crash shows how far it came
	before_init();
	devices();
	contexts();
	memory();
	virtual_memory();
	pointers();
	streams();
	kernels();
	names();
	return 0;
}
