// Copies by the CUDA driver from C, to hold the Go driver against. It needs no
// CUDA headers. The argument is the library to load; each line on the input
//
//	h2d|d2h|h2d+sync pinned|pageable BYTES WARMUP COUNT
//
// is answered by the nanoseconds that COUNT copies took, after WARMUP others.
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef int res;
typedef uint64_t ptr;

static void *lib;
static void *sym(const char *name)
{
	void *f = dlsym(lib, name);
	if (!f) {
		fprintf(stderr, "%s\n", dlerror());
		exit(1);
	}
	return f;
}

static void check(const char *what, res r)
{
	if (r) {
		fprintf(stderr, "%s: %d\n", what, r);
		exit(1);
	}
}

static uint64_t now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}

int main(int argc, char **argv)
{
	enum { ROOM = 1 << 30 };
	if (argc != 2 || !(lib = dlopen(argv[1], RTLD_NOW))) {
		fprintf(stderr, "usage: copybench LIBCUDA: %s\n", argc == 2 ? dlerror() : "");
		return 1;
	}
	res (*init)(unsigned) = sym("cuInit");
	res (*retain)(void **, int) = sym("cuDevicePrimaryCtxRetain");
	res (*set)(void *) = sym("cuCtxSetCurrent");
	res (*alloc)(ptr *, size_t) = sym("cuMemAlloc_v2");
	res (*host_alloc)(void **, size_t, unsigned) = sym("cuMemHostAlloc");
	res (*h2d)(ptr, const void *, size_t) = sym("cuMemcpyHtoD_v2");
	res (*d2h)(void *, ptr, size_t) = sym("cuMemcpyDtoH_v2");
	res (*sync)(void *) = sym("cuStreamSynchronize");

	void *ctx, *pinned, *pageable = malloc(ROOM);
	ptr device;
	check("cuInit", init(0));
	check("cuDevicePrimaryCtxRetain", retain(&ctx, 0));
	check("cuCtxSetCurrent", set(ctx));
	check("cuMemAlloc", alloc(&device, ROOM));
	check("cuMemHostAlloc", host_alloc(&pinned, ROOM, 1));
	memset(pageable, 1, ROOM);
	memset(pinned, 1, ROOM);

	char dir[16], kind[16];
	size_t bytes, warmup, count;
	while (scanf("%15s %15s %zu %zu %zu", dir, kind, &bytes, &warmup, &count) == 5 && bytes <= ROOM) {
		void *host = strcmp(kind, "pinned") ? pageable : pinned;
		int out = !strcmp(dir, "d2h"), settle = !strcmp(dir, "h2d+sync");
		uint64_t start = 0;
		for (size_t i = 0; i < warmup + count; i++) {
			if (i == warmup)
				start = now();
			check("copy", out ? d2h(host, device, bytes) : h2d(device, host, bytes));
			if (settle)
				check("cuStreamSynchronize", sync(0));
		}
		printf("%llu\n", (unsigned long long)(now() - start));
		fflush(stdout);
	}
	return 0;
}
