/*
 * Threads read small chunks of shared files into shared buffers, mostly by
 * leases, while others end what the leases need: handles, buffers, memory, the
 * driver; start statistics, and fork. A read gets the bytes of the file of its
 * handle, or a code.
 *
 *	leases DIRECTORY READERS CHANGES SEED [orderly]
 *
 * Memory is freed during reads into it. NVIDIA's libcuda hangs or crashes if that
 * happens during a copy, so that on hardware "orderly" frees memory between reads.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cuda_runtime.h>
#include <cufile.h>

#include "leased.h"

enum { FILES = 5, PAIRS = 4, CHUNK = 4096, CHUNKS = 64, MAX_READERS = 64, BUFFER = MAX_READERS * CHUNK };

/* A buffer. What is copied out of it once it is about to be freed says nothing. */
struct buffer {
	void *dev;
	atomic_bool ended;
};

/* A handle, the file behind it, and a buffer. Neither is ever freed, so that one
 * can look at them when they are long gone. */
struct pair {
	CUfileHandle_t handle;
	int file;
	struct buffer *buffer;
};

static const char *directory;
static int seed;
static _Atomic(const struct pair *) pairs[PAIRS];
static atomic_bool stop;
static atomic_int failures;
static atomic_long right, refused, changes;
static pthread_mutex_t changing = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t freeing = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
static bool orderly;

static void fail(const char *what, long got)
{
	if (atomic_fetch_add(&failures, 1) < 10)
		fprintf(stderr, "%s: %ld errno %d\n", what, got, errno);
}

/* Every word of a file says which file and which word it is. */
static uint64_t word_of(int file, long word)
{
	return (uint64_t)file << 32 | (uint64_t)word;
}

static int open_file(int file)
{
	char path[4096];
	snprintf(path, sizeof path, "%s/file%d", directory, file);
	return open(path, O_CREAT | O_RDWR, 0600);
}

static void make_files(void)
{
	for (int f = 0; f < FILES; f++) {
		static uint64_t content[CHUNKS * CHUNK / 8];
		for (long w = 0; w < CHUNKS * CHUNK / 8; w++)
			content[w] = word_of(f, w);
		int fd = open_file(f);
		if (pwrite(fd, content, sizeof content, 0) != sizeof content || close(fd))
			exit(3);
	}
}

static CUfileHandle_t reg(int file)
{
	CUfileDescr_t d;
	CUfileHandle_t h = NULL;
	memset(&d, 0, sizeof d);
	d.type = CU_FILE_HANDLE_TYPE_OPAQUE_FD;
	d.handle.fd = open_file(file);
	CUfileError_t e = cuFileHandleRegister(&h, &d);
	if (e.err != CU_FILE_SUCCESS)
		fail("register", e.err);
	close(d.handle.fd); /* the library has its own */
	return h;
}

static struct buffer *memory(void)
{
	struct buffer *b = calloc(1, sizeof *b);
	if (cudaMalloc(&b->dev, BUFFER) != cudaSuccess || cuFileBufRegister(b->dev, BUFFER, 0).err != CU_FILE_SUCCESS)
		fail("memory", 0);
	return b;
}

static void publish(int slot, CUfileHandle_t handle, int file, struct buffer *buffer)
{
	struct pair *p = malloc(sizeof *p);
	*p = (struct pair){handle, file, buffer};
	atomic_store(&pairs[slot], p);
}

/* The codes that a read may get because of what the others do. */
static int expected(int code)
{
	return code == CU_FILE_HANDLE_NOT_REGISTERED || code == CU_FILE_CUDA_POINTER_INVALID || code == EIO || code == EINVAL ||
	       code == CU_FILE_DRIVER_NOT_INITIALIZED || code == CU_FILE_CUDA_POINTER_RANGE_ERROR || code == CU_FILE_CUDA_DRIVER_ERROR ||
	       code == EFAULT;
}

/* compare looks for the chunk of the file in the thread's own chunk of the buffer,
 * if that is still there. */
static void compare(const struct pair *p, long at, long chunk)
{
	uint64_t got[CHUNK / 8];
	if (orderly && atomic_load(&p->buffer->ended))
		return;
	if (cudaMemcpy(got, (char *)p->buffer->dev + at, CHUNK, cudaMemcpyDeviceToHost) != cudaSuccess)
		return;
	long w = 0;
	while (w < CHUNK / 8 && got[w] == word_of(p->file, chunk * CHUNK / 8 + w))
		w++;
	if (w == CHUNK / 8)
		atomic_fetch_add(&right, 1);
	else if (!atomic_load(&p->buffer->ended))
		fail("bytes", (long)got[w]);
}

static bool read_chunk(const struct pair *p, long at, long chunk, bool look)
{
	errno = 0;
	ssize_t n = cuFileRead(p->handle, p->buffer->dev, CHUNK, chunk * CHUNK, at);
	if (n != CHUNK) {
		atomic_fetch_add(&refused, 1);
		if (n != -1 || !expected(errno))
			fail("read", n);
		return false;
	}
	if (look)
		compare(p, at, chunk);
	return true;
}

static void *reader(void *arg)
{
	long id = (long)arg;
	unsigned rnd = (unsigned)(seed + id * 7919);
	while (!atomic_load(&stop)) {
		const struct pair *p = atomic_load(&pairs[rand_r(&rnd) % PAIRS]);
		bool good = true;
		for (int i = 0; good && i < 50; i++) {
			if (orderly)
				pthread_rwlock_rdlock(&freeing);
			good = read_chunk(p, id * CHUNK, rand_r(&rnd) % CHUNKS, i % 8 == 0);
			if (orderly)
				pthread_rwlock_unlock(&freeing);
		}
		usleep(1000); /* there are others */
	}
	return NULL;
}

static void change_handle(int slot, unsigned *rnd)
{
	const struct pair *p = atomic_load(&pairs[slot]);
	int file = rand_r(rnd) % FILES;
	publish(slot, reg(file), file, p->buffer);
	cuFileHandleDeregister(p->handle);
}

static void reregister(const struct buffer *b)
{
	if (cuFileBufRegister(b->dev, BUFFER, 0).err != CU_FILE_SUCCESS)
		fail("register buffer", 0);
}

static void change_registration(int slot)
{
	const struct buffer *b = atomic_load(&pairs[slot])->buffer;
	if (cuFileBufDeregister(b->dev).err != CU_FILE_SUCCESS)
		fail("deregister buffer", 0);
	reregister(b);
}

/* Memory is freed while it is registered, and in use. */
static void change_memory(int slot)
{
	const struct pair *p = atomic_load(&pairs[slot]);
	struct buffer *old = p->buffer;
	atomic_store(&old->ended, true);
	pthread_rwlock_wrlock(&freeing); /* disorderly readers do not care */
	cudaFree(old->dev);
	pthread_rwlock_unlock(&freeing);
	usleep(300); /* time to read into what is no more */
	if (cuFileBufDeregister(old->dev).err != CU_FILE_SUCCESS)
		fail("deregister freed buffer", 0);
	publish(slot, p->handle, p->file, memory()); /* at the same address, maybe */
}

static void change_driver(void)
{
	if (cuFileDriverClose().err != CU_FILE_SUCCESS || cuFileDriverOpen().err != CU_FILE_SUCCESS)
		fail("driver", cuFileUseCount());
	for (int s = 0; s < PAIRS; s++) {
		struct buffer *b = atomic_load(&pairs[s])->buffer;
		reregister(b);
		publish(s, reg(s), s, b);
	}
}

static void child(void)
{
	const struct pair *p = atomic_load(&pairs[0]);
	pid_t pid = fork();
	if (pid == 0) {
		alarm(30);
		errno = 0;
		_exit(cuFileRead(p->handle, p->buffer->dev, CHUNK, 0, 0) == -1 && errno == CU_FILE_DRIVER_NOT_INITIALIZED ? 0 : 1);
	}
	int status = 0;
	if (waitpid(pid, &status, 0) != pid || status != 0)
		fail("child", status);
}

static void *changer(void *arg)
{
	unsigned rnd = (unsigned)(seed + 31 * (long)arg);
	while (!atomic_load(&stop)) {
		int what = rand_r(&rnd) % 100, slot = rand_r(&rnd) % PAIRS;
		usleep((unsigned)(rand_r(&rnd) % 3000)); /* so that there are leases to take away */
		if (what >= 95) {
			child(); /* while the others run */
			continue;
		}
		pthread_mutex_lock(&changing);
		if (what < 45) {
			change_handle(slot, &rnd);
		} else if (what < 65) {
			change_registration(slot);
		} else if (what < 75) {
			change_memory(slot);
		} else if (what < 85) {
			cuFileSetStatsLevel(1);
			cuFileStatsStart();
			usleep(500);
			cuFileStatsStop();
		} else if (what < 88) {
			change_driver();
		}
		atomic_fetch_add(&changes, 1);
		pthread_mutex_unlock(&changing);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	enum { CHANGERS = 4 };
	if (argc < 5 || argc > 6)
		return 2;
	orderly = argc == 6;
	directory = argv[1];
	int readers = atoi(argv[2]);
	seed = atoi(argv[4]);
	if (readers > MAX_READERS || cuFileDriverOpen().err != CU_FILE_SUCCESS)
		return 1;
	make_files();
	for (int s = 0; s < PAIRS; s++)
		publish(s, reg(s), s, memory());
	pthread_t threads[MAX_READERS + CHANGERS];
	int n = 0;
	for (long i = 0; i < readers; i++)
		n += pthread_create(&threads[n], NULL, reader, (void *)i) == 0;
	for (long i = 0; i < CHANGERS; i++)
		n += pthread_create(&threads[n], NULL, changer, (void *)i) == 0;
	for (int i = 0; i < 6000 && (atomic_load(&changes) < atoi(argv[3]) || leased() < 1000 || atomic_load(&right) < 100); i++)
		usleep(10000);
	atomic_store(&stop, true);
	alarm(60); /* who waits for a lease for ever is a failure */
	for (int i = 0; i < n; i++)
		pthread_join(threads[i], NULL);
	if (cuFileDriverClose().err != CU_FILE_SUCCESS || cuFileUseCount() != 0)
		fail("close", cuFileUseCount());
	fprintf(stderr, "%ld right, %ld refused, %ld changes, %lu by leases\n", atomic_load(&right), atomic_load(&refused),
		atomic_load(&changes), (unsigned long)leased());
	printf("%d failures, %s, %s, %s\n", atomic_load(&failures), leased() >= 1000 ? "many by leases" : "FEW BY LEASES",
	       atomic_load(&right) >= 100 ? "bytes compared" : "FEW COMPARED",
	       atomic_load(&changes) >= atoi(argv[3]) ? "changes" : "FEW CHANGES");
	return atomic_load(&failures) != 0;
}
