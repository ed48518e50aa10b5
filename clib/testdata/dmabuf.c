/* GPU memory as a dma-buf that the CPU maps, by the calls of GDRCopy's dma-buf backend: what
 * both sides see, how long the memory stays, and what is refused. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cuda.h>

enum { page = 4096, size = 2 << 20, half = size / 2, shared = MAP_SHARED, rw = PROT_READ | PROT_WRITE };

#define OK(call) \
	do { \
		if (!(call)) { \
			printf("line %d: %s: %s\n", __LINE__, #call, strerror(errno)); \
			exit(1); \
		} \
	} while (0)

static CUresult (*handle_of)(void *, CUdeviceptr, size_t, CUmemRangeHandleType, unsigned long long);
static CUresult (*attribute)(int *, CUdevice_attribute, CUdevice);

/* find finds the functions as GDRCopy does: by the driver's table, for CUDA 13.3. */
static void find(void)
{
	int version = 0;
	CUresult (*get)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);
	CUresult (*version_of)(int *);
	void *lib = dlopen("libcuda.so", RTLD_LAZY);
	OK(lib);
	OK(*(void **)&version_of = dlsym(lib, "cuDriverGetVersion"));
	OK(*(void **)&get = dlsym(lib, "cuGetProcAddress"));
	OK(version_of(&version) == 0);
	printf("driver of CUDA 13.3 or newer: %d\n", version >= 13030);
	OK(get("cuMemGetHandleForAddressRange", (void **)&handle_of, 13030, 0, NULL) == 0 && handle_of);
	OK(get("cuDeviceGetAttribute", (void **)&attribute, 13030, 0, NULL) == 0 && attribute);
}

static int export_range(CUdeviceptr at, size_t n, unsigned long long flags)
{
	int fd = -1;
	OK(handle_of(&fd, at, n, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, flags) == 0);
	return fd;
}

static void refused(const char *what, CUdeviceptr at, size_t n, int type, unsigned long long flags)
{
	int fd = -7;
	CUresult r = handle_of(&fd, at, n, (CUmemRangeHandleType)type, flags);
	printf("%s: %d, descriptor %s\n", what, r, fd == -7 ? "untouched" : "written");
}

static void not_mapped(const char *what, size_t n, int prot, int flags, int fd, off_t off)
{
	void *at = mmap(NULL, n, prot, flags, fd, off);
	printf("%s: %s\n", what, at == MAP_FAILED ? strerror(errno) : "mapped");
}

/* both copies through the mapping and through CUDA. */
static void both(CUdeviceptr d, volatile unsigned char *at)
{
	unsigned char back = 0;
	at[0] = 0x5a;
	at[half] = 0xa5;
	OK(cuMemcpyDtoH(&back, d + half, 1) == 0);
	printf("CUDA reads what the CPU wrote: %d\n", back == 0xa5);
	OK(cuMemsetD8(d, 0x33, size) == 0 && cuCtxSynchronize() == 0);
	printf("the CPU reads what CUDA wrote: %d\n", at[0] == 0x33 && at[size - 1] == 0x33);
}

static void children(int fd, volatile unsigned char *at)
{
	int status = 0;
	fflush(stdout);
	pid_t pid = fork();
	OK(pid >= 0);
	if (pid == 0) {
		at[1] = 0x77; /* the mapping is shared */
		bool refused = mmap(NULL, page, rw, shared, fd, 0) == MAP_FAILED && errno == EACCES;
		_exit(refused ? 0 : 1);
	}
	OK(waitpid(pid, &status, 0) == pid);
	printf("a child writes to the mapping: %d, and maps nothing: %d\n", at[1] == 0x77, status == 0);
}

int main(void)
{
	CUcontext context;
	CUdeviceptr d;
	size_t before, held, after, total;
	int has = -1, maps = -1, pipes[2];
	find();
	OK(cuInit(0) == 0 && cuDevicePrimaryCtxRetain(&context, 0) == 0 && cuCtxSetCurrent(context) == 0);
	OK(attribute(&has, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, 0) == 0);
	OK(attribute(&maps, CU_DEVICE_ATTRIBUTE_DMA_BUF_MMAP_SUPPORTED, 0) == 0);
	printf("dma-bufs: %d, which can be mapped: %d\n", has, maps);
	OK(cuMemGetInfo(&before, &total) == 0 && cuMemAlloc(&d, size) == 0);

	int fd = export_range(d, size, 0), pcie = export_range(d + half, half, CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE);
	refused("unknown flag", d, size, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 2);
	refused("known and unknown flag", d, size, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 3);
	refused("unknown type", d, size, 2, 0);
	refused("part of a page", d, page + 1, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
	refused("behind the end", d, size + page, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);

	OK(pipe(pipes) == 0);
	not_mapped("another pipe, for reading", page, PROT_READ, shared, pipes[0], 0);
	not_mapped("another pipe, for writing", page, rw, shared, pipes[0], 0);
	if (!maps) {
		not_mapped("a dma-buf without libculvert-dev.so", page, PROT_READ, shared, fd, 0);
		return 0;
	}
	not_mapped("private", page, rw, MAP_PRIVATE, fd, 0);
	not_mapped("at an address", page, rw, shared | MAP_FIXED_NOREPLACE, fd, 0);
	not_mapped("offset in a page", page, rw, shared, fd, 16);
	not_mapped("more than the dma-buf", size + 1, rw, shared, fd, 0);
	not_mapped("offset behind the end", page, rw, shared, fd, size);

	unsigned char *all = mmap(NULL, size, rw, shared, fd, 0), *second, *last;
	OK(all != MAP_FAILED);
	both(d, all);
	OK((second = mmap(NULL, page, PROT_READ, shared, pcie, 0)) != MAP_FAILED);
	OK((last = mmap(NULL, 100, rw, shared, fd, size - page)) != MAP_FAILED);
	all[half] = 1;
	last[99] = 2;
	printf("other mappings see it: %d\n", second[0] == 1 && all[size - page + 99] == 2);
	children(fd, all);

	OK(close(fd) == 0 && close(pcie) == 0 && cuMemFree(d) == 0);
	all[half] = 4;
	OK(cuMemGetInfo(&held, &total) == 0);
	printf("mappings keep freed memory: %d\n", second[0] == 4 && held == before - size);
	OK(munmap(all, size) == 0 && munmap(second, page) == 0 && munmap(last, page) == 0);
	OK(cuMemGetInfo(&after, &total) == 0);
	printf("and give it back: %d\n", after == before);
	return 0;
}
