/*
 * Small reads that do not enter Go: there are some, their results are those of other
 * reads, and each call that ends a lease ends it at once.
 *
 *	lease DIRECTORY
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cuda_runtime.h>
#include <cufile.h>

#include "leased.h"

enum { FILE_SIZE = 256 << 10, BUFFER = 256 << 10, SMALL = 4096 };

static const char *directory;
static unsigned char host[BUFFER];

/* The byte of file number n at an offset. */
static unsigned char byte_of(int n, long off)
{
	return (unsigned char)(off * 7 + off / 251 + n * 41);
}

static int make_file(int n, int flags)
{
	static unsigned char content[FILE_SIZE];
	char path[4096];
	snprintf(path, sizeof path, "%s/file%d", directory, n);
	int fd = open(path, O_CREAT | O_RDWR, 0600);
	for (long i = 0; i < FILE_SIZE; i++)
		content[i] = byte_of(n, i);
	if (fd < 0 || pwrite(fd, content, FILE_SIZE, 0) != FILE_SIZE || close(fd))
		exit(3);
	return open(path, flags);
}

static CUfileHandle_t reg(int fd)
{
	CUfileDescr_t d;
	CUfileHandle_t h = NULL;
	memset(&d, 0, sizeof d);
	d.type = CU_FILE_HANDLE_TYPE_OPAQUE_FD;
	d.handle.fd = fd;
	if (cuFileHandleRegister(&h, &d).err != CU_FILE_SUCCESS)
		exit(4);
	return h;
}

static void *memory(size_t n)
{
	void *p = NULL;
	if (cudaMalloc(&p, n) || cuFileBufRegister(p, n, 0).err)
		exit(5);
	return p;
}

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static ssize_t get(CUfileHandle_t h, void *dev, size_t n, off_t off, off_t at)
{
	errno = 0;
	return cuFileRead(h, dev, n, off, at);
}

/* Whether memory has what file number n has. */
static int same(void *dev, int n, long off, long at, long len)
{
	if (cudaMemcpy(host, (char *)dev + at, (size_t)len, cudaMemcpyDeviceToHost))
		return 0;
	for (long i = 0; i < len; i++)
		if (host[i] != byte_of(n, off + i))
			return 0;
	return 1;
}

/* warm reads until a lease does it. The next read, if it comes within a
 * millisecond, will find that lease. */
static int warm(CUfileHandle_t h, void *dev)
{
	uint64_t before = leased();
	for (int i = 0; i < 1000; i++) {
		if (get(h, dev, SMALL, 0, 0) != SMALL)
			return 0;
		if (leased() != before)
			return 1;
	}
	return 0;
}

/* How many reads are done by leases: all but one in a millisecond. */
static const char *share(CUfileHandle_t h, void *dev, size_t n)
{
	enum { READS = 2000 };
	uint64_t before = leased();
	for (int i = 0; i < READS; i++)
		if (get(h, dev, n, 0, 0) != (ssize_t)n)
			return "FAILED";
	uint64_t by = leased() - before;
	return by == 0 ? "none" : by > READS / 20 ? "many" : "FEW";
}

static void used(void)
{
	CUfileHandle_t h = reg(make_file(1, O_RDONLY));
	int direct = make_file(2, O_RDONLY | O_DIRECT);
	void *dev = memory(BUFFER), *plain = NULL;
	cudaMalloc(&plain, BUFFER);
	printf("4 KiB by leases: %s\n", share(h, dev, SMALL));
	printf("64 KiB less one by leases: %s\n", share(h, dev, 65535));
	printf("64 KiB by leases: %s\n", share(h, dev, 65536));
	printf("memory that is not registered by leases: %s\n", share(h, plain, SMALL));
	if (direct < 0 || strcmp(share(reg(direct), dev, SMALL), "none") == 0) /* some file systems have none */
		printf("a file with O_DIRECT by leases: none\n");

	int right = 0, total = 0;
	uint64_t before = leased();
	unsigned rnd = 1;
	for (; total < 3000; total++) {
		long n = 1 + rand_r(&rnd) % 9000, off = rand_r(&rnd) % (FILE_SIZE - n), at = 1 + rand_r(&rnd) % (BUFFER - n - 1);
		if (total % 10 == 0) /* the bytes around it must stay */
			cudaMemset(dev, 0xC5, BUFFER);
		ssize_t got = get(h, dev, (size_t)n, off, at);
		if (total % 10) {
			right += got == n;
			continue;
		}
		int ok = got == n && same(dev, 1, off, at, n);
		cudaMemcpy(host, dev, BUFFER, cudaMemcpyDeviceToHost);
		right += ok && host[at - 1] == 0xC5 && host[at + n] == 0xC5;
	}
	printf("%d of %d reads right, by leases: %s\n", right, total, leased() > before + 100 ? "many" : "FEW");
	cuFileHandleDeregister(h);
	cuFileBufDeregister(dev);
}

/* What there is no lease for, or no way to do with one, gets the same answer as
 * when there is none at all: each call without a lease, and again right after a
 * read by one. */
static void answers(void)
{
	CUfileHandle_t h = reg(make_file(1, O_RDONLY));
	void *dev = memory(BUFFER);
	const struct {
		const char *what;
		CUfileHandle_t h;
		void *dev;
		size_t n;
		off_t off, at;
	} calls[] = {
		{"nothing", h, dev, 0, 0, 0},
		{"nothing, nowhere", h, dev, 0, 0, BUFFER + 1},
		{"across the end", h, dev, SMALL, FILE_SIZE - 100, 0},
		{"at the end", h, dev, SMALL, FILE_SIZE, 0},
		{"far behind the end", h, dev, SMALL, (off_t)1 << 60, 0},
		{"out of the address space", h, dev, SMALL, INT64_MAX - 10, 0},
		{"before the file", h, dev, SMALL, -1, 0},
		{"before the buffer", h, dev, SMALL, 0, -1},
		{"far before the buffer", h, dev, SMALL, 0, INT64_MIN},
		{"across the buffer's end", h, dev, SMALL, 0, BUFFER - SMALL + 1},
		{"behind the buffer", h, dev, SMALL, 0, BUFFER},
		{"far behind the buffer", h, dev, SMALL, 0, INT64_MAX},
		{"more than all", h, dev, SIZE_MAX, 0, 0},
		{"no handle", NULL, dev, SMALL, 0, 0},
		{"no memory", h, NULL, SMALL, 0, 0},
		{"no handle, no memory", NULL, NULL, SMALL, 0, 0},
		{"another handle", (char *)h + 16, dev, SMALL, 0, 0},
		{"in the middle", h, (char *)dev + SMALL, SMALL, 0, 0},
	};
	for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
		ssize_t got[2];
		int err[2];
		for (int k = 0; k < 2; k++) {
			if (k == 1 && !warm(h, dev))
				printf("NO LEASE\n");
			cudaMemset(dev, 0xC5, 200);
			got[k] = get(calls[i].h, calls[i].dev, calls[i].n, calls[i].off, calls[i].at);
			err[k] = errno;
			usleep(2000); /* and it has run out */
		}
		printf("%s: %zd errno %d", calls[i].what, got[1], err[1]);
		printf(got[0] == got[1] && err[0] == err[1] ? "\n" : ", BEFORE %zd errno %d\n", got[0], err[0]);
		if (got[1] == 100) {
			cudaMemcpy(host, dev, 200, cudaMemcpyDeviceToHost);
			printf("  the rest of the memory: %s\n", host[99] == byte_of(1, FILE_SIZE - 1) && host[100] == 0xC5 ? "untouched" : "CHANGED");
		}
	}
	warm(h, dev);
	errno = EDOM;
	ssize_t n = cuFileRead(h, dev, SMALL, 0, 0);
	printf("errno stays: %zd %d\n", n, errno == EDOM);
	cuFileHandleDeregister(h);
	cuFileBufDeregister(dev);
}

/* Freed memory is noticed within a millisecond. Until then reads go to memory that
 * nobody else has or, where CUDA has cut the buffer from a larger block, to what
 * has come to lie at the same address. */
static void freed(CUfileHandle_t h, size_t size)
{
	int late = 0, noticed = 0, code = 0;
	for (int i = 0; i < 20; i++) {
		void *gone = memory(size);
		warm(h, gone);
		cudaFree(gone);
		void *next = NULL; /* at the same address, most likely */
		cudaMalloc(&next, size);
		cudaMemset(next, 0xC5, SMALL);
		double freed = now();
		for (;;) {
			double begun = now();
			if (get(h, gone, SMALL, 0, 0) < 0) {
				code = errno;
				noticed++;
				break;
			}
			if (begun - freed > 1e-3) {
				late++;
				break;
			}
		}
		cudaMemcpy(host, next, SMALL, cudaMemcpyDeviceToHost);
		for (int k = 0; k < SMALL; k++)
			if (host[k] != 0xC5 && (next != gone || size > BUFFER)) {
				printf("MEMORY OF OTHERS WAS WRITTEN TO\n");
				break;
			}
		cuFileBufDeregister(gone);
		cudaFree(next);
	}
	printf("%zu bytes freed: noticed %d times, late %d, errno %d\n", size, noticed, late, code);
}

static void endings(void)
{
	int fd1 = make_file(1, O_RDONLY), fd2 = make_file(2, O_RDONLY);
	CUfileHandle_t h = reg(fd1), other;
	void *dev = memory(BUFFER);

	printf("lease: %d\n", warm(h, dev));
	cuFileHandleDeregister(h);
	ssize_t n = get(h, dev, SMALL, 0, 0);
	printf("handle deregistered: %zd errno %d\n", n, errno);

	/* Other files under handles that were in use before, and under descriptors: a
	 * place that is cleared for all is no lease of those who have no handle. */
	int stale = 0, wrong = 0;
	for (int i = 0; i < 600; i++) {
		other = reg(i % 2 ? fd2 : fd1);
		if (!warm(other, dev) || get(other, dev, SMALL, i, 0) != SMALL || !same(dev, i % 2 ? 2 : 1, i, 0, SMALL))
			wrong++;
		stale += get(h, dev, SMALL, 0, 0) >= 0;
		cuFileHandleDeregister(other);
		int again[3] = {dup(fd1), dup(fd1), dup(fd1)};
		stale += get(other, dev, SMALL, 0, 0) >= 0 || get(NULL, dev, SMALL, 0, 0) >= 0;
		for (int k = 0; k < 3; k++)
			close(again[k]);
	}
	printf("handles used again: %d wrong, %d stale\n", wrong, stale);

	h = reg(fd1);
	wrong = 0;
	for (int i = 0; i < 50; i++) { /* memory at the same address, time and again */
		if (!warm(h, dev))
			wrong++;
		cuFileBufDeregister(dev);
		uint64_t before = leased();
		wrong += get(h, dev, SMALL, 100, 0) != SMALL || !same(dev, 1, 100, 0, SMALL) || leased() != before;
		cudaFree(dev);
		dev = memory(BUFFER);
		wrong += get(h, dev, SMALL, 200, 0) != SMALL || !same(dev, 1, 200, 0, SMALL);
	}
	printf("buffer deregistered and made again: %d wrong\n", wrong);

	freed(h, BUFFER);
	freed(h, 4 << 20);

	/* Statistics count every read. */
	CUfileStatsLevel1_t stats;
	memset(&stats, 0, sizeof stats);
	warm(h, dev);
	cuFileSetStatsLevel(1);
	printf("statistics: %d\n", (int)cuFileStatsStart().err);
	uint64_t before = leased();
	for (int i = 0; i < 500; i++)
		get(h, dev, SMALL, 0, 0);
	cuFileGetStatsL1(&stats);
	printf("counted %lu, by leases %d\n", (unsigned long)stats.read_ops.ok, (int)(leased() - before));
	cuFileStatsStop();
	printf("stopped: by leases %s\n", share(h, dev, SMALL));
	cuFileStatsStart();
	printf("started: by leases %s\n", share(h, dev, SMALL));
	cuFileSetStatsLevel(0);
	printf("level 0: by leases %s\n", share(h, dev, SMALL));

	/* The file is another one under the same number of a descriptor. */
	close(fd1);
	if (dup2(fd2, fd1) != fd1)
		exit(6);
	printf("descriptor used again: %d\n", warm(h, dev) && get(h, dev, SMALL, 0, 0) == SMALL && same(dev, 1, 0, 0, SMALL));

	/* The file changes under a lease. */
	CUfileHandle_t w = reg(make_file(3, O_RDWR));
	warm(w, dev);
	char path[4096];
	snprintf(path, sizeof path, "%s/file3", directory);
	n = truncate(path, 1000) == 0 ? get(w, dev, SMALL, 0, 0) : -2;
	printf("truncated: %zd\n", n);

	warm(h, dev);
	printf("driver closed: %d\n", (int)cuFileDriverClose().err);
	n = get(h, dev, SMALL, 0, 0);
	printf("then: %zd errno %d\n", n, errno);
	close(fd1);
	close(fd2);
}

/* A child that is forked with leases about gets the same code as without. */
static void forks(void)
{
	CUfileHandle_t h = reg(make_file(1, O_RDONLY));
	void *dev = memory(BUFFER);
	int good = 0;
	fflush(stdout);
	for (int i = 0; i < 20; i++) {
		warm(h, dev);
		pid_t pid = fork();
		if (pid == 0) {
			alarm(20);
			errno = 0;
			ssize_t n = cuFileRead(h, dev, SMALL, 0, 0);
			_exit(n == -1 && errno == CU_FILE_DRIVER_NOT_INITIALIZED ? 0 : 1);
		}
		int status = -1;
		waitpid(pid, &status, 0);
		good += status == 0 && get(h, dev, SMALL, 0, 0) == SMALL;
	}
	printf("forks: %d good\n", good);
	cuFileHandleDeregister(h);
	cuFileBufDeregister(dev);
}

static CUfileHandle_t victim_file;
static void *victim_memory;
static int survived;

static void *victim(void *arg)
{
	(void)arg;
	warm(victim_file, victim_memory);
	pthread_cancel(pthread_self());
	survived = get(victim_file, victim_memory, SMALL, 0, 0) == SMALL;
	pthread_testcancel();
	survived = 0;
	return NULL;
}

/* A thread that is cancelled does not end inside a lease, where deregistration
 * would wait for it for ever. */
static void cancelled(void)
{
	victim_file = reg(make_file(1, O_RDONLY));
	victim_memory = memory(BUFFER);
	pthread_t t;
	pthread_create(&t, NULL, victim, NULL);
	pthread_join(t, NULL);
	alarm(20);
	cuFileHandleDeregister(victim_file);
	int code = (int)cuFileBufDeregister(victim_memory).err;
	alarm(0);
	printf("cancelled: read %d, deregistered %d\n", survived, code);
}

static void *straddled;
static CUfileHandle_t straddled_file;
static atomic_int nap; /* 1: the reader sleeps, 2: its memory is freed */
static atomic_bool warmed;

static void on_signal(int sig)
{
	(void)sig;
	atomic_store(&nap, 1);
	/* Not for ever: the thread may be in the core, with something that freeing
	 * needs. */
	for (int i = 0; i < 100 && atomic_load(&nap) != 2; i++)
		usleep(100);
	usleep(2000);
}

static void *straddler(void *arg)
{
	ssize_t n;
	(void)arg;
	warm(straddled_file, straddled);
	atomic_store(&warmed, true);
	do
		n = get(straddled_file, straddled, SMALL, 0, 0);
	while (atomic_load(&nap) != 2);
	return (void *)(intptr_t)n;
}

/* Memory is freed in the middle of a read that then takes another two
 * milliseconds. The signal mostly arrives in the system call, which is most of a
 * read; where it comes a moment later, the read was over before. */
static void straddle(void)
{
	enum { TRIES = 30 };
	int done = 0;
	struct sigaction sa;
	memset(&sa, 0, sizeof sa);
	sa.sa_handler = on_signal;
	sa.sa_flags = SA_ONSTACK; /* in the core, stacks are small */
	sigaction(SIGUSR1, &sa, NULL);
	straddled_file = reg(make_file(1, O_RDONLY));
	for (int i = 0; i < TRIES; i++) {
		pthread_t t;
		void *got;
		straddled = memory(BUFFER);
		atomic_store(&nap, 0);
		atomic_store(&warmed, false);
		pthread_create(&t, NULL, straddler, NULL);
		while (!atomic_load(&warmed))
			usleep(50);
		usleep(100);
		pthread_kill(t, SIGUSR1);
		while (atomic_load(&nap) != 1)
			usleep(10);
		cudaFree(straddled);
		atomic_store(&nap, 2);
		pthread_join(t, &got);
		done += (intptr_t)got == SMALL;
		cuFileBufDeregister(straddled);
	}
	printf("memory freed in the middle of a read: %s\n", done < TRIES / 2 ? "noticed" : "NOT NOTICED");
	cuFileHandleDeregister(straddled_file);
}

int main(int argc, char **argv)
{
	if (argc != 2)
		return 2;
	directory = argv[1];
	used();
	answers();
	forks();
	cancelled();
	straddle();
	endings();
	return 0;
}
