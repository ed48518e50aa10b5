/*
 * Reads or writes a whole file in blocks, several times, and prints a line for each
 * pass: GB/s and processor seconds per GB.
 *
 *	blocks cufile|host read|write plain|direct|each|whole FILE BLOCK CALLERS PASSES
 *	blocks link
 *
 * "cufile" moves the blocks between file and GPU by the libcufile that the dynamic
 * linker finds, "host" between file and host memory by pread and pwrite. Callers
 * are threads, which take the next block each; with "each", every caller opens the
 * file, and moves all of it; with "whole", as with "direct", but the memory is as large
 * as the file. "link" prints the rate of a pinned copy to the GPU, the best of five.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cuda_runtime.h>
#include <cufile.h>

static int cufile, writing, each, flags;
static const char *path;
static char *whole; /* memory as large as the file; NULL: each caller has a block */
static size_t block, size, callers;
static struct file { int fd; CUfileHandle_t handle; } shared;
static atomic_size_t next;
static atomic_int failed;

static void die(const char *what, long code)
{
	fprintf(stderr, "blocks: %s: %ld (%s)\n", what, code, strerror(errno));
	exit(1);
}

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static double processor(void)
{
	struct rusage u;
	getrusage(RUSAGE_SELF, &u);
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

static struct file open_file(void)
{
	struct file f = {.fd = open(path, flags)};
	if (f.fd < 0)
		die(path, 0);
	if (!cufile)
		return f;
	CUfileDescr_t d;
	memset(&d, 0, sizeof d);
	d.type = CU_FILE_HANDLE_TYPE_OPAQUE_FD;
	d.handle.fd = f.fd;
	CUfileError_t e = cuFileHandleRegister(&f.handle, &d);
	if (e.err)
		die("cuFileHandleRegister", e.err);
	return f;
}

static void close_file(struct file f)
{
	if (cufile)
		cuFileHandleDeregister(f.handle);
	close(f.fd);
}

static ssize_t move(struct file f, char *memory, size_t n, off_t at)
{
	if (cufile)
		return writing ? cuFileWrite(f.handle, memory, n, at, 0) : cuFileRead(f.handle, memory, n, at, 0);
	return writing ? pwrite(f.fd, memory, n, at) : pread(f.fd, memory, n, at);
}

static size_t take(size_t *own)
{
	if (!each)
		return atomic_fetch_add(&next, block);
	*own += block;
	return *own - block;
}

static void *caller(void *memory)
{
	if (cufile && cudaSetDevice(0))
		die("cudaSetDevice", 0);
	struct file f = each ? open_file() : shared;
	for (size_t own = 0, at; !failed && (at = take(&own)) < size;) {
		size_t n = size - at < block ? size - at : block;
		ssize_t got = move(f, whole ? whole + at : memory, n, (off_t)at);
		if (got != (ssize_t)n) {
			fprintf(stderr, "blocks: %zd of %zu bytes at %zu (%s)\n", got, n, at, strerror(errno));
			failed = 1;
		}
	}
	if (each)
		close_file(f);
	return NULL;
}

static void *memory_of(size_t n)
{
	void *p = NULL;
	if (!cufile) {
		p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
		return p == MAP_FAILED ? NULL : p;
	}
	if (cudaMalloc(&p, n))
		die("cudaMalloc", (long)n);
	CUfileError_t e = cuFileBufRegister(p, n, 0);
	if (e.err)
		die("cuFileBufRegister", e.err);
	return p;
}

static int link_rate(void)
{
	const size_t n = 256 << 20;
	void *host = NULL, *device = NULL;
	double best = 0;
	if (cudaMallocHost(&host, n) || cudaMalloc(&device, n))
		die("cudaMallocHost", 0);
	for (int i = 0; i < 5; i++) {
		double t = now();
		if (cudaMemcpy(device, host, n, cudaMemcpyHostToDevice) || cudaDeviceSynchronize())
			die("cudaMemcpy", 0);
		t = (double)n / 1e9 / (now() - t);
		best = t > best ? t : best;
	}
	printf("%.2f 0\n", best);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 2 && !strcmp(argv[1], "link"))
		return link_rate();
	if (argc != 8)
		return 2;
	cufile = !strcmp(argv[1], "cufile");
	writing = !strcmp(argv[2], "write");
	each = !strcmp(argv[3], "each");
	int all = !strcmp(argv[3], "whole");
	flags = (writing ? O_RDWR : O_RDONLY) | (all || !strcmp(argv[3], "direct") ? O_DIRECT : 0);
	path = argv[4];
	struct stat st;
	if (stat(path, &st))
		die(path, 0);
	size = (size_t)st.st_size;
	block = strtoull(argv[5], NULL, 10);
	block = block > size ? size : block;
	callers = strtoull(argv[6], NULL, 10);
	if (cufile && (cudaSetDevice(0) || cuFileDriverOpen().err))
		die("cuFileDriverOpen", 0);
	shared = open_file();
	void **memory = calloc(callers, sizeof *memory);
	pthread_t *threads = calloc(callers, sizeof *threads);
	if (all && !(whole = memory_of(size)))
		die("memory", 0);
	for (size_t i = 0; i < callers && !all; i++)
		if (!(memory[i] = memory_of(block)))
			die("memory", 0);
	for (int pass = 0; pass < atoi(argv[7]); pass++) {
		double t = now(), cpu = processor(), gb = (double)size / 1e9;
		next = 0;
		for (size_t i = 0; i < callers; i++)
			if (pthread_create(&threads[i], NULL, caller, memory[i]))
				die("pthread_create", 0);
		for (size_t i = 0; i < callers; i++)
			pthread_join(threads[i], NULL);
		if (failed)
			return 1;
		printf("%.3f %.4f\n", gb / (now() - t), (processor() - cpu) / gb);
		fflush(stdout);
	}
	return 0;
}
