/*
 * Times what is queued, with any libcufile: stream I/O beside a kernel, the calls that
 * enqueue it, batches, and the blocks of a cache of keys and values.
 *
 *	pace LIBRARY FILE [MIB [ROUNDS]]
 *
 * FILE is made with MIB mebibytes, 256 by default. Prints "NAME VALUE UNIT" lines;
 * a measurement that fails prints why and is left out.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cuda.h>
#include <cufile.h>

#define F(name) ((__typeof__(&name))find(#name))

enum { ENTRIES = 128, SMALL = 4096, BLOCKS = 96, STREAMS = 4, ALL_FIXED = 15, MOST = 4096 };
static const size_t BLOCK = 2 << 20;
static void *library;
static size_t size_of_file = 256 << 20;
static int rounds = 5;

static void die(const char *format, ...)
{
	va_list ap;
	va_start(ap, format);
	vprintf(format, ap);
	va_end(ap);
	printf("\n");
	exit(1);
}

static void *find(const char *name)
{
	void *p = dlsym(library, name);
	if (!p)
		die("%s", dlerror());
	return p;
}

static void must(const char *what, int code)
{
	if (code)
		die("%s: %d", what, code);
}
#define TRY(call) must(#call, (int)(call))
#define FILE_TRY(name, ...) must(#name, (int)F(name)(__VA_ARGS__).err)

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

/* at is a quantile of times, which it sorts. */
static double at(double *times, int n, double share)
{
	qsort(times, (size_t)n, sizeof *times, by_value);
	return times[(int)(share * (n - 1))];
}

/* A kernel that keeps every thread of the GPU busy for a time, in nanoseconds. */
static const char spin_ptx[] = ".version 8.0\n.target sm_70\n.address_size 64\n"
			       ".visible .entry spin(.param .u64 ns)\n{\n"
			       ".reg .u64 %s, %t, %n;\n.reg .pred %p;\n"
			       "ld.param.u64 %n, [ns];\n"
			       "mov.u64 %s, %globaltimer;\n"
			       "again:\n"
			       "mov.u64 %t, %globaltimer;\n"
			       "sub.u64 %t, %t, %s;\n"
			       "setp.lt.u64 %p, %t, %n;\n"
			       "@%p bra again;\nret;\n}\n";
static CUfunction spin;
static int processors;

static void kernel(CUstream s, double seconds)
{
	unsigned long long ns = (unsigned long long)(seconds * 1e9);
	void *args[] = {&ns};
	TRY(cuLaunchKernel(spin, 2 * (unsigned)processors, 1, 1, 1024, 1, 1, 0, s, args, NULL));
}

struct transfer {
	size_t size;
	off_t off, at;
	ssize_t done;
};

static CUfileHandle_t file;
static CUdeviceptr memory;

static void enqueue(struct transfer *t, CUstream s, int writes)
{
	t->done = -77;
	if (writes)
		FILE_TRY(cuFileWriteAsync, file, (void *)memory, &t->size, &t->off, &t->at, &t->done, s);
	else
		FILE_TRY(cuFileReadAsync, file, (void *)memory, &t->size, &t->off, &t->at, &t->done, s);
}

static void check(const struct transfer *t)
{
	if (t->done != (ssize_t)t->size)
		die("a transfer ended with %zd", t->done);
}

/* overlap: a read of the whole file, a kernel as long, and both at once. */
static void overlap(const char *how)
{
	CUstream io, run;
	struct transfer t = {size_of_file, 0, 0, 0};
	double alone[64], both[64], shares[64];
	TRY(cuStreamCreate(&io, CU_STREAM_NON_BLOCKING));
	TRY(cuStreamCreate(&run, CU_STREAM_NON_BLOCKING));
	FILE_TRY(cuFileStreamRegister, io, ALL_FIXED);
	for (int i = -2; i < rounds; i++) {
		double start = now();
		enqueue(&t, io, 0);
		TRY(cuStreamSynchronize(io));
		alone[i < 0 ? 0 : i] = now() - start;
		check(&t);
	}
	double read = at(alone, rounds, 0.5);
	for (int i = 0; i < rounds; i++) {
		double start = now();
		kernel(run, read);
		TRY(cuStreamSynchronize(run));
		double length = now() - start;
		start = now();
		kernel(run, read);
		enqueue(&t, io, 0);
		double called = now();
		TRY(cuStreamSynchronize(io));
		TRY(cuStreamSynchronize(run));
		both[i] = now() - start;
		shares[i] = both[i] / (read > length ? read : length);
		check(&t);
		if (i == 0)
			printf("%s-call-behind-kernel %.1f us\n", how, (called - start) * 1e6);
	}
	printf("%s-read %.3f ms\n", how, read * 1e3);
	printf("%s-both %.3f ms\n", how, at(both, rounds, 0.5) * 1e3);
	printf("%s-overlap %.3f ratio\n", how, at(shares, rounds, 0.5));
	FILE_TRY(cuFileStreamDeregister, io);
	cuStreamDestroy(io);
	cuStreamDestroy(run);
}

/* returns: how long the call takes, alone in its stream and behind a kernel. */
static void returns(size_t size, const char *name)
{
	enum { CALLS = 1000, QUEUED = 32 };
	static double idle[CALLS], queued[CALLS];
	static struct transfer t[QUEUED];
	CUstream s;
	int n = size > BLOCK ? 20 : CALLS, k = 0;
	TRY(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	FILE_TRY(cuFileStreamRegister, s, ALL_FIXED);
	for (int i = 0; i < QUEUED; i++)
		t[i] = (struct transfer){size, 0, 0, 0};
	for (int i = -3; i < n; i++) {
		double start = now();
		enqueue(&t[0], s, 0);
		idle[i < 0 ? 0 : i] = now() - start;
		TRY(cuStreamSynchronize(s));
		check(&t[0]);
	}
	while (k < n) {
		kernel(s, 2e-3);
		for (int i = 0; i < QUEUED && k < n; i++) {
			double start = now();
			enqueue(&t[i], s, 0);
			queued[k++] = now() - start;
		}
		TRY(cuStreamSynchronize(s));
	}
	printf("return-%s-median %.2f us\nreturn-%s-p99 %.2f us\n", name, at(idle, n, 0.5) * 1e6, name, at(idle, n, 0.99) * 1e6);
	printf("return-%s-queued-median %.2f us\nreturn-%s-queued-p99 %.2f us\n", name, at(queued, n, 0.5) * 1e6, name, at(queued, n, 0.99) * 1e6);
	FILE_TRY(cuFileStreamDeregister, s);
	cuStreamDestroy(s);
}

static void batch_of(CUfileBatchHandle_t b, CUfileIOParams_t *e)
{
	static CUfileIOEvents_t events[ENTRIES];
	FILE_TRY(cuFileBatchIOSubmit, b, ENTRIES, e, 0);
	for (unsigned have = 0; have < ENTRIES;) {
		unsigned n = ENTRIES - have;
		FILE_TRY(cuFileBatchIOGetStatus, b, n, &n, events, NULL);
		for (unsigned i = 0; i < n; i++)
			if (events[i].status != CUFILE_COMPLETE || (ssize_t)events[i].ret != SMALL)
				die("an entry ended with %#x, %zd", (unsigned)events[i].status, (ssize_t)events[i].ret);
		have += n;
	}
}

/* batches: 128 small reads at places that are the same in all libraries. */
static void batches(const char *how, int opcode, const char *name)
{
	CUfileBatchHandle_t b;
	static CUfileIOParams_t e[ENTRIES];
	static double times[MOST];
	unsigned seed = 1;
	int n = 0;
	FILE_TRY(cuFileBatchIOSetUp, &b, ENTRIES);
	double end = now() + 0.7;
	for (int warm = 10; n < MOST && (warm > 0 || now() < end);) {
		for (int i = 0; i < ENTRIES; i++) {
			seed = seed * 1664525 + 1013904223;
			memset(&e[i], 0, sizeof e[i]);
			e[i].mode = CUFILE_BATCH;
			e[i].opcode = (CUfileOpcode_t)opcode;
			e[i].fh = file;
			e[i].u.batch.devPtr_base = (void *)memory;
			e[i].u.batch.devPtr_offset = i * SMALL;
			e[i].u.batch.file_offset = (off_t)(seed >> 4) % (off_t)(size_of_file / SMALL) * SMALL;
			e[i].u.batch.size = SMALL;
		}
		double start = now();
		batch_of(b, e);
		if (warm-- <= 0)
			times[n++] = now() - start;
		else
			end = now() + 0.7;
	}
	F(cuFileBatchIODestroy)(b);
	double median = at(times, n, 0.5);
	printf("%s-batch-%s %.1f us\n%s-batch-%s-rate %.0f per-second\n", how, name, median * 1e6, how, name, ENTRIES / median);
}

/* blocks stores and loads blocks through a buffer per stream. */
static void blocks(const char *how)
{
	CUstream s[STREAMS];
	static struct transfer t[BLOCKS];
	double times[2][64];
	int n = (int)(size_of_file / BLOCK) < BLOCKS ? (int)(size_of_file / BLOCK) : BLOCKS;
	for (int i = 0; i < STREAMS; i++) {
		TRY(cuStreamCreate(&s[i], CU_STREAM_NON_BLOCKING));
		FILE_TRY(cuFileStreamRegister, s[i], ALL_FIXED);
	}
	for (int r = -1; r < rounds; r++)
		for (int loads = 0; loads < 2; loads++) {
			double start = now();
			for (int i = 0; i < n; i++) {
				t[i] = (struct transfer){BLOCK, (off_t)(i * BLOCK), (off_t)(i % STREAMS * BLOCK), 0};
				enqueue(&t[i], s[i % STREAMS], !loads);
			}
			for (int i = 0; i < STREAMS; i++)
				TRY(cuStreamSynchronize(s[i]));
			times[loads][r < 0 ? 0 : r] = now() - start;
			for (int i = 0; i < n; i++)
				check(&t[i]);
		}
	double total = (double)n * (double)BLOCK;
	printf("%s-store %.3f GB/s\n", how, total / at(times[0], rounds, 0.5) / 1e9);
	printf("%s-load %.3f GB/s\n", how, total / at(times[1], rounds, 0.5) / 1e9);
	for (int i = 0; i < STREAMS; i++) {
		FILE_TRY(cuFileStreamDeregister, s[i]);
		cuStreamDestroy(s[i]);
	}
}

/* capture: what a call answers for a stream that is being captured. */
static void capture(const char *path)
{
	int (*begin)(CUstream, int) = (int (*)(CUstream, int))dlsym(RTLD_DEFAULT, "cuStreamBeginCapture_v2");
	CUfileDescr_t d;
	CUstream s;
	struct transfer t = {SMALL, 0, 0, -77};
	memset(&d, 0, sizeof d);
	d.type = CU_FILE_HANDLE_TYPE_OPAQUE_FD;
	d.handle.fd = open(path, O_RDWR);
	FILE_TRY(cuFileHandleRegister, &file, &d);
	TRY(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	if (!begin || begin(s, 2) != 0) /* relaxed */
		return;
	printf("capture %d code\n", (int)F(cuFileReadAsync)(file, (void *)memory, &t.size, &t.off, &t.at, &t.done, s).err);
}

static void use_gpu(int full)
{
	CUdevice dev;
	CUcontext ctx;
	CUmodule module;
	TRY(cuInit(0));
	TRY(cuDeviceGet(&dev, 0));
	TRY(cuDevicePrimaryCtxRetain(&ctx, dev));
	TRY(cuCtxSetCurrent(ctx));
	TRY(cuMemAlloc(&memory, size_of_file));
	TRY(cuMemsetD8(memory, 5, size_of_file));
	if (!full)
		return;
	TRY(cuDeviceGetAttribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, dev));
	TRY(cuModuleLoadData(&module, spin_ptx));
	TRY(cuModuleGetFunction(&spin, module, "spin"));
}

static void make_file(const char *path)
{
	static char bytes[1 << 20];
	int fd = open(path, O_CREAT | O_RDWR, 0600);
	memset(bytes, 5, sizeof bytes);
	for (size_t done = 0; done < size_of_file; done += sizeof bytes)
		if (pwrite(fd, bytes, sizeof bytes, (off_t)done) != sizeof bytes)
			die("%s: %s", path, strerror(errno));
	fsync(fd);
	close(fd);
}

static void measure(const char *path, int flags, const char *how, int kernels)
{
	CUfileDescr_t d;
	memset(&d, 0, sizeof d);
	d.type = CU_FILE_HANDLE_TYPE_OPAQUE_FD;
	d.handle.fd = open(path, O_RDWR | flags);
	if (d.handle.fd < 0)
		die("%s: %s", path, strerror(errno));
	FILE_TRY(cuFileHandleRegister, &file, &d);
	if (kernels) {
		overlap(how);
		if (!flags) {
			returns(SMALL, "4KiB");
			returns(BLOCK, "2MiB");
			returns(size_of_file, "all");
		}
	}
	batches(how, CUFILE_READ, "read");
	blocks(how);
	F(cuFileHandleDeregister)(file);
	close(d.handle.fd);
}

int main(int argc, char **argv)
{
	if (argc < 3 || argc > 5) {
		fprintf(stderr, "usage: %s LIBRARY FILE [MIB [ROUNDS]]\n", argv[0]);
		return 2;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc > 3)
		size_of_file = (size_t)atoi(argv[3]) << 20;
	if (argc > 4)
		rounds = atoi(argv[4]) < 64 ? atoi(argv[4]) : 64;
	library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
	if (!library)
		die("%s", dlerror());
	int kernels = !getenv("PACE_WITHOUT_KERNELS"); /* the software machine runs no PTX */
	use_gpu(kernels);
	make_file(argv[2]);
	FILE_TRY(cuFileDriverOpen);
	FILE_TRY(cuFileBufRegister, (void *)memory, size_of_file, 0);
	measure(argv[2], 0, "cached", kernels);
	measure(argv[2], O_DIRECT, "direct", kernels);
	if (kernels)
		capture(argv[2]);
	return 0;
}
