/*
 * The calls that move data or name files, forwarded and recorded, and the record itself.
 * No lock, no allocation and no Go: the cost of a read is two looks at the clock and a
 * few additions.
 */
#define _GNU_SOURCE
#include "watch_local.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "record.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* from Linux 5.14 on */
#endif

static struct record *rec; /* NULL if there is none: calls are forwarded only */
static int refused; /* why this process could not make its record */
static _Atomic uint32_t backed; /* slots of the record that have memory */
static void *engine;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* What the environment says when the process starts: a program may clear it. */
static char run_dir[PATH_MAX], watched[PATH_MAX];

static bool keep(char *to, const char *name)
{
	const char *value = secure_getenv(name);
	bool fits = value && strlen(value) < PATH_MAX;
	if (fits)
		strcpy(to, value);
	return fits;
}

/* create makes the record of this process in the directory of the run. A process that
 * executes another program keeps its number, so the name has a second one. */
static int create(char *path)
{
	for (int i = 0; i < 10000; i++) {
		snprintf(path, PATH_MAX, "%.*s/%ld.%d.record", PATH_MAX - 64, run_dir, (long)getpid(), i);
		int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
		if (fd >= 0 || errno != EEXIST)
			return fd;
	}
	return -1;
}

static void write_command(struct record *r)
{
	int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? 0 : read(fd, r->command, sizeof r->command - 1);
	for (ssize_t i = 0; i + 1 < n; i++)
		if (!r->command[i])
			r->command[i] = ' ';
	if (fd >= 0)
		close(fd);
}

/* back gives the slots up to one their memory, which is that of a file. Where there is no space
 * left an access would be a SIGBUS. A kernel that cannot say so is believed to have space. */
static bool back(struct record *r, uint32_t slot)
{
	uint32_t have = atomic_load(&backed);
	if (slot < have)
		return true;
	char *from = have ? (char *)&r->files[have] : (char *)r, *to = (char *)&r->files[slot + 1];
	int saved = errno;
	bool ok = madvise(from, (size_t)(to - from), MADV_POPULATE_WRITE) == 0 || errno == EINVAL;
	errno = saved;
	if (ok)
		atomic_compare_exchange_strong(&backed, &have, slot + 1);
	return ok;
}

/* begin_record is the record of this process, or NULL. The report says which process has none,
 * by the name of its file. */
static struct record *begin_record(void)
{
	char path[PATH_MAX], full[PATH_MAX + 8];
	struct rlimit limit;
	bool fits = getrlimit(RLIMIT_FSIZE, &limit) || limit.rlim_cur >= sizeof(struct record); /* or a SIGXFSZ ends the process */
	int fd = fits ? create(path) : -1;
	if (fd < 0) {
		refused = fits ? errno : EFBIG;
		return NULL;
	}
	struct record *r = MAP_FAILED;
	if (ftruncate(fd, sizeof *r) == 0)
		r = mmap(NULL, sizeof *r, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (r != MAP_FAILED && back(r, 0))
		return r;
	snprintf(full, sizeof full, "%s.full", path);
	rename(path, full);
	if (r != MAP_FAILED)
		munmap(r, sizeof *r);
	return NULL;
}

/* The record is made when the process starts, not with the first call: a process without
 * calls is reported, too. */
__attribute__((constructor)) static void begin(void)
{
	int saved = errno;
	keep(watched, "CULVERT_WATCHED");
	struct record *r = keep(run_dir, "CULVERT_RUN_DIR") ? begin_record() : NULL;
	if (r) {
		r->version = 1, r->slots = RECORD_FILES, r->pid = getpid();
		write_command(r);
		atomic_store(&r->files[0].used, 1);
		memcpy(r->magic, CULVERT_RECORD_MAGIC, sizeof r->magic);
		rec = r;
	}
	errno = saved;
}

/* hangs reports whether a library would never return from cuFileDriverOpen: NVIDIA's 1.15 to
 * 1.19 read /proc/modules until they meet its end, also where there is no such file. */
static bool hangs(void *library)
{
	return !dlsym(library, "culvert_marker") && access("/proc/modules", F_OK) != 0;
}

/* load loads the engine. Its own names come first for itself: NVIDIA's library calls some
 * of its functions by name. AddressSanitizer refuses that flag; Culvert's needs it not. */
static void load(void)
{
	const char *path = *watched ? watched : NULL;
	int first = dlsym(RTLD_DEFAULT, "__asan_init") ? 0 : RTLD_DEEPBIND;
	if (path)
		engine = dlopen(path, RTLD_NOW | RTLD_LOCAL | first);
	if (!engine)
		fprintf(stderr, "culvert: run: cannot load the libcufile to watch: %s\n", path ? dlerror() : "CULVERT_WATCHED is not set");
	else if (hangs(engine)) {
		fprintf(stderr, "culvert: run: %s is not used: this kernel has no /proc/modules, for which NVIDIA's libcufile waits for ever "
				"(fix: a kernel with modules, or --engine culvert)\n", path);
		engine = NULL;
	}
}

void *watch_find(void *_Atomic *found, const char *name)
{
	void *fn = atomic_load_explicit(found, memory_order_relaxed);
	if (fn)
		return fn;
	int saved = errno;
	pthread_once(&once, load);
	if (engine && (fn = dlsym(engine, name)))
		atomic_store(found, fn);
	errno = saved;
	return fn;
}

static void add(record_count *c, int64_t n)
{
	atomic_fetch_add_explicit(c, n, memory_order_relaxed);
}

/* lacking says that the report will not have this process, which its own directory or user
 * keeps from the records. */
static void lacking(void)
{
	static atomic_flag said = ATOMIC_FLAG_INIT;
	const char *fix = refused == EFBIG ? "raise the limit of file sizes, ulimit -f" : "start culvert run as the user of the process, inside of its container";
	int saved = errno;
	if (!atomic_flag_test_and_set(&said))
		fprintf(stderr, "culvert: run: the report lacks process %ld: create its record in %s: %s (fix: %s)\n", (long)getpid(), run_dir, strerror(refused), fix);
	errno = saved;
}

void watch_call(void)
{
	if (rec)
		add(&rec->calls, 1);
	else if (refused)
		lacking();
}

/* fail counts a failed call in the entry of its function and code, or in a free one. A
 * full table loses new kinds of failures, not counts of old ones. */
static void fail(const char *function, int code)
{
	for (int i = 0; i < RECORD_FAILURES; i++) {
		struct record_failure *f = &rec->failures[i];
		int32_t have = 0;
		if (atomic_compare_exchange_strong(&f->code, &have, code)) {
			strncpy(f->function, function, sizeof f->function - 1);
			atomic_store(&f->ready, 1);
		} else if (have != code) {
			continue;
		}
		/* Another thread copies the name. A process that was killed while it did is not waited for. */
		for (int i = 0; i < 1 << 20 && !atomic_load(&f->ready); i++)
			;
		if (atomic_load(&f->ready) && strncmp(f->function, function, sizeof f->function) == 0) {
			add(&f->count, 1);
			return;
		}
	}
}

CUfileError_t watch_status(const char *function, CUfileError_t status)
{
	watch_call();
	if (rec && status.err != CU_FILE_SUCCESS)
		fail(function, status.err);
	return status;
}

/* The slots of registered handles: open addressing, in the memory of the process. No handle
 * is GONE, which marks a place that searches must not end at. */
enum { HANDLES = 8192 };
#define GONE UINTPTR_MAX
static struct {
	_Atomic uintptr_t handle; /* 0: never used */
	_Atomic uint32_t slot;
} handles[HANDLES];

static uint32_t place(uintptr_t handle)
{
	return (uint32_t)((handle * UINT64_C(0x9e3779b97f4a7c15)) >> 51);
}

/* place_of is where a handle is, or -1. */
static int place_of(CUfileHandle_t fh)
{
	for (uint32_t i = 0; i < 64; i++) {
		uint32_t at = (place((uintptr_t)fh) + i) % HANDLES;
		uintptr_t have = atomic_load_explicit(&handles[at].handle, memory_order_relaxed);
		if (!have)
			break;
		if (have == (uintptr_t)fh)
			return (int)at;
	}
	return -1;
}

/* remember keeps the slot of a handle. If all places near its own are taken, its transfers
 * count for the first slot. */
static void remember(CUfileHandle_t fh, uint32_t slot)
{
	int known = place_of(fh); /* the engine closed it, with its driver */
	if (known >= 0)
		atomic_store(&handles[known].slot, slot);
	for (uint32_t i = 0; known < 0 && i < 64; i++) {
		uint32_t at = (place((uintptr_t)fh) + i) % HANDLES;
		uintptr_t free = 0, gone = GONE;
		if (atomic_compare_exchange_strong(&handles[at].handle, &free, (uintptr_t)fh) ||
		    atomic_compare_exchange_strong(&handles[at].handle, &gone, (uintptr_t)fh)) {
			atomic_store(&handles[at].slot, slot);
			return;
		}
	}
}

/* forget makes room for other handles. A program may register a file for each read. */
static void forget(CUfileHandle_t fh)
{
	int at = place_of(fh);
	if (at >= 0)
		atomic_store(&handles[at].handle, GONE);
}

static struct record_file *file_of(CUfileHandle_t fh)
{
	int at = place_of(fh);
	return &rec->files[at < 0 ? 0 : atomic_load_explicit(&handles[at].slot, memory_order_relaxed)];
}

/* slot_of is the slot of a path. Two threads may give one path two slots; the report adds
 * them up. */
static uint32_t slot_of(const char *path, int flags)
{
	for (uint32_t i = 1; i < RECORD_FILES; i++) {
		struct record_file *f = &rec->files[i];
		uint32_t none = 0;
		if (!back(rec, i))
			return 0;
		if (atomic_load(&f->used) == 2 && strncmp(f->path, path, sizeof f->path - 1) == 0)
			return i;
		if (atomic_compare_exchange_strong(&f->used, &none, 1)) {
			strncpy(f->path, path, sizeof f->path - 1);
			f->direct = (flags & O_DIRECT) != 0;
			atomic_store(&f->used, 2);
			return i;
		}
	}
	return 0;
}

/* child tells the command of a forked process, whose routes it then looks for. */
static void child(void)
{
	char path[PATH_MAX];
	if (getpid() == rec->pid)
		return;
	snprintf(path, sizeof path, "%.*s/%ld.child", PATH_MAX - 64, run_dir, (long)getpid());
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	if (fd >= 0)
		close(fd);
}

static void learn(CUfileHandle_t fh, const CUfileDescr_t *d)
{
	child();
	char link[64], path[PATH_MAX] = "a user-space file system";
	int flags = 0;
	if (d->type == CU_FILE_HANDLE_TYPE_OPAQUE_FD) {
		snprintf(link, sizeof link, "/proc/self/fd/%d", d->handle.fd);
		ssize_t n = readlink(link, path, sizeof path - 1);
		path[n > 0 ? n : 0] = 0;
		flags = fcntl(d->handle.fd, F_GETFL);
	}
	remember(fh, slot_of(path, flags));
}

static int64_t now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

/* log2_of is the position of the highest bit. */
static int log2_of(uint64_t n)
{
	return n ? 63 - __builtin_clzll(n) : 0;
}

static void count_size(struct record_direction *d, uint64_t size)
{
	int at = log2_of(size);
	add(&d->sizes[at < RECORD_SIZES ? at : RECORD_SIZES - 1], 1);
}

static void count_code(struct record_file *f, int code)
{
	for (int i = 0; i < RECORD_CODES; i++) {
		int32_t have = 0;
		if (atomic_compare_exchange_strong(&f->codes[i].code, &have, code) || have == code) {
			add(&f->codes[i].count, 1);
			return;
		}
	}
}

/* moved records a transfer: its result is a count, or -1 with errno, or a negated code. */
static void moved(CUfileHandle_t fh, int write, uint64_t size, ssize_t result, int64_t started, const char *function)
{
	int saved = errno;
	watch_call();
	if (rec) {
		struct record_file *f = file_of(fh);
		struct record_direction *d = &f->dir[write];
		int64_t took = now() - started;
		int high = log2_of((uint64_t)took);
		int at = 4 * high + (high >= 2 ? (took >> (high - 2)) & 3 : 0);
		add(&d->calls, 1);
		add(&d->nanos, took);
		add(&d->times[at < RECORD_TIMES ? at : RECORD_TIMES - 1], 1);
		count_size(d, size);
		if (result < 0) {
			int code = result == -1 ? saved : (int)-result;
			add(&d->failed, 1);
			count_code(f, code);
			fail(function, code);
		} else {
			add(&d->bytes, result);
			if ((uint64_t)result < size)
				add(&d->cut, 1);
		}
	}
	errno = saved;
}

#define FORWARD(name)                                            \
	static void *_Atomic found;                              \
	__typeof__(name) *real;                                  \
	*(void **)&real = watch_find(&found, #name);

#define NO_ENGINE ((CUfileError_t){CU_FILE_DRIVER_NOT_INITIALIZED, 0})

CULVERT_EXPORT CUfileError_t cuFileHandleRegister(CUfileHandle_t *fh, CUfileDescr_t *descr)
{
	FORWARD(cuFileHandleRegister)
	CUfileError_t r = real ? real(fh, descr) : NO_ENGINE;
	if (r.err == CU_FILE_SUCCESS && rec)
		learn(*fh, descr);
	return watch_status("cuFileHandleRegister", r);
}

/* The engine may give the handle away as soon as it is free. */
CULVERT_EXPORT void cuFileHandleDeregister(CUfileHandle_t fh)
{
	FORWARD(cuFileHandleDeregister)
	watch_call();
	forget(fh);
	if (real)
		real(fh);
}

CULVERT_EXPORT ssize_t cuFileRead(CUfileHandle_t fh, void *base, size_t size, off_t file_offset, off_t buf_offset)
{
	FORWARD(cuFileRead)
	int64_t start = now();
	if (!real)
		errno = CU_FILE_DRIVER_NOT_INITIALIZED;
	ssize_t n = real ? real(fh, base, size, file_offset, buf_offset) : -1;
	moved(fh, 0, size, n, start, "cuFileRead");
	return n;
}

CULVERT_EXPORT ssize_t cuFileWrite(CUfileHandle_t fh, const void *base, size_t size, off_t file_offset, off_t buf_offset)
{
	FORWARD(cuFileWrite)
	int64_t start = now();
	if (!real)
		errno = CU_FILE_DRIVER_NOT_INITIALIZED;
	ssize_t n = real ? real(fh, base, size, file_offset, buf_offset) : -1;
	moved(fh, 1, size, n, start, "cuFileWrite");
	return n;
}

static uint64_t total(const CUfileIOVec_t *iov, size_t n)
{
	uint64_t sum = 0;
	for (size_t i = 0; iov && i < n; i++)
		sum += iov[i].len;
	return sum;
}

CULVERT_EXPORT ssize_t cuFileReadv(CUfileHandle_t fh, const CUfileIOVec_t *iov, size_t iovcnt, off_t file_offset, unsigned flags)
{
	FORWARD(cuFileReadv)
	int64_t start = now();
	if (!real)
		errno = CU_FILE_DRIVER_NOT_INITIALIZED;
	ssize_t n = real ? real(fh, iov, iovcnt, file_offset, flags) : -1;
	moved(fh, 0, n < 0 ? 0 : total(iov, iovcnt), n, start, "cuFileReadv");
	return n;
}

CULVERT_EXPORT ssize_t cuFileWritev(CUfileHandle_t fh, const CUfileIOVec_t *iov, size_t iovcnt, off_t file_offset, unsigned flags)
{
	FORWARD(cuFileWritev)
	int64_t start = now();
	if (!real)
		errno = CU_FILE_DRIVER_NOT_INITIALIZED;
	ssize_t n = real ? real(fh, iov, iovcnt, file_offset, flags) : -1;
	moved(fh, 1, n < 0 ? 0 : total(iov, iovcnt), n, start, "cuFileWritev");
	return n;
}

/* queued records a request whose result comes later: its size, and that it was made. */
static void queued(CUfileHandle_t fh, int write, uint64_t size)
{
	struct record_file *f = file_of(fh);
	struct record_direction *d = &f->dir[write];
	add(&d->calls, 1);
	add(&d->async, 1);
	add(&f->asked[write], (int64_t)size);
	count_size(d, size);
}

CULVERT_EXPORT CUfileError_t cuFileBatchIOSubmit(CUfileBatchHandle_t batch, unsigned nr, CUfileIOParams_t *params, unsigned flags)
{
	FORWARD(cuFileBatchIOSubmit)
	CUfileError_t r = real ? real(batch, nr, params, flags) : NO_ENGINE;
	for (unsigned i = 0; rec && r.err == CU_FILE_SUCCESS && i < nr; i++)
		queued(params[i].fh, params[i].opcode == CUFILE_WRITE, params[i].u.batch.size);
	return watch_status("cuFileBatchIOSubmit", r);
}

CULVERT_EXPORT CUfileError_t cuFileReadAsync(CUfileHandle_t fh, void *base, size_t *size_p, off_t *file_offset_p,
					     off_t *buf_offset_p, ssize_t *bytes_read_p, CUstream stream)
{
	FORWARD(cuFileReadAsync)
	CUfileError_t r = real ? real(fh, base, size_p, file_offset_p, buf_offset_p, bytes_read_p, stream) : NO_ENGINE;
	if (rec && r.err == CU_FILE_SUCCESS)
		queued(fh, 0, *size_p);
	return watch_status("cuFileReadAsync", r);
}

CULVERT_EXPORT CUfileError_t cuFileWriteAsync(CUfileHandle_t fh, void *base, size_t *size_p, off_t *file_offset_p,
					      off_t *buf_offset_p, ssize_t *bytes_written_p, CUstream stream)
{
	FORWARD(cuFileWriteAsync)
	CUfileError_t r = real ? real(fh, base, size_p, file_offset_p, buf_offset_p, bytes_written_p, stream) : NO_ENGINE;
	if (rec && r.err == CU_FILE_SUCCESS)
		queued(fh, 1, *size_p);
	return watch_status("cuFileWriteAsync", r);
}
