// A libcuda that remembers what it was asked, for the tests of package cuda.
// "Device memory" is host memory. Variants are chosen by -D:
//
//	NO_DEVICE  cuInit finds no device
//	ZERO       cuInit works, but the count is 0
//	MARKER     Culvert's own marker is exported
//	OLD        a library of CUDA 9: no virtual memory, host functions, ...
//	ANCIENT    lacks a function that everything needs
//	CTX_V4     only the newest cuCtxCreate, as a future library might have it
#define _GNU_SOURCE
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef int res;
typedef uint64_t ptr;
typedef uint64_t word;
typedef struct { int32_t type, handles, loc, id; void *win32; uint8_t compression, rdma; uint16_t usage; uint8_t rest[4]; } prop_t;
typedef struct { int32_t loc, id, flags; } access_t;

// ---- control ----

static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static char logbuf[1 << 16];
static size_t loglen;
static int logging;
static struct { char name[48]; int code; int after; } answers[16];
static long wrong_context;
static int live_memory, live_handles, live_ranges, live_maps, live_streams, live_events, live_modules, live_contexts, primary;

void fake_log_start(void) { pthread_mutex_lock(&mu); loglen = 0; logbuf[0] = 0; logging = 1; pthread_mutex_unlock(&mu); }
const char *fake_log(void) { logging = 0; return logbuf; }
long fake_wrong_context(void) { return wrong_context; }

// The next call of name, after some that work, answers code; for ever if code
// is negative (then -code).
void fake_answer(const char *name, int code, int after)
{
	for (int i = 0; i < 16; i++)
		if (!answers[i].name[0] || !strcmp(answers[i].name, name)) {
			strcpy(answers[i].name, name);
			answers[i].code = code;
			answers[i].after = after;
			return;
		}
}
void fake_reset(void) { memset(answers, 0, sizeof answers); }

const char *fake_live(void)
{
	static char s[200];
	snprintf(s, sizeof s, "memory %d handles %d ranges %d maps %d streams %d events %d modules %d contexts %d primary %d",
		 live_memory, live_handles, live_ranges, live_maps, live_streams, live_events, live_modules, live_contexts, primary);
	return s;
}

static int answer(const char *name)
{
	for (int i = 0; i < 16 && answers[i].name[0]; i++) {
		if (strcmp(answers[i].name, name) || !answers[i].code)
			continue;
		if (answers[i].after-- > 0)
			return 0;
		int c = answers[i].code;
		if (c < 0)
			return -c;
		answers[i].code = 0;
		return c;
	}
	return 0;
}

// enter logs the call and says what it must answer.
static res enter(const char *name, const char *format, ...)
{
	pthread_mutex_lock(&mu);
	if (logging && loglen < sizeof logbuf - 512) {
		va_list ap;
		va_start(ap, format);
		loglen += sprintf(logbuf + loglen, "%s(", name);
		loglen += vsnprintf(logbuf + loglen, 400, format, ap);
		loglen += sprintf(logbuf + loglen, ")\n");
		va_end(ap);
	}
	res r = answer(name);
	pthread_mutex_unlock(&mu);
	return r;
}

#define ENTER(...) do { res r_ = enter(__func__, __VA_ARGS__); if (r_) return r_; } while (0)
#define COUNT(what, by) __atomic_add_fetch(&live_##what, by, __ATOMIC_SEQ_CST)

// ---- contexts: a stack per thread, and who owns the memory ----

static __thread word stack[8];
static __thread int depth;
static word current(void) { return depth ? stack[depth - 1] : 0; }
word fake_current(void) { return current(); }
int fake_depth(void) { return depth; }

typedef struct { word owner, size; } header;
enum { HEADER = 256 };
static void *make(word size)
{
	char *p = aligned_alloc(4096, (size + HEADER + 4095) / 4096 * 4096);
	((header *)p)->owner = current();
	((header *)p)->size = size;
	COUNT(memory, 1);
	return p + HEADER;
}
static void unmake(ptr p) { COUNT(memory, -1); free((char *)p - HEADER); }
static void owned(ptr p)
{
	if (((header *)(p - HEADER))->owner != current())
		__atomic_add_fetch(&wrong_context, 1, __ATOMIC_SEQ_CST);
}

#ifdef MARKER
int culvert_soft_machine;
#endif

res cuInit(unsigned flags)
{
	ENTER("%u", flags);
#ifdef NO_DEVICE
	return 100;
#endif
	return 0;
}
res cuDriverGetVersion(int *v)
{
#ifdef OLD
	*v = 9020;
#else
	*v = 13000;
#endif
	return 0;
}
res cuGetErrorName(int code, const char **s) { *s = code == 12345 ? "CUDA_ERROR_FAKE" : 0; return *s ? 0 : 1; }
res cuGetErrorString(int code, const char **s) { *s = code == 12345 ? "made up" : 0; return *s ? 0 : 1; }

res cuDeviceGetCount(int *n)
{
	ENTER("");
#ifdef ZERO
	*n = 0;
#else
	*n = 2;
#endif
	return 0;
}
res cuDeviceGet(int *dev, int i) { ENTER("%d", i); if (i < 0 || i > 1) return 101; *dev = i; return 0; }
res cuDeviceGetName(char *s, int n, int dev) { ENTER("%d, %d", n, dev); snprintf(s, n, "Fake %d", dev); return 0; }
res cuDeviceGetUuid_v2(unsigned char *u, int dev) { ENTER("%d", dev); for (int i = 0; i < 16; i++) u[i] = 16 * dev + i; return 0; }
res cuDeviceTotalMem_v2(size_t *n, int dev) { ENTER("%d", dev); *n = (size_t)141 << 30; return 0; }
res cuDeviceGetAttribute(int *v, int a, int dev)
{
	res r = answer("cuDeviceGetAttribute");
	if (r) return r;
	switch (a) {
	case 33: *v = 0x65 + dev; return 0;
	case 34: *v = 3; return 0;
	case 50: *v = 1; return 0;
	case 75: *v = 9; return 0;
	case 76: *v = 0; return 0;
	case 16: *v = 132; return 0;
	case 41: case 103: case 110: *v = 1; return 0;
	}
	return 1;
}
res cuDevicePrimaryCtxRetain(word *ctx, int dev) { ENTER("%d", dev); primary++; *ctx = 0xc0 + dev; return 0; }
res cuDevicePrimaryCtxRelease_v2(int dev) { ENTER("%d", dev); primary--; return 0; }

static res create(word *ctx)
{
	static word next = 0x1000;
	*ctx = ++next;
	COUNT(contexts, 1);
	stack[depth++] = *ctx;
	return 0;
}
#ifndef CTX_V4
res cuCtxCreate_v2(word *ctx, unsigned flags, int dev) { ENTER("%#x, %d", flags, dev); return create(ctx); }
#else
res cuCtxCreate_v4(word *ctx, void *params, unsigned flags, int dev) { ENTER("%p, %#x, %d", params, flags, dev); return create(ctx); }
#endif
res cuCtxDestroy_v2(word ctx) { ENTER(""); COUNT(contexts, -1); return 0; }
res cuCtxSetCurrent(word ctx)
{
	res r = answer("cuCtxSetCurrent");
	if (r) return r;
	if (!depth) depth = 1;
	stack[depth - 1] = ctx;
	return 0;
}
res cuCtxGetCurrent(word *ctx) { ENTER(""); *ctx = depth ? stack[depth - 1] : 0; return 0; }
res cuCtxPushCurrent_v2(word ctx) { ENTER("%#lx", ctx); stack[depth++] = ctx; return 0; }
res cuCtxPopCurrent_v2(word *ctx) { ENTER(""); if (!depth) return 201; *ctx = stack[--depth]; return 0; }
res cuCtxSynchronize(void) { ENTER(""); return 0; }

// ---- memory ----

res cuMemGetInfo_v2(size_t *f, size_t *t) { ENTER(""); *f = 100; *t = 200; return 0; }
res cuMemAlloc_v2(ptr *p, size_t n) { ENTER("%zu", n); *p = (ptr)make(n); return 0; }
res cuMemFree_v2(ptr p) { ENTER(""); owned(p); unmake(p); return 0; }
res cuMemHostAlloc(void **p, size_t n, unsigned flags) { ENTER("%zu, %u", n, flags); *p = make(n); return 0; }
res cuMemFreeHost(void *p) { ENTER(""); unmake((ptr)p); return 0; }
res cuMemAllocManaged(ptr *p, size_t n, unsigned flags) { ENTER("%zu, %u", n, flags); *p = (ptr)make(n); return 0; }
res cuMemHostRegister_v2(void *p, size_t n, unsigned flags) { ENTER("%p, %zu, %u", p, n, flags); return 0; }
res cuMemHostUnregister(void *p) { ENTER("%p", p); return 0; }
res cuMemHostGetDevicePointer_v2(ptr *d, void *p, unsigned flags) { ENTER("%p, %u", p, flags); *d = (ptr)p + 0x1000; return 0; }
res cuMemGetAddressRange_v2(ptr *base, size_t *n, ptr p) { ENTER("%#lx", p); *base = p & ~(ptr)0xffff; *n = 0x20000; return 0; }
res cuIpcGetMemHandle(unsigned char *h, ptr p) { ENTER("%#lx", p); for (int i = 0; i < 64; i++) h[i] = i; return 0; }
res cuPointerSetAttribute(const void *v, int a, ptr p) { ENTER("%u, %d, %#lx", *(unsigned *)v, a, p); return 0; }

static int imported; // what is mapped cannot be exported

// Addresses say what they are: 0x1... device, 0x2... host, 0x3... managed,
// 0x4... virtual, 0x5... out of this context.
res cuPointerGetAttributes(unsigned n, int *attrs, void **data, ptr p)
{
	ENTER("%u, %#lx", n, p);
	int what = p >> 40;
	if (what == 5)
		return 201;
	for (unsigned i = 0; i < n; i++)
		switch (attrs[i]) {
		case 2: *(unsigned *)data[i] = what == 1 || what == 4 ? 2 : what == 2 ? 1 : what == 3 ? 2 : 0; break;
		case 4: *(ptr *)data[i] = what == 2 || what == 3 ? p : 0; break;
		case 6: *(unsigned *)data[i] = what == 1; break;
		case 8: *(unsigned char *)data[i] = what == 3; break;
		case 9: *(int *)data[i] = what ? 1 : -2; break;
		case 11: *(ptr *)data[i] = what ? p & ~(ptr)0xfff : 0; break;
		case 12: *(size_t *)data[i] = what ? 0x3000 : 0; break;
		case 14: *(unsigned long long *)data[i] = what == 4 && !imported; break;
		default: return 1;
		}
	return 0;
}

#ifndef OLD
res cuMemGetAllocationGranularity(size_t *g, const prop_t *p, int option) { ENTER("%d", option); *g = 2 << 20; return 0; }
res cuMemCreate(word *h, size_t n, const prop_t *p, unsigned long long flags)
{
	ENTER("%zu, type %d handles %d location %d %d rdma %d usage %d, %llu", n, p->type, p->handles, p->loc, p->id, p->rdma, p->usage, flags);
	*h = 0xabc;
	COUNT(handles, 1);
	return 0;
}
res cuMemRelease(word h) { ENTER("%#lx", h); COUNT(handles, -1); return 0; }
res cuMemAddressReserve(ptr *p, size_t n, size_t align, ptr at, unsigned long long flags)
{
	ENTER("%zu, %zu, %#lx, %llu", n, align, at, flags);
	*p = 0x40000000000;
	COUNT(ranges, 1);
	return 0;
}
res cuMemAddressFree(ptr p, size_t n) { ENTER("%#lx, %zu", p, n); COUNT(ranges, -1); return 0; }
res cuMemMap(ptr p, size_t n, size_t off, word h, unsigned long long flags)
{
	ENTER("%#lx, %zu, %zu, %#lx, %llu", p, n, off, h, flags);
	COUNT(maps, 1);
	imported = h == 0x123;
	return 0;
}
res cuMemUnmap(ptr p, size_t n) { ENTER("%#lx, %zu", p, n); COUNT(maps, -1); imported = 0; return 0; }
res cuMemSetAccess(ptr p, size_t n, const access_t *a, size_t count)
{
	ENTER("%#lx, %zu, location %d %d flags %d, %zu", p, n, a->loc, a->id, a->flags, count);
	return 0;
}
res cuMemRetainAllocationHandle(word *h, void *p) { ENTER("%p", p); *h = 0xdef; COUNT(handles, 1); return 0; }
res cuMemExportToShareableHandle(int *fd, word h, int type, unsigned long long flags)
{
	ENTER("%#lx, %d, %llu", h, type, flags);
	*fd = memfd_create("fake", 0);
	return 0;
}
res cuMemImportFromShareableHandle(word *h, void *fd, int type) { ENTER("%d, %d", (int)(intptr_t)fd > 2, type); *h = 0x123; COUNT(handles, 1); return 0; }
res cuMemGetHandleForAddressRange(int *fd, ptr p, size_t n, int type, unsigned long long flags)
{
	ENTER("%#lx, %zu, %d, %llu", p, n, type, flags);
	*fd = memfd_create("fake", 0);
	return 0;
}
res cuFlushGPUDirectRDMAWrites(int target, int scope) { ENTER("%d, %d", target, scope); return 0; }
#endif

// ---- copies ----

res cuMemcpy(ptr d, ptr s, size_t n) { ENTER("%zu", n); memcpy((void *)d, (void *)s, n); return 0; }
res cuMemcpyHtoD_v2(ptr d, const void *s, size_t n) { ENTER("%zu", n); owned(d); memcpy((void *)d, s, n); return 0; }
res cuMemcpyDtoH_v2(void *d, ptr s, size_t n) { ENTER("%zu", n); owned(s); memcpy(d, (void *)s, n); return 0; }
res cuMemsetD8_v2(ptr d, unsigned char v, size_t n) { ENTER("%#x, %zu", v, n); return 0; }
res cuMemsetD16_v2(ptr d, unsigned short v, size_t n) { ENTER("%#x, %zu", v, n); return 0; }
res cuMemsetD32_v2(ptr d, unsigned v, size_t n) { ENTER("%#x, %zu", v, n); return 0; }

// ---- streams: work is done when it is enqueued ----

res cuStreamCreate(word *s, unsigned flags) { ENTER("%u", flags); *s = 0x51; COUNT(streams, 1); return 0; }
res cuStreamDestroy_v2(word s) { ENTER("%#lx", s); COUNT(streams, -1); return 0; }
res cuStreamSynchronize(word s) { ENTER("%#lx", s); return 0; }
res cuStreamIsCapturing(word s, int *out) { ENTER("%#lx", s); *out = 1; return 0; }
res cuStreamGetFlags(word s, unsigned *out) { ENTER("%#lx", s); *out = s == 0xb10c ? 0 : 1; return 0; }
res cuStreamQuery(word s) { ENTER("%#lx", s); return 0; }
res cuStreamWaitEvent(word s, word e, unsigned flags) { ENTER("%#lx, %#lx, %u", s, e, flags); return 0; }
res cuMemcpyAsync(ptr d, ptr s, size_t n, word st) { ENTER("%#lx, %#lx, %zu, %#lx", d, s, n, st); return 0; }
res cuMemcpyPeerAsync(ptr d, word dc, ptr s, word sc, size_t n, word st) { ENTER("%#lx, %#lx, %#lx, %#lx, %zu, %#lx", d, dc, s, sc, n, st); return 0; }
res cuCtxEnablePeerAccess(word c, unsigned flags) { ENTER("%#lx, %u", c, flags); return 0; }
res cuMemsetD8Async(ptr d, unsigned char v, size_t n, word s) { ENTER("%#lx, %#x, %zu, %#lx", d, v, n, s); return 0; }
res cuMemsetD16Async(ptr d, unsigned short v, size_t n, word s) { ENTER("%#lx, %#x, %zu, %#lx", d, v, n, s); return 0; }
res cuMemsetD32Async(ptr d, unsigned v, size_t n, word s) { ENTER("%#lx, %#x, %zu, %#lx", d, v, n, s); return 0; }

// A library of CUDA 9 has these without a suffix.
#ifdef OLD
#define VALUE(f) f
#else
#define VALUE(f) f##_v2
#endif
res VALUE(cuStreamWriteValue32)(word s, ptr p, uint32_t v, unsigned flags) { ENTER("%#lx, %#lx, %u, %u", s, p, v, flags); return 0; }
res VALUE(cuStreamWriteValue64)(word s, ptr p, uint64_t v, unsigned flags) { ENTER("%#lx, %#lx, %lu, %u", s, p, v, flags); return 0; }
res VALUE(cuStreamWaitValue32)(word s, ptr p, uint32_t v, unsigned flags) { ENTER("%#lx, %#lx, %u, %u", s, p, v, flags); return 0; }
res VALUE(cuStreamWaitValue64)(word s, ptr p, uint64_t v, unsigned flags) { ENTER("%#lx, %#lx, %lu, %u", s, p, v, flags); return 0; }

#ifndef OLD
typedef struct { void (*fn)(void *); void *arg; } job;
static void *work(void *j) { ((job *)j)->fn(((job *)j)->arg); return 0; }
res cuLaunchHostFunc(word s, void (*fn)(void *), void *arg)
{
	ENTER("%#lx", s);
	job j = {fn, arg};
	pthread_t t;
	pthread_create(&t, 0, work, &j);
	pthread_join(t, 0);
	return 0;
}
#endif

res cuEventCreate(word *e, unsigned flags) { static word next = 0xe0; ENTER("%u", flags); *e = ++next; COUNT(events, 1); return 0; }
res cuEventDestroy_v2(word e) { ENTER("%#lx", e); COUNT(events, -1); return 0; }
res cuEventRecord(word e, word s) { ENTER("%#lx, %#lx", e, s); return 0; }
res cuEventQuery(word e) { ENTER("%#lx", e); return 0; }
res cuEventSynchronize(word e) { ENTER("%#lx", e); return 0; }
res cuEventElapsedTime(float *ms, word a, word b) { ENTER("%#lx, %#lx", a, b); *ms = 1.25f; return 0; }

// ---- modules ----

res cuModuleLoadDataEx(word *m, const char *image, unsigned n, int *keys, void **values)
{
	ENTER("%zu bytes, %u options %d %d", strlen(image), n, keys[0], keys[1]);
	if (strstr(image, "broken")) {
		snprintf(values[0], (size_t)values[1], "ptxas application ptx input, line 5; fatal   : broken\n");
		return 218;
	}
	*m = 0x30d;
	COUNT(modules, 1);
	return 0;
}
res cuModuleUnload(word m) { ENTER("%#lx", m); COUNT(modules, -1); return 0; }
#ifndef ANCIENT
res cuModuleGetFunction(word *f, word m, const char *name) { ENTER("%#lx, %s", m, name); *f = 0xf0; return 0; }
#endif
// Every kernel has parameters (u64, u32, u64) or none.
res cuLaunchKernel(word f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, word s, void **params, void **extra)
{
	if (params)
		ENTER("%#lx, %u %u %u, %u %u %u, %u, %#lx, %lu %u %lu, %p", f, gx, gy, gz, bx, by, bz, shared, s,
		      *(uint64_t *)params[0], *(uint32_t *)params[1], *(uint64_t *)params[2], (void *)extra);
	else
		ENTER("%#lx, %u %u %u, %u %u %u, %u, %#lx, none, %p", f, gx, gy, gz, bx, by, bz, shared, s, (void *)extra);
	return 0;
}
