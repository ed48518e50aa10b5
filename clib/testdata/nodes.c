/* The software machine's device nodes from C, with libculvert-dev.so preloaded: every way
 * to open, copy and close a descriptor, the calls that are answered for it, and what is
 * left when it is gone. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cuda.h>

struct version { uint32_t driver, minimum; };
struct pin { uint64_t addr, size; uint32_t flags, pad; uint64_t handle; };
struct unpin { uint64_t handle; };
struct info {
	uint64_t handle, va, mapped_size;
	uint32_t page_size, tsc_khz;
	uint64_t tm_cycles;
	uint32_t mapping_type, pad;
};

/* As in gdrdrv.h, where most sizes are those of a pointer. */
#define GET_VERSION _IOWR(0xDA, 255, struct version *)
#define PIN _IOWR(0xDA, 7, struct pin)
#define UNPIN _IOWR(0xDA, 2, struct unpin *)
#define INFO _IOWR(0xDA, 5, struct info *)

/* What read and pread are in programs built with _FORTIFY_SOURCE. */
ssize_t __read_chk(int fd, void *buf, size_t n, size_t size);
ssize_t __pread_chk(int fd, void *buf, size_t n, off_t off, size_t size);
ssize_t __pread64_chk(int fd, void *buf, size_t n, off_t off, size_t size);

enum { page = 4096, gpu_page = 1 << 16 };

static CUdeviceptr memory;

#define OK(call) \
	do { \
		if (!(call)) { \
			printf("line %d: %s: %s\n", __LINE__, #call, strerror(errno)); \
			exit(1); \
		} \
	} while (0)

/* said names the answer of a call. */
static const char *said(long result)
{
	return result < 0 ? strerror(errno) : "done";
}

static int alive(int fd)
{
	struct version v = {0, 0};
	return ioctl(fd, GET_VERSION, &v) == 0 && v.driver >> 16 == 2;
}

/* pinned pins GPU memory and maps it. */
static unsigned char *pinned(int fd, uint64_t *handle, size_t size)
{
	struct pin pin = {.addr = memory, .size = size};
	OK(ioctl(fd, PIN, &pin) == 0);
	*handle = pin.handle;
	void *va = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)(pin.handle * page));
	OK(va != MAP_FAILED);
	return va;
}

static void opening(void)
{
	int at[] = {
		open("/dev/gdrdrv", O_RDWR), open64("/dev/gdrdrv", O_RDWR | O_CLOEXEC), openat(AT_FDCWD, "/dev/gdrdrv", O_RDWR),
		openat64(-1, "/dev/gdrdrv", O_RDWR), open("/dev/nvidia-fs0", O_RDWR), open("/dev/nvidia-fs15", O_RDWR),
	};
	printf("opened:");
	for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
		printf(" %s", at[i] < 0 ? "failed" : fcntl(at[i], F_GETFD) & FD_CLOEXEC ? "cloexec" : alive(at[i]) ? "gdrdrv" : "other");
		close(at[i]);
	}
	printf("\nan absent node: %s\n", said(open("/dev/libnvm7", O_RDWR)));
	printf("a node as a directory: %s\n", said(open("/dev/gdrdrv", O_RDONLY | O_DIRECTORY)));
	printf("a closed descriptor: %s\n", said(ioctl(at[0], GET_VERSION, NULL)));
	int other = open("/dev/null", O_RDWR);
	printf("the same number, another file: %s\n", said(ioctl(other, GET_VERSION, NULL)));
	close(other);
}

static void files(void)
{
	char text[64] = "", line[64] = "";
	struct stat st;
	struct statx sx;
	int fd = open("/proc/driver/gdrdrv/params", O_RDONLY);
	ssize_t n = read(fd, text, 12);
	OK(pread(fd, line, 12, 0) == 12 && memcmp(text, line, 12) == 0);
	printf("params: %.*s, then %zd bytes\n", (int)n, text, read(fd, line, 1));
	OK(close(fd) == 0);
	FILE *f = fopen("/proc/driver/nvidia-fs/version", "re");
	printf("by fopen: %s", f ? fgets(line, sizeof line, f) : "nothing\n");
	OK(f && fclose(f) == 0);
	printf("writing to it: %s\n", said(open("/proc/driver/nvidia-fs/version", O_RDWR)));
	printf("absent: %s\n", said(open("/proc/driver/nvidia-fs/absent", O_RDONLY)));
	OK(stat("/dev/gdrdrv", &st) == 0 && S_ISCHR(st.st_mode));
	OK(lstat("/dev/gpumem", &st) == 0 && S_ISCHR(st.st_mode));
	OK(fstatat(AT_FDCWD, "/proc/driver/nvidia/version", &st, 0) == 0 && S_ISREG(st.st_mode));
	OK(statx(AT_FDCWD, "/proc/driver/nvidia-fs/", 0, STATX_MODE, &sx) < 0 || S_ISDIR(sx.stx_mode));
	OK(statx(AT_FDCWD, "/dev/nvidia-fs3", 0, STATX_MODE, &sx) == 0 && S_ISCHR(sx.stx_mode));
	printf("status of an absent node: %s\n", said(stat("/dev/nvidia-fs99", &st)));
	OK(access("/dev/gdrdrv", R_OK | W_OK) == 0 && access("/proc/gpumem", R_OK) == 0);
	printf("running a node: %s\n", said(access("/dev/gdrdrv", X_OK)));
	OK(stat("/proc/self/status", &st) == 0 && stat("/dev/null", &st) == 0 && access("/dev/zero", R_OK) == 0);
}

static void descriptors(void)
{
	int fd = open("/dev/gdrdrv", O_RDWR), all[4];
	struct stat st;
	struct pollfd p = {.fd = fd, .events = POLLIN | POLLOUT};
	fd_set set;
	FD_ZERO(&set);
	FD_SET(fd, &set);
	OK(fstat(fd, &st) == 0 && S_ISCHR(st.st_mode));
	OK(poll(&p, 1, -1) == 1 && p.revents == (POLLIN | POLLOUT) && select(fd + 1, &set, NULL, NULL, NULL) == 1);
	char c;
	printf("read of a node: %s\n", said(read(fd, &c, 1)));
	printf("pread of a node: %s\n", said(pread(fd, &c, 1, 0)));
	OK(__read_chk(fd, &c, 1, 1) < 0 && __pread_chk(fd, &c, 1, 0, 1) < 0 && __pread64_chk(fd, &c, 1, 0, 1) < 0 && errno == EINVAL);
	OK(fstatat(fd, "", &st, AT_EMPTY_PATH) == 0 && S_ISCHR(st.st_mode));
	struct statx sx;
	OK(statx(fd, "", AT_EMPTY_PATH, STATX_MODE, &sx) == 0 && S_ISCHR(sx.stx_mode));

	uint64_t handle;
	struct pin pin = {.addr = memory, .size = gpu_page};
	OK(ioctl(fd, PIN, &pin) == 0);
	handle = pin.handle;
	all[0] = dup(fd);
	all[1] = fcntl(fd, F_DUPFD, 100);
	all[2] = dup2(fd, 101);
	all[3] = fcntl(fd, F_DUPFD_CLOEXEC, 102);
	OK(all[1] == 100 && all[2] == 101 && all[3] == 102 && (fcntl(all[3], F_GETFD) & FD_CLOEXEC));
	OK(dup3(fd, 103, 0) == 103 && dup2(103, 103) == 103 && close(fd) == 0);
	for (int i = 0; i < 4; i++) {
		struct info info = {.handle = handle};
		OK(ioctl(all[i], INFO, &info) == 0 && info.va == memory && close(all[i]) == 0);
	}
	/* Other files take the numbers of nodes, and nodes those of other files. */
	int null = open("/dev/null", O_RDWR);
	OK(dup2(null, 103) == 103 && !alive(103));
	fd = open("/dev/gdrdrv", O_RDWR);
	OK(dup2(fd, null) == null && alive(null) && close(fd) == 0 && alive(null) && close(null) == 0);
	struct info info = {.handle = handle};
	fd = open("/dev/gdrdrv", O_RDWR);
	printf("the pin of a closed node: %s\n", said(ioctl(fd, INFO, &info)));
	/* Closed behind the back of the library, and the number used again. */
	OK(syscall(SYS_close, fd) == 0 && open("/dev/null", O_RDWR) == fd);
	printf("closed unseen: %s\n", said(ioctl(fd, GET_VERSION, NULL)));
	close(fd);
	close(103);
}

static void mappings(void)
{
	uint64_t handle;
	int fd = open("/dev/gdrdrv", O_RDWR);
	unsigned char *va = pinned(fd, &handle, 2 * gpu_page), got[2 * gpu_page], there[2 * gpu_page / page];
	memset(va, 7, 2 * gpu_page);
	struct info info = {.handle = handle};
	OK(ioctl(fd, INFO, &info) == 0 && info.mapping_type == 1 && info.page_size == gpu_page && info.mapped_size == 2 * gpu_page);
	OK(cuMemcpyDtoH(got, memory, sizeof got) == 0 && got[0] == 7 && got[2 * gpu_page - 1] == 7);
	printf("a second mapping: %s\n", said((long)mmap(NULL, page, PROT_READ, MAP_SHARED, fd, (off_t)(handle * page))));
	printf("a private one: %s\n", said((long)mmap(NULL, page, PROT_READ, MAP_PRIVATE, fd, (off_t)(handle * page))));
	printf("one of nothing: %s\n", said((long)mmap(NULL, 0, PROT_READ, MAP_SHARED, fd, (off_t)(handle * page))));
	int ro = open("/dev/gdrdrv", O_RDONLY);
	printf("a writable one of a node opened for reading: %s\n", said((long)mmap(NULL, page, PROT_WRITE, MAP_SHARED, ro, 0)));
	close(ro);

	/* In parts: the rest stays, and the addresses of what is gone are not given away. */
	OK(munmap(va + page, page) == 0 && va[0] == 7 && va[2 * page] == 7);
	OK(mprotect(va + page, page, PROT_READ) == 0 && va[page] == 0); /* reserved, and not the GPU's */
	OK(munmap(va, page) == 0 && munmap(va + 3 * page, 2 * gpu_page - 3 * page) == 0 && va[2 * page] == 7);
	info.mapping_type = 9;
	OK(ioctl(fd, INFO, &info) == 0 && info.mapping_type == 1);
	OK(munmap(va + 2 * page, 1) == 0);
	OK(ioctl(fd, INFO, &info) == 0 && info.mapping_type == 0);
	OK(mincore(va, 2 * gpu_page, there) < 0 && errno == ENOMEM);

	/* With memory of the program on both sides. */
	struct unpin unpin = {handle};
	OK(ioctl(fd, UNPIN, &unpin) == 0);
	va = pinned(fd, &handle, gpu_page);
	void *below = mmap(va - page, page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	size_t more = below == va - page ? page : 0;
	OK(munmap(va - more, gpu_page + more) == 0 && mincore(va - more, more + page, there) < 0);

	/* The mapping outlives its descriptor. */
	unpin.handle = handle;
	OK(ioctl(fd, UNPIN, &unpin) == 0);
	va = pinned(fd, &handle, gpu_page);
	OK(close(fd) == 0);
	va[5] = 8;
	OK(cuMemcpyDtoH(got, memory, 6) == 0 && got[5] == 8 && munmap(va, gpu_page) == 0);
}

/* What children do with descriptors is not the parent's, and nodes are not theirs. */
static void children(void)
{
	uint64_t handle;
	int status, fd = open("/dev/gdrdrv", O_RDWR);
	unsigned char *va = pinned(fd, &handle, gpu_page), there;
	pid_t child = fork();
	if (child == 0) {
		struct version v;
		if (mincore(va, page, &there) == 0 || munmap(va, page))
			_exit(2); /* the mapping is not inherited */
		int good = ioctl(fd, GET_VERSION, &v) < 0 && errno == EACCES && mmap(NULL, page, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED;
		good = good && open("/dev/gdrdrv", O_RDWR) < 0 && errno == ENODEV && close(fd) == 0;
		_exit(good ? 0 : 1);
	}
	OK(waitpid(child, &status, 0) == child && status == 0 && alive(fd) && munmap(va, gpu_page) == 0);
	child = vfork();
	if (child == 0) { /* in the memory of its parent */
		close(fd);
		_exit(0);
	}
	OK(waitpid(child, &status, 0) == child && status == 0);
	printf("children: %s\n", alive(fd) ? "the parent's node is open" : "the parent's node is gone");
	OK(close(fd) == 0);
}

/* volatile, because the header says that open is never called so */
static const char *volatile no_path;

static void wild(void)
{
	int fd = open("/dev/gdrdrv", O_RDWR);
	printf("a wild argument: %s\n", said(ioctl(fd, GET_VERSION, (void *)16)));
	printf("an unknown request: %s\n", said(ioctl(fd, _IO(0xDA, 99), NULL)));
	printf("no descriptor: %s\n", said(ioctl(-1, GET_VERSION, NULL)));
	printf("no path: %s\n", said(open(no_path, O_RDONLY)));
	printf("unmapping nothing: %s\n", said(munmap((void *)(uintptr_t)page, 0)));
	close(fd);
}

/* quiet reports whether the Go core is not loaded, after calls that are not its. */
static int quiet(void)
{
	char line[512];
	struct stat st;
	int fd = open("/dev/null", O_RDWR), copy = dup(fd), loaded = 0;
	OK(fd >= 0 && copy >= 0 && stat("/dev/null", &st) == 0 && access("/sys", F_OK) == 0 && close(copy) == 0 && close(fd) == 0);
	void *va = mmap(NULL, page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	OK(va != MAP_FAILED && munmap(va, page) == 0);
	FILE *f = fopen("/proc/self/maps", "r");
	while (fgets(line, sizeof line, f))
		loaded |= strstr(line, "/libculvert.so") != NULL;
	fclose(f);
	return !loaded;
}

int main(void)
{
	CUcontext context;
	printf("before: %s\n", quiet() ? "no Go core" : "a Go core is loaded");
	setvbuf(stdout, NULL, _IOLBF, 0);
	opening();
	OK(cuInit(0) == 0 && cuCtxCreate(&context, 0, 0) == 0 && cuMemAlloc(&memory, 2 << 20) == 0);
	files();
	descriptors();
	mappings();
	children();
	wild();
	OK(cuMemFree(memory) == 0);
	return 0;
}
