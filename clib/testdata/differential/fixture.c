/*
 * One case: a file, memory, calls. The file has a shadow, to which the operating
 * system does what the call should do to the file; the memory has a mirror in the same
 * way. After each call they are compared.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "play.h"

enum { RANDOM = 8 << 20, CHUNK = 64 << 10, MOST = 8 };

struct memory {
	const char *kind;
	size_t size, mapped;
	char *base;
	int gone;
	CUmemGenericAllocationHandle physical;
};

static struct {
	const struct item *c;
	char path[4096], shadow_path[4096];
	const char *directory;
	int fd, shadow;
	struct memory memory;
	char *mirror, *seen;

	CUfileHandle_t handle, others[MOST];
	int registered, closed, other_count; /* the handle was */
	void *buffers[MOST];
	int buffer_count;
	int fds[2 * MOST], fd_count;
} fixture;

/* noise is where the bytes of files and memory come from. */
static char *noise(void)
{
	static char *bytes;
	if (bytes)
		return bytes;
	bytes = malloc(RANDOM);
	unsigned long long x = 88172645463325252ull;
	for (int i = 0; i < RANDOM; i += 8) {
		x ^= x << 13, x ^= x >> 7, x ^= x << 17;
		memcpy(bytes + i, &x, 8);
	}
	return bytes;
}

static void must(const char *what, CUresult r)
{
	if (r)
		die("%s: %s: CUDA error %d", fixture.c->name, what, (int)r);
}

static void must_all(const char *what, ssize_t n, size_t want)
{
	if (n < 0 || (size_t)n != want)
		die("%s: %s: %zd of %zu: %s", fixture.c->name, what, n, want, strerror(errno));
}

static int on_device(void) { return strcmp(fixture.memory.kind, "device") == 0 || strcmp(fixture.memory.kind, "virtual") == 0; }

static void alloc_virtual(struct memory *m)
{
	CUmemAllocationProp prop;
	CUmemAccessDesc access;
	CUdeviceptr p;
	size_t grain;
	memset(&prop, 0, sizeof prop);
	memset(&access, 0, sizeof access);
	prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
	prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	prop.allocFlags.gpuDirectRDMACapable = 1;
	access.location = prop.location;
	access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
	must("cuMemGetAllocationGranularity", cuMemGetAllocationGranularity(&grain, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
	m->mapped = (m->size + grain - 1) / grain * grain;
	must("cuMemCreate", cuMemCreate(&m->physical, m->mapped, &prop, 0));
	must("cuMemAddressReserve", cuMemAddressReserve(&p, m->mapped, 0, 0, 0));
	must("cuMemMap", cuMemMap(p, m->mapped, 0, m->physical, 0));
	must("cuMemSetAccess", cuMemSetAccess(p, m->mapped, &access, 1));
	m->base = (char *)p;
}

static void alloc_memory(void)
{
	struct memory *m = &fixture.memory;
	CUdeviceptr p = 0;
	memset(m, 0, sizeof *m);
	m->kind = fixture.c->kind, m->size = fixture.c->memory;
	if (strcmp(m->kind, "device") == 0) {
		must("cuMemAlloc", cuMemAlloc(&p, m->size));
		m->base = (char *)p;
	} else if (strcmp(m->kind, "managed") == 0) {
		must("cuMemAllocManaged", cuMemAllocManaged(&p, m->size, CU_MEM_ATTACH_GLOBAL));
		m->base = (char *)p;
	} else if (strcmp(m->kind, "virtual") == 0) {
		alloc_virtual(m);
	} else if (strcmp(m->kind, "pinned") == 0) {
		must("cuMemHostAlloc", cuMemHostAlloc((void **)&m->base, m->size, 0));
	} else {
		m->base = mmap(NULL, m->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (m->base == MAP_FAILED)
			die("mmap: %s", strerror(errno));
		if (strcmp(m->kind, "registered") == 0)
			must("cuMemHostRegister", cuMemHostRegister(m->base, m->size, 0));
	}
}

static CUresult free_virtual(struct memory *m)
{
	CUdeviceptr p = (CUdeviceptr)m->base;
	CUresult r = cuMemUnmap(p, m->mapped);
	if (!r)
		r = cuMemAddressFree(p, m->mapped);
	return r ? r : cuMemRelease(m->physical);
}

static CUresult free_memory(void)
{
	struct memory *m = &fixture.memory;
	CUresult r = 0;
	if (m->gone)
		return 0;
	m->gone = 1;
	if (strcmp(m->kind, "device") == 0 || strcmp(m->kind, "managed") == 0)
		return cuMemFree((CUdeviceptr)m->base);
	if (strcmp(m->kind, "virtual") == 0)
		return free_virtual(m);
	if (strcmp(m->kind, "pinned") == 0)
		return cuMemFreeHost(m->base);
	if (strcmp(m->kind, "registered") == 0)
		r = cuMemHostUnregister(m->base);
	munmap(m->base, m->size);
	return r;
}

static void fill_memory(void)
{
	struct memory *m = &fixture.memory;
	fixture.mirror = malloc(m->size);
	fixture.seen = malloc(m->size);
	memcpy(fixture.mirror, noise() + RANDOM / 2, m->size);
	if (on_device())
		must("cuMemcpyHtoD", cuMemcpyHtoD((CUdeviceptr)m->base, fixture.mirror, m->size));
	else
		memcpy(m->base, fixture.mirror, m->size);
}

/* make_file makes the file of the case, with its holes, and returns what is
 * open for reading and writing. */
static int make_file(const char *path)
{
	const struct item *c = fixture.c;
	long long at = 0;
	int fd = open(path, O_CREAT | O_TRUNC | O_RDWR | O_CLOEXEC, 0600);
	if (fd < 0)
		die("%s: %s", path, strerror(errno));
	for (int i = 0; i <= c->hole_count; i++) {
		long long end = i < c->hole_count ? c->holes[i].off : c->size;
		if (end > at)
			must_all("pwrite", pwrite(fd, noise() + at, (size_t)(end - at), at), (size_t)(end - at));
		if (i < c->hole_count)
			at = c->holes[i].off + c->holes[i].len;
	}
	if (ftruncate(fd, c->size) != 0)
		die("ftruncate: %s", strerror(errno));
	return fd;
}

static int keep_fd(int fd)
{
	if (fd >= 0)
		fixture.fds[fixture.fd_count++] = fd;
	return fd;
}

/* descriptor opens what a step wants to register. */
static int descriptor(const char *which)
{
	int ends[2];
	if (strcmp(which, "file") == 0)
		return fixture.fd;
	if (strcmp(which, "minus-one") == 0)
		return -1;
	if (strcmp(which, "closed") == 0)
		return 1 << 19;
	if (strcmp(which, "again") == 0)
		return keep_fd(open(fixture.path, fixture.c->flags | O_CLOEXEC));
	if (strcmp(which, "dup") == 0)
		return keep_fd(fcntl(fixture.fd, F_DUPFD_CLOEXEC, 0));
	if (strcmp(which, "directory") == 0)
		return keep_fd(open(fixture.directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	if (strcmp(which, "socket") == 0)
		return keep_fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
	if (strcmp(which, "null-device") == 0)
		return keep_fd(open("/dev/null", O_RDWR | O_CLOEXEC));
	if (strcmp(which, "path-only") == 0)
		return keep_fd(open(fixture.path, O_PATH | O_CLOEXEC));
	if (strcmp(which, "pipe") == 0 && pipe2(ends, O_CLOEXEC) == 0) {
		keep_fd(ends[1]);
		return keep_fd(ends[0]);
	}
	die("%s: no descriptor of the kind %s", fixture.c->name, which);
}

static int do_register(const struct step *s)
{
	CUfileDescr_t d;
	CUfileHandle_t h = NULL;
	memset(&d, 0, sizeof d);
	d.type = CU_FILE_HANDLE_TYPE_OPAQUE_FD;
	d.handle.fd = descriptor(s->fd);
	int code = (int)engine.reg(&h, &d).err;
	if (code)
		return code;
	if (!fixture.registered || fixture.closed)
		fixture.handle = h, fixture.registered = 1, fixture.closed = 0;
	else
		fixture.others[fixture.other_count++] = h;
	return 0;
}

static char *pointer(const struct step *s)
{
	if (s->null)
		return NULL;
	return s->wild ? (char *)s->wild : fixture.memory.base + s->at;
}

static int do_register_buffer(const struct step *s)
{
	int code = (int)engine.buf_reg(pointer(s), s->len, 0).err;
	if (!code)
		fixture.buffers[fixture.buffer_count++] = pointer(s);
	return code;
}

/* counted makes a code of what a read or write returned. */
static int counted(ssize_t n)
{
	if (n >= 0)
		return 0;
	return n == -1 ? (errno ? errno : -1) : (int)-n;
}

/* call makes the call, and sets n to the bytes that it moved by its own
 * account. */
static int call(const struct step *s, ssize_t *n)
{
	*n = 0;
	if (strcmp(s->call, "register") == 0)
		return do_register(s);
	if (strcmp(s->call, "deregister") == 0) {
		fixture.closed = 1;
		engine.dereg(fixture.handle);
		return 0;
	}
	if (strcmp(s->call, "register-buffer") == 0)
		return do_register_buffer(s);
	if (strcmp(s->call, "deregister-buffer") == 0)
		return (int)engine.buf_dereg(pointer(s)).err;
	if (strcmp(s->call, "truncate") == 0)
		return truncate(fixture.path, s->off) ? errno : 0;
	if (strcmp(s->call, "free") == 0) {
		int code = (int)free_memory();
		usleep(2000); /* within one millisecond it need not be noticed */
		return code;
	}
	errno = 0;
	if (strcmp(s->call, "read") == 0)
		*n = engine.read(fixture.handle, pointer(s), s->len, s->off, s->buf);
	else
		*n = engine.write(fixture.handle, pointer(s), s->len, s->off, s->buf);
	return counted(*n);
}

/* expect does to shadow and mirror what a step that should succeed does to
 * file and memory. What the call did not do by its own account is not done. */
static void expect(const struct step *s, ssize_t got)
{
	size_t n = s->len;
	if (strcmp(s->call, "truncate") == 0 && ftruncate(fixture.shadow, s->off) != 0)
		die("ftruncate: %s", strerror(errno));
	if (got <= 0 || s->len == 0)
		return;
	if ((size_t)got < n)
		n = (size_t)got;
	char *here = fixture.mirror + s->at + s->buf;
	if (strcmp(s->call, "read") == 0 && pread(fixture.shadow, here, n, s->off) < 0)
		die("pread: %s", strerror(errno));
	if (strcmp(s->call, "write") == 0)
		must_all("pwrite", pwrite(fixture.shadow, here, n, s->off), n);
}

/* first_difference is where a and b differ, or -1. */
static ssize_t first_difference(const char *a, const char *b, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (a[i] != b[i])
			return (ssize_t)i;
	return -1;
}

static void memory_damage(char *text, size_t room)
{
	struct memory *m = &fixture.memory;
	if (on_device()) {
		CUresult r = cuMemcpyDtoH(fixture.seen, (CUdeviceptr)m->base, m->size);
		if (r) {
			snprintf(text, room, ", the memory cannot be read: CUDA error %d", (int)r);
			return;
		}
	} else {
		cuCtxSynchronize(); /* managed memory */
		memcpy(fixture.seen, m->base, m->size);
	}
	ssize_t at = first_difference(fixture.seen, fixture.mirror, m->size);
	if (at < 0)
		return;
	memcpy(fixture.mirror, fixture.seen, m->size); /* later steps report only their own damage */
	snprintf(text, room, ", the memory differs at %zd", at);
}

/* compare_chunk compares a chunk of file and shadow. */
static ssize_t compare_chunk(int fd, off_t off)
{
	static char a[CHUNK], b[CHUNK];
	memset(a, 0, CHUNK), memset(b, 0, CHUNK);
	if (pread(fd, a, CHUNK, off) < 0 || pread(fixture.shadow, b, CHUNK, off) < 0)
		return 0;
	return first_difference(a, b, CHUNK);
}

static void file_damage(char *text, size_t room)
{
	struct stat is, should;
	int fd = open(fixture.path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &is) != 0 || fstat(fixture.shadow, &should) != 0)
		die("%s: %s", fixture.path, strerror(errno));
	if (is.st_size != should.st_size)
		snprintf(text, room, ", the file has %lld bytes, want %lld", (long long)is.st_size, (long long)should.st_size);
	for (int i = 0; i < 2 && !*text; i++) {
		off_t off = 0;
		while (!*text && (off = lseek(i ? fixture.shadow : fd, off, SEEK_DATA)) >= 0) {
			off -= off % CHUNK;
			ssize_t at = compare_chunk(fd, off);
			if (at >= 0)
				snprintf(text, room, ", the file differs at %lld", (long long)off + at);
			off += CHUNK;
		}
	}
	close(fd);
}

/* step plays one step and returns whether the case can go on. */
static int step(const struct step *s, struct outcomes *o)
{
	ssize_t n;
	char damage[64] = "", what[48] = "ok";
	int code = call(s, &n);
	int transfer = strcmp(s->call, "read") == 0 || strcmp(s->call, "write") == 0;
	if (s->succeeds)
		expect(s, code ? 0 : n);
	if (strcmp(s->call, "read") == 0 && !fixture.memory.gone)
		memory_damage(damage, sizeof damage);
	if (strcmp(s->call, "write") == 0 || strcmp(s->call, "truncate") == 0)
		file_damage(damage, sizeof damage);
	if (code)
		snprintf(what, sizeof what, "error %d", code);
	else if (transfer)
		snprintf(what, sizeof what, "%zd bytes", n);
	snprintf(o->text[o->count++], sizeof o->text[0], "%.31s: %.40s%.56s", s->label, what, damage);
	return (code == 0) == s->succeeds;
}

static void clean(void)
{
	for (int i = 0; i < fixture.other_count; i++)
		engine.dereg(fixture.others[i]);
	if (fixture.registered && !fixture.closed)
		engine.dereg(fixture.handle);
	for (int i = 0; i < fixture.buffer_count; i++)
		engine.buf_dereg(fixture.buffers[i]); /* a step may have done so */
	for (int i = 0; i < fixture.fd_count; i++)
		close(fixture.fds[i]);
	close(fixture.shadow);
	free_memory();
	free(fixture.mirror);
	free(fixture.seen);
	unlink(fixture.path);
	unlink(fixture.shadow_path);
}

void play(const struct item *c, const char *directory, struct outcomes *o)
{
	memset(&fixture, 0, sizeof fixture);
	memset(o, 0, sizeof *o);
	fixture.c = c, fixture.directory = directory;
	snprintf(fixture.path, sizeof fixture.path, "%.4000s/case", directory);
	snprintf(fixture.shadow_path, sizeof fixture.shadow_path, "%.4000s/shadow", directory);
	close(make_file(fixture.path));
	fixture.shadow = make_file(fixture.shadow_path);
	alloc_memory();
	fill_memory();
	fixture.fd = keep_fd(open(fixture.path, c->flags | O_CLOEXEC));
	if (fixture.fd < 0 && errno != EINVAL)
		die("%s: %s", fixture.path, strerror(errno));
	if (fixture.fd < 0)
		snprintf(o->text[o->count++], sizeof o->text[0], "open: the file system has no O_DIRECT");
	for (int i = 0; fixture.fd >= 0 && i < c->step_count; i++)
		if (!step(&c->steps[i], o))
			break;
	clean();
}
