/*
 * Cases of what lives while other calls run: parameters across an open, memory for
 * RDMA, file systems in user space, batches and streams with work in them.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "calls.h"

enum { SIZE = 64 << 10 };

static CUdeviceptr device_memory(void)
{
	CUdeviceptr p = 0;
	if (cuMemAlloc(&p, SIZE) || cuMemsetD8(p, 1, SIZE) || cuCtxSynchronize())
		die("no GPU memory");
	return p;
}

static int byte(CUdeviceptr p)
{
	unsigned char b = 0;
	cuMemcpyDtoH(&b, p, 1);
	return b;
}

static void closing(void)
{
	STATUS(cuFileDriverOpen, "");
	STATUS(cuFileDriverOpen, "");
	STATUS(cuFileDriverClose, "");
	say("cuFileUseCount", "%ld", F(cuFileUseCount)());
	STATUS(cuFileDriverClose, "");
	STATUS(cuFileDriverClose, "too often");
	say("cuFileUseCount", "%ld", F(cuFileUseCount)());
}

/* sizes sets a parameter, opens, and says what it has become. */
static void size_after_open(int p, size_t v)
{
	size_t got = 77, after = 77;
	int set = (int)F(cuFileSetParameterSizeT)((CUFileSizeTConfigParameter_t)p, v).err;
	int open = (int)F(cuFileDriverOpen)().err;
	F(cuFileGetParameterSizeT)((CUFileSizeTConfigParameter_t)p, &got);
	F(cuFileDriverClose_v2)();
	F(cuFileGetParameterSizeT)((CUFileSizeTConfigParameter_t)p, &after);
	say("cuFileSetParameterSizeT", "%d to %zu = %d open %d: %zu closed again: %zu", p, v, set, open, got, after);
}

static const struct {
	int p;
	size_t v;
} all_sizes[] = {
	{CUFILE_PARAM_EXECUTION_MAX_IO_QUEUE_DEPTH, 64},
	{CUFILE_PARAM_EXECUTION_MAX_IO_QUEUE_DEPTH, 257},
	{CUFILE_PARAM_EXECUTION_MAX_IO_THREADS, 2},
	{CUFILE_PARAM_EXECUTION_MAX_IO_THREADS, 33},
	{CUFILE_PARAM_EXECUTION_MIN_IO_THRESHOLD_SIZE_KB, 2048},
	{CUFILE_PARAM_EXECUTION_MAX_REQUEST_PARALLELISM, 2},
	{CUFILE_PARAM_EXECUTION_MAX_REQUEST_PARALLELISM, 9},
	{CUFILE_PARAM_PROPERTIES_MAX_DIRECT_IO_SIZE_KB, 4096},
	{CUFILE_PARAM_PROPERTIES_MAX_DIRECT_IO_SIZE_KB, 100},
	{CUFILE_PARAM_PROPERTIES_PER_BUFFER_CACHE_SIZE_KB, 2048},
	{CUFILE_PARAM_PROPERTIES_IO_BATCHSIZE, 32},
	{CUFILE_PARAM_PROPERTIES_IO_BATCHSIZE, 0},
	{CUFILE_PARAM_PROPERTIES_IO_BATCHSIZE, 257},
	{CUFILE_PARAM_POLLTHRESHOLD_SIZE_KB, 8},
	{CUFILE_PARAM_PROPERTIES_BATCH_IO_TIMEOUT_MS, 9},
	{CUFILE_PARAM_PROPERTIES_BATCH_IO_TIMEOUT_MS, 1001},
};

static void set_sizes(size_t from, size_t to)
{
	STATUS(cuFileDriverOpen, "first"); /* 1.17 divides by zero if a parameter is set before */
	STATUS(cuFileDriverClose_v2, "first");
	for (size_t i = from; i < to; i++)
		size_after_open(all_sizes[i].p, all_sizes[i].v);
}

enum { ALL_SIZES = sizeof all_sizes / sizeof *all_sizes };

static void sizes_set(void) { set_sizes(0, ALL_SIZES / 2); }

static void more_sizes_set(void) { set_sizes(ALL_SIZES / 2, ALL_SIZES); }

static void bool_after_open(int p, bool v)
{
	bool staged = !v, got = !v;
	int set = (int)F(cuFileSetParameterBool)((CUFileBoolConfigParameter_t)p, v).err;
	int get = (int)F(cuFileGetParameterBool)((CUFileBoolConfigParameter_t)p, &staged).err;
	int open = (int)F(cuFileDriverOpen)().err;
	F(cuFileGetParameterBool)((CUFileBoolConfigParameter_t)p, &got);
	if (!open)
		F(cuFileDriverClose_v2)();
	say("cuFileSetParameterBool", "%d to %d = %d staged %d %d open %d: %d", p, v, set, get, staged, open, got);
}

static void bools_on(void)
{
	STATUS(cuFileDriverOpen, "first");
	STATUS(cuFileDriverClose_v2, "first");
	for (int p = 0; p < 12; p++)
		bool_after_open(p, true);
}

static void bools_off(void)
{
	STATUS(cuFileDriverOpen, "first");
	STATUS(cuFileDriverClose_v2, "first");
	bool_after_open(CUFILE_PARAM_EXECUTION_PARALLEL_IO, false);
	bool_after_open(CUFILE_PARAM_PROPERTIES_ALLOW_SYSTEM_MEMORY, false);
	for (int p = 12; p < 15; p++)
		bool_after_open(p, true);
	bool_after_open(CUFILE_PARAM_PROPERTIES_ALLOW_COMPAT_MODE, false);
}

static void strings_set(void)
{
	static const char *levels[] = {"TRACE", "INFO", "WARN", "ERROR", "info", "loud", ""};
	char got[256];
	STATUS(cuFileDriverOpen, "first");
	STATUS(cuFileDriverClose_v2, "first");
	for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
		strcpy(got, "?");
		int set = (int)F(cuFileSetParameterString)(CUFILE_PARAM_LOGGING_LEVEL, levels[i]).err;
		int open = (int)F(cuFileDriverOpen)().err;
		F(cuFileGetParameterString)(CUFILE_PARAM_LOGGING_LEVEL, got, sizeof got);
		F(cuFileDriverClose_v2)();
		say("cuFileSetParameterString", "level %s = %d open %d: %.40s", levels[i], set, open, got);
	}
	STATUS(cuFileSetParameterString, "NULL", CUFILE_PARAM_LOGGING_LEVEL, NULL);
	strcpy(got, "?");
	STATUS(cuFileSetParameterString, "directory", CUFILE_PARAM_LOG_DIR, "/tmp");
	STATUS(cuFileDriverOpen, "");
	STATUS(cuFileGetParameterString, "directory", CUFILE_PARAM_LOG_DIR, got, sizeof got);
	say("cuFileGetParameterString", "directory %.40s", got);
	strcpy(got, "?");
	STATUS(cuFileGetParameterString, "transport", (CUFileStringConfigParameter_t)3, got, sizeof got);
}

static void bar_sizes(void)
{
	size_t kb = 77;
	STATUS(cuFileGetBARSizeInKB, "closed", 0, &kb);
	say("cuFileUseCount", "%ld", F(cuFileUseCount)());
	STATUS(cuFileDriverOpen, "");
	STATUS(cuFileGetBARSizeInKB, "open", 0, &kb);
	say("cuFileGetBARSizeInKB", "a power of two: %d", kb && !(kb & (kb - 1)));
	STATUS(cuFileGetBARSizeInKB, "1", 1, &kb);
}

static void rdma_memory(void)
{
	static const int flags[] = {1, 2, 3, 4, 8, -1};
	STATUS(cuFileDriverOpen, "");
	CUdeviceptr p = device_memory();
	for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
		int code = (int)F(cuFileBufRegister)((void *)p, SIZE, flags[i]).err;
		say("cuFileBufRegister", "flags %d = %d", flags[i], code);
		if (!code)
			STATUS(cuFileBufDeregister, "", (void *)p);
	}
}

/* A file system in user space whose files hold the byte 6. */
static int fs_reads, fs_writes, fs_fails;

static const char *fs_type(const void *handle)
{
	(void)handle;
	return "wekafs";
}

static int fs_devices(const void *handle, struct sockaddr **addresses)
{
	(void)handle, (void)addresses;
	return 0;
}

static int fs_priority(const void *handle, char *p, size_t n, loff_t off, const struct sockaddr *address)
{
	(void)handle, (void)p, (void)n, (void)off, (void)address;
	return -1;
}

static ssize_t fs_read(const void *handle, char *p, size_t n, loff_t off, const cufileRDMAInfo_t *info)
{
	(void)handle, (void)off, (void)info;
	fs_reads++;
	if (fs_fails)
		return -EACCES;
	memset(p, 6, n);
	return (ssize_t)n;
}

static ssize_t fs_write(const void *handle, const char *p, size_t n, loff_t off, const cufileRDMAInfo_t *info)
{
	(void)handle, (void)p, (void)off, (void)info;
	fs_writes++;
	return fs_fails ? -EACCES : (ssize_t)n;
}

static void file_system(void)
{
	static const CUfileFSOps_t ops = {fs_type, fs_devices, fs_priority, fs_read, fs_write};
	CUfileDescr_t d;
	CUfileHandle_t h = NULL;
	char host[4096] = "";
	memset(&d, 0, sizeof d);
	d.type = CU_FILE_HANDLE_TYPE_USERSPACE_FS;
	d.handle.handle = &fs_fails;
	d.fs_ops = &ops;
	STATUS(cuFileDriverOpen, "");
	STATUS(cuFileHandleRegister, "table", &h, &d);
	say_count("cuFileRead", "table", F(cuFileRead)(h, host, sizeof host, 0, 0));
	say("cuFileRead", "called %s byte %d", fs_reads ? "yes" : "no", host[0]);
	say_count("cuFileWrite", "table", F(cuFileWrite)(h, host, sizeof host, 0, 0));
	say("cuFileWrite", "called %s", fs_writes ? "yes" : "no");
	fs_fails = 1;
	say_count("cuFileRead", "a table that fails", F(cuFileRead)(h, host, sizeof host, 0, 0));
	F(cuFileHandleDeregister)(h);
	say_count("cuFileRead", "deregistered table", F(cuFileRead)(h, host, sizeof host, 0, 0));
}

static CUfileIOParams_t entry(CUfileHandle_t h, CUdeviceptr p, long cookie)
{
	CUfileIOParams_t e;
	memset(&e, 0, sizeof e);
	e.mode = CUFILE_BATCH;
	e.u.batch.devPtr_base = (void *)p;
	e.u.batch.devPtr_offset = 4096 * cookie;
	e.u.batch.size = 4096;
	e.fh = h;
	e.opcode = CUFILE_READ;
	e.cookie = (void *)cookie;
	return e;
}

static unsigned events(CUfileBatchHandle_t b, const char *what, unsigned least, unsigned room, long ns)
{
	CUfileIOEvents_t got[16];
	struct timespec t = {ns / 1000000000, ns % 1000000000};
	unsigned n = room;
	int code = (int)F(cuFileBatchIOGetStatus)(b, least, &n, got, ns < 0 ? NULL : &t).err;
	say("cuFileBatchIOGetStatus", "%s = %d: %u events", what, code, code ? 0 : n);
	return code ? 0 : n;
}

static void batch_rounds(void)
{
	CUfileBatchHandle_t b = NULL;
	CUfileIOParams_t e[8];
	STATUS(cuFileDriverOpen, "");
	CUfileHandle_t h = handle_of(scratch(SIZE));
	CUdeviceptr p = device_memory();
	for (int i = 0; i < 8; i++)
		e[i] = entry(h, p, i);
	STATUS(cuFileBatchIOSetUp, "4", &b, 4);
	STATUS(cuFileBatchIOSubmit, "4", b, 4, e, 0);
	STATUS(cuFileBatchIOSubmit, "1 more with none collected", b, 1, e + 4, 0);
	events(b, "all without a timeout", 4, 4, -1);
	STATUS(cuFileBatchIOSubmit, "2 after that", b, 2, e + 4, 0);
	events(b, "2 with room for 4", 2, 4, 1000000000);
	events(b, "none left for 1 ms", 1, 4, 1000000);
	events(b, "none left and none wanted", 0, 4, 1000000);
	STATUS(cuFileBatchIOCancel, "none left", b);
	STATUS(cuFileBatchIOSubmit, "after cancel", b, 2, e, 0);
	events(b, "after cancel", 2, 2, 1000000000);
	F(cuFileBatchIODestroy)(b);
	F(cuFileBatchIODestroy)(b);
	say("cuFileBatchIODestroy", "twice");
	STATUS(cuFileBatchIOSubmit, "destroyed", b, 1, e, 0);
}

static void batch_mixed(void)
{
	CUfileBatchHandle_t b = NULL;
	CUfileIOParams_t e[3];
	CUdeviceptr managed = 0;
	char *host = malloc(SIZE);
	STATUS(cuFileDriverOpen, "");
	CUfileHandle_t h = handle_of(scratch(SIZE));
	CUdeviceptr p = device_memory();
	if (cuMemAllocManaged(&managed, SIZE, CU_MEM_ATTACH_GLOBAL))
		die("no managed memory");
	e[0] = entry(h, p, 0);
	e[1] = entry(h, (CUdeviceptr)host, 1);
	e[2] = entry(h, managed, 2);
	STATUS(cuFileBatchIOSetUp, "3", &b, 3);
	STATUS(cuFileBatchIOSubmit, "device and host and managed", b, 3, e, 0);
	events(b, "3", 3, 3, 1000000000);
	say("cuFileBatchIOSubmit", "bytes %d %d", byte(p), host[4096]);
	F(cuFileBatchIODestroy)(b);
}

static void batch_closed(void)
{
	CUfileBatchHandle_t b = NULL;
	STATUS(cuFileBatchIOSetUp, "closed", &b, 4);
	STATUS(cuFileDriverOpen, "");
	STATUS(cuFileBatchIOSetUp, "4", &b, 4);
	STATUS(cuFileDriverClose_v2, "");
	events(b, "closed", 0, 1, 1000000);
}

struct arguments {
	size_t size;
	off_t off, at;
	ssize_t done;
};

/* Arguments that change between the call and the execution. */
static void stream_later(void)
{
	CUstream s = NULL;
	CUdeviceptr word = 0;
	struct arguments a = {8192, 0, 0, -77};
	STATUS(cuFileDriverOpen, "");
	CUfileHandle_t h = handle_of(scratch(SIZE));
	CUdeviceptr p = device_memory();
	if (cuStreamCreate(&s, CU_STREAM_NON_BLOCKING) || cuMemAlloc(&word, 4) || cuMemsetD32(word, 0, 1) || cuCtxSynchronize())
		die("no stream");
	cuStreamWaitValue32(s, word, 1, CU_STREAM_WAIT_VALUE_GEQ);
	STATUS(cuFileReadAsync, "behind a wait", h, (void *)p, &a.size, &a.off, &a.at, &a.done, s);
	say("cuFileReadAsync", "done %zd before its turn", a.done);
	a.size = 4096, a.at = 4096;
	CUstream other = NULL;
	if (cuStreamCreate(&other, CU_STREAM_NON_BLOCKING) || cuStreamWriteValue32(other, word, 1, 0) || cuStreamSynchronize(other))
		die("no other stream");
	int sync = (int)cuStreamSynchronize(s);
	say("cuFileReadAsync", "then %d done %zd bytes %d %d", sync, a.done, byte(p), byte(p + 4096));
}

static void stream_chain(void)
{
	enum { LINKS = 8 };
	CUstream s[2] = {NULL};
	CUevent ev = NULL;
	struct arguments a[LINKS];
	int good = 0;
	STATUS(cuFileDriverOpen, "");
	CUfileHandle_t h = handle_of(scratch(SIZE));
	CUdeviceptr p = device_memory();
	if (cuStreamCreate(&s[0], CU_STREAM_NON_BLOCKING) || cuStreamCreate(&s[1], CU_STREAM_NON_BLOCKING) || cuEventCreate(&ev, CU_EVENT_DISABLE_TIMING))
		die("no stream");
	STATUS(cuFileStreamRegister, "15", s[0], 15);
	for (int i = 0; i < LINKS; i++) {
		CUstream on = s[i % 2];
		a[i] = (struct arguments){4096, 0, 4096 * i, -77};
		if (i)
			cuStreamWaitEvent(on, ev, 0);
		(void)F(cuFileReadAsync)(h, (void *)p, &a[i].size, &a[i].off, &a[i].at, &a[i].done, on);
		cuEventRecord(ev, on);
	}
	int sync = (int)cuStreamSynchronize(s[1]);
	for (int i = 0; i < LINKS; i++)
		good += a[i].done == 4096 && byte(p + 4096 * (CUdeviceptr)i) == 7;
	say("cuFileReadAsync", "chain: %d then %d good", sync, good);
	STATUS(cuFileStreamDeregister, "", s[0]);
	STATUS(cuFileStreamDeregister, "not registered", s[1]);
}

static void stream_errors(void)
{
	CUstream s = NULL;
	struct arguments bad = {4096, 0, SIZE, -77}, good = {4096, 0, 0, -77};
	STATUS(cuFileDriverOpen, "");
	CUfileHandle_t h = handle_of(scratch(SIZE));
	CUdeviceptr p = device_memory();
	if (cuStreamCreate(&s, CU_STREAM_NON_BLOCKING))
		die("no stream");
	STATUS(cuFileBufRegister, "", (void *)p, SIZE, 0);
	STATUS(cuFileReadAsync, "past the memory", h, (void *)p, &bad.size, &bad.off, &bad.at, &bad.done, s);
	STATUS(cuFileReadAsync, "after it", h, (void *)p, &good.size, &good.off, &good.at, &good.done, s);
	int sync = (int)cuStreamSynchronize(s);
	say("cuFileReadAsync", "then %d done %zd and %zd", sync, bad.done, good.done);
	STATUS(cuFileWriteAsync, "NULL handle", NULL, (void *)p, &good.size, &good.off, &good.at, &good.done, s);
	STATUS(cuFileWriteAsync, "NULL memory", h, NULL, &good.size, &good.off, &good.at, &good.done, s);
	STATUS(cuFileWriteAsync, "NULL size", h, (void *)p, NULL, &good.off, &good.at, &good.done, s);
	F(cuFileHandleDeregister)(h);
	STATUS(cuFileReadAsync, "deregistered", h, (void *)p, &good.size, &good.off, &good.at, &good.done, s);
}

const struct call_case life_cases[] = {
	{"calls/closing", closing, NULL},
	{"calls/sizes-set", sizes_set, NULL},
	{"calls/more-sizes-set", more_sizes_set, NULL},
	{"calls/bools-on", bools_on, NULL},
	{"calls/bools-off", bools_off, NULL},
	{"calls/strings-set", strings_set, NULL},
	{"calls/bar-sizes", bar_sizes, NULL},
	{"calls/rdma-memory", rdma_memory, NULL},
	{"calls/file-system", file_system, NULL},
	{"calls/batch-rounds", batch_rounds, NULL},
	{"calls/batch-mixed", batch_mixed, NULL},
	{"calls/batch-closed", batch_closed, NULL},
	{"calls/stream-later", stream_later, NULL},
	{"calls/stream-chain", stream_chain, NULL},
	{"calls/stream-errors", stream_errors, NULL},
	{NULL, NULL, NULL},
};
