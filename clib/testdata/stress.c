/*
 * Many threads register, read, write and deregister in random order, on shared
 * and own files, while children are forked and threads come and go.
 *
 *	stress DIRECTORY THREADS ROUNDS SEED
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cuda_runtime.h>
#include <cufile.h>

enum { SIZE = 64 << 10, SHARED = 4 };

static const char *directory;
static int rounds, seed;
static atomic_int failures;
static _Atomic(void *) shared[SHARED]; /* handles that any thread may use, or take away */

static void fail(const char *what, long got)
{
	if (atomic_fetch_add(&failures, 1) < 10)
		fprintf(stderr, "%s: %ld errno %d\n", what, got, errno);
}

static CUfileHandle_t reg(int fd)
{
	CUfileDescr_t d;
	CUfileHandle_t h = NULL;
	memset(&d, 0, sizeof d);
	d.type = CU_FILE_HANDLE_TYPE_OPAQUE_FD;
	d.handle.fd = fd;
	CUfileError_t e = cuFileHandleRegister(&h, &d);
	if (e.err != CU_FILE_SUCCESS)
		fail("register", e.err);
	return h;
}

/* Its own file and buffer: everything must work and come back right. */
static void own(int id, unsigned *rnd)
{
	char path[4096], host[SIZE];
	void *dev = NULL;
	snprintf(path, sizeof path, "%s/own%d", directory, id);
	int fd = open(path, O_CREAT | O_RDWR, 0644);
	CUfileHandle_t h = reg(fd);
	if (cudaMalloc(&dev, SIZE) != cudaSuccess)
		fail("malloc", 0);
	int registered = rand_r(rnd) % 2;
	if (registered && cuFileBufRegister(dev, SIZE, 0).err != CU_FILE_SUCCESS)
		fail("buffer", 0);
	int byte = rand_r(rnd) % 256, off = rand_r(rnd) % 5000;
	if (cudaMemset(dev, byte, SIZE) != cudaSuccess)
		fail("memset", 0);
	ssize_t n = cuFileWrite(h, dev, SIZE, off, 0);
	if (n != SIZE)
		fail("write", n);
	cudaMemset(dev, byte + 1, SIZE);
	n = cuFileRead(h, dev, SIZE, off, 0);
	if (n != SIZE)
		fail("read", n);
	cudaMemcpy(host, dev, SIZE, cudaMemcpyDeviceToHost);
	for (int i = 0; i < SIZE; i++)
		if ((unsigned char)host[i] != byte) {
			fail("byte", i);
			break;
		}
	if (registered && cuFileBufDeregister(dev).err != CU_FILE_SUCCESS)
		fail("deregister buffer", 0);
	cuFileHandleDeregister(h);
	close(fd);
	cudaFree(dev);
}

/* A batch of writes, then one of reads, on a file and buffer of its own. */
static void batch(int id, unsigned *rnd)
{
	enum { ENTRIES = 8, PART = SIZE / ENTRIES };
	char path[4096], host[SIZE];
	void *dev = NULL;
	CUfileBatchHandle_t b = NULL;
	CUfileIOParams_t e[ENTRIES];
	CUfileIOEvents_t events[ENTRIES];
	snprintf(path, sizeof path, "%s/batch%d", directory, id);
	int fd = open(path, O_CREAT | O_RDWR, 0644), byte = rand_r(rnd) % 256;
	CUfileHandle_t h = reg(fd);
	if (cudaMalloc(&dev, SIZE) != cudaSuccess || cuFileBatchIOSetUp(&b, ENTRIES).err != CU_FILE_SUCCESS)
		fail("batch", 0);
	for (int opcode = CUFILE_WRITE; opcode >= CUFILE_READ; opcode--) {
		cudaMemset(dev, opcode == CUFILE_WRITE ? byte : byte + 1, SIZE);
		memset(e, 0, sizeof e);
		for (int i = 0; i < ENTRIES; i++) {
			e[i].mode = CUFILE_BATCH;
			e[i].fh = h;
			e[i].opcode = (CUfileOpcode_t)opcode;
			e[i].u.batch.devPtr_base = dev;
			e[i].u.batch.devPtr_offset = e[i].u.batch.file_offset = i * PART;
			e[i].u.batch.size = PART;
		}
		if (cuFileBatchIOSubmit(b, ENTRIES, e, 0).err != CU_FILE_SUCCESS)
			fail("submit", opcode);
		for (unsigned left = ENTRIES, n = left; left > 0; left -= n, n = left) {
			if (cuFileBatchIOGetStatus(b, 1, &n, events, NULL).err != CU_FILE_SUCCESS || n == 0) {
				fail("status", n);
				break;
			}
			for (unsigned i = 0; i < n; i++)
				if (events[i].status != CUFILE_COMPLETE || events[i].ret != PART)
					fail("event", (long)events[i].ret);
		}
	}
	cuFileBatchIODestroy(b);
	cudaMemcpy(host, dev, SIZE, cudaMemcpyDeviceToHost);
	for (int i = 0; i < SIZE; i++)
		if ((unsigned char)host[i] != byte) {
			fail("byte of a batch", i);
			break;
		}
	cuFileHandleDeregister(h);
	close(fd);
	cudaFree(dev);
}

/* A handle that others use and take away meanwhile: a result or a code. */
static void common(unsigned *rnd)
{
	char host[512];
	int slot = rand_r(rnd) % SHARED;
	void *h = atomic_load(&shared[slot]);
	if (rand_r(rnd) % 8 == 0) {
		char path[4096];
		snprintf(path, sizeof path, "%s/shared%d", directory, rand_r(rnd) % 1000);
		int fd = open(path, O_CREAT | O_RDWR, 0644);
		void *old = atomic_exchange(&shared[slot], reg(fd));
		close(fd); /* the handle has its own */
		cuFileHandleDeregister(old);
		return;
	}
	memset(host, 1, sizeof host);
	errno = 0;
	ssize_t n = rand_r(rnd) % 2 ? cuFileRead(h, host, sizeof host, 0, 0) : cuFileWrite(h, host, sizeof host, 0, 0);
	if (n < 0 && !(h == NULL && errno == EINVAL) && errno != CU_FILE_HANDLE_NOT_REGISTERED)
		fail("shared", n);
}

static void child(void)
{
	fflush(NULL);
	pid_t pid = fork();
	if (pid == 0) {
		char b[16];
		alarm(300);
		errno = 0;
		int ok = cuFileRead(atomic_load(&shared[0]), b, sizeof b, 0, 0) == -1 && errno == CU_FILE_DRIVER_NOT_INITIALIZED &&
			 cudaMalloc((void **)b, 1) == cudaErrorInitializationError;
		_exit(ok ? 0 : 1);
	}
	int status = 0;
	if (waitpid(pid, &status, 0) != pid || status != 0)
		fail("child", status);
}

static void *brief(void *arg)
{
	int version = 0;
	(void)arg;
	if (cuFileGetVersion(&version).err != CU_FILE_SUCCESS)
		fail("version", version);
	return NULL;
}

static void *worker(void *arg)
{
	int id = (int)(long)arg;
	unsigned rnd = (unsigned)(seed + id * 7919);
	for (int i = 0; i < rounds; i++) {
		int what = rand_r(&rnd) % 100;
		if (what < 25) {
			own(id, &rnd);
		} else if (what < 30) {
			batch(id, &rnd);
		} else if (what < 94) {
			common(&rnd);
		} else if (what < 99) {
			pthread_t t;
			if (pthread_create(&t, NULL, brief, NULL) == 0)
				pthread_join(t, NULL);
		} else {
			child();
		}
	}
	return NULL;
}

int main(int argc, char **argv)
{
	if (argc != 5)
		return 2;
	directory = argv[1];
	int n = atoi(argv[2]);
	rounds = atoi(argv[3]);
	seed = atoi(argv[4]);
	if (cuFileDriverOpen().err != CU_FILE_SUCCESS)
		return 1;
	pthread_t *threads = calloc((size_t)n, sizeof *threads);
	for (int i = 0; i < n; i++)
		if (pthread_create(&threads[i], NULL, worker, (void *)(long)i) != 0)
			return 1;
	for (int i = 0; i < n; i++)
		pthread_join(threads[i], NULL);
	free(threads);
	for (int i = 0; i < SHARED; i++)
		cuFileHandleDeregister(atomic_load(&shared[i]));
	if (cuFileDriverClose().err != CU_FILE_SUCCESS || cuFileUseCount() != 0)
		fail("close", cuFileUseCount());
	printf("%d failures\n", atomic_load(&failures));
	return atomic_load(&failures) != 0;
}
