/* /dev/gdrdrv before a fork: a program that has opened it and asked for its version can use
 * CUDA in its children, as with the real module. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cuda.h>

struct version { uint32_t driver, minimum; };
struct pin { uint64_t addr, size; uint32_t flags, pad; uint64_t handle; };

#define GET_VERSION _IOWR(0xDA, 255, struct version *)
#define PIN _IOWR(0xDA, 7, struct pin)

enum { gpu_page = 1 << 16 };

#define OK(call) \
	do { \
		if (!(call)) { \
			printf("line %d: %s: %s\n", __LINE__, #call, strerror(errno)); \
			exit(1); \
		} \
	} while (0)

static void show(const char *who, const char *what, int result)
{
	printf("%s: %s: %s\n", who, what, result < 0 ? strerror(errno) : "done");
	fflush(stdout);
}

static int core(void)
{
	return dlopen("libculvert.so", RTLD_LAZY | RTLD_NOLOAD) != NULL;
}

/* use pins memory of its own by a descriptor, and maps it. */
static int use(int fd)
{
	CUcontext context;
	CUdeviceptr d;
	OK(cuInit(0) == 0 && cuDevicePrimaryCtxRetain(&context, 0) == 0 && cuCtxSetCurrent(context) == 0);
	OK(cuMemAlloc(&d, 4 * gpu_page) == 0);
	struct pin p = {.addr = d, .size = gpu_page};
	int result = ioctl(fd, PIN, &p);
	if (result == 0) {
		unsigned char b = 0, *at = mmap(NULL, gpu_page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)(p.handle * 4096));
		OK(at != MAP_FAILED);
		at[7] = 0x42;
		OK(cuMemcpyDtoH(&b, d + 7, 1) == 0 && b == 0x42);
	}
	return result;
}

int main(void)
{
	struct version first = {0, 0}, later = {0, 0};
	int fd = open("/dev/gdrdrv", O_RDWR | O_CLOEXEC), status = 0;
	if (fd < 0) {
		show("parent", "open", fd);
		return 0;
	}
	OK(ioctl(fd, GET_VERSION, &first) == 0 && close(fd) == 0);
	OK((fd = open("/dev/gdrdrv", O_RDWR | O_CLOEXEC)) >= 0);
	show("parent", "version into nothing", ioctl(fd, GET_VERSION, NULL));
	printf("parent: the Go core runs: %d\n", core());
	fflush(stdout);
	pid_t pid = fork();
	OK(pid >= 0);
	if (pid == 0) {
		int own = open("/dev/gdrdrv", O_RDWR), copy = dup(fd);
		show("child", "version of the parent's descriptor", ioctl(fd, GET_VERSION, &later));
		OK(own >= 0 && copy >= 0 && close(copy) == 0);
		printf("child: the Go core runs: %d\n", core());
		show("child", "its own descriptor", use(own));
		show("child", "the parent's descriptor", use(fd));
		_exit(0);
	}
	OK(waitpid(pid, &status, 0) == pid && status == 0);
	int copy = dup(fd);
	OK(copy >= 0 && close(fd) == 0);
	show("parent", "a copy of the descriptor", use(copy));
	OK(ioctl(copy, GET_VERSION, &later) == 0);
	printf("parent: the same version by the Go core: %d\n", core() && memcmp(&first, &later, sizeof first) == 0);
	return 0;
}
