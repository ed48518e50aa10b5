/*
 * Cases of batches and streams, in the form of calls.c.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "calls.h"

enum { SIZE = 64 << 10, MOST = 8 };

static CUdeviceptr device_memory(void)
{
	CUdeviceptr p = 0;
	if (cuMemAlloc(&p, SIZE) || cuMemsetD8(p, 1, SIZE) || cuCtxSynchronize())
		die("no GPU memory");
	return p;
}

/* byte is what lies at an address of the GPU. */
static int byte(CUdeviceptr p)
{
	unsigned char b = 0;
	cuMemcpyDtoH(&b, p, 1);
	return b;
}

static CUfileIOParams_t entry(CUfileHandle_t h, int opcode, CUdeviceptr p, size_t n, off_t off, off_t at, long cookie)
{
	CUfileIOParams_t e;
	memset(&e, 0, sizeof e);
	e.mode = CUFILE_BATCH;
	e.u.batch.devPtr_base = (void *)p;
	e.u.batch.file_offset = off;
	e.u.batch.devPtr_offset = at;
	e.u.batch.size = n;
	e.fh = h;
	e.opcode = (CUfileOpcode_t)opcode;
	e.cookie = (void *)cookie;
	return e;
}

static void batch_setup(void)
{
	static const unsigned sizes[] = {0, 1, 128, 129, 256, 257};
	STATUS(cuFileDriverOpen, "");
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		CUfileBatchHandle_t b = NULL;
		int code = (int)F(cuFileBatchIOSetUp)(&b, sizes[i]).err;
		say("cuFileBatchIOSetUp", "%u = %d", sizes[i], code);
		if (!code)
			F(cuFileBatchIODestroy)(b);
	}
}

static void batch_null(void)
{
	STATUS(cuFileDriverOpen, "");
	STATUS(cuFileBatchIOSetUp, "NULL", NULL, 1);
}

/* collect gets events until there are n, and says what they were, by cookie. */
static void collect(CUfileBatchHandle_t b, unsigned n)
{
	CUfileIOEvents_t all[MOST], some[MOST];
	unsigned have = 0;
	memset(all, 0, sizeof all);
	for (int tries = 0; have < n && tries < 100; tries++) {
		unsigned k = n - have;
		struct timespec t = {1, 0};
		int code = (int)F(cuFileBatchIOGetStatus)(b, 1, &k, some, &t).err;
		if (code) {
			say("cuFileBatchIOGetStatus", "= %d", code);
			return;
		}
		for (unsigned i = 0; i < k && i < n; i++, have++)
			all[(long)some[i].cookie % MOST] = some[i];
	}
	say("cuFileBatchIOGetStatus", "%u events", have);
	for (int i = 0; i < MOST; i++)
		if (all[i].status)
			say("cuFileBatchIOGetStatus", "cookie %d status %#x ret %ld", i, (unsigned)all[i].status, (long)all[i].ret);
}

static void batch_read(void)
{
	CUfileBatchHandle_t b = NULL;
	CUfileIOParams_t e[4];
	STATUS(cuFileDriverOpen, "");
	CUfileHandle_t h = handle_of(scratch(SIZE));
	CUdeviceptr p = device_memory();
	STATUS(cuFileBatchIOSetUp, "4", &b, 4);
	e[0] = entry(h, CUFILE_READ, p, 4096, 0, 0, 1);
	e[1] = entry(h, CUFILE_READ, p, 5000, 3, 8192, 2);
	e[2] = entry(h, CUFILE_READ, p, 4096, SIZE - 1000, 16384, 3);
	e[3] = entry(h, CUFILE_READ, p, 4096, 2 * SIZE, 32768, 4);
	STATUS(cuFileBatchIOSubmit, "4", b, 4, e, 0);
	collect(b, 4);
	say("cuFileBatchIOSubmit", "read %d %d %d %d %d", byte(p), byte(p + 4096), byte(p + 8192 + 4999), byte(p + 8192 + 5000), byte(p + 32768));
	STATUS(cuFileBatchIOSubmit, "4 more", b, 4, e, 0);
	collect(b, 4);
	F(cuFileBatchIODestroy)(b);
	say("cuFileBatchIODestroy", "done");
}

static void batch_write(void)
{
	CUfileBatchHandle_t b = NULL;
	CUfileIOParams_t e[2];
	char host[4096];
	STATUS(cuFileDriverOpen, "");
	int fd = scratch(SIZE);
	CUfileHandle_t h = handle_of(fd);
	CUdeviceptr p = device_memory();
	STATUS(cuFileBufRegister, "", (void *)p, SIZE, 0);
	STATUS(cuFileBatchIOSetUp, "2", &b, 2);
	e[0] = entry(h, CUFILE_WRITE, p, 4096, 8192, 0, 1);
	e[1] = entry(h, CUFILE_READ, p, 4096, 0, 4096, 2);
	STATUS(cuFileBatchIOSubmit, "2", b, 2, e, 0);
	collect(b, 2);
	ssize_t n = pread(fd, host, 4096, 8192);
	say("cuFileBatchIOSubmit", "write %zd bytes %d", n, host[4095]);
	F(cuFileBatchIODestroy)(b);
}

static void batch_bad(void)
{
	CUfileBatchHandle_t b = NULL;
	CUfileIOParams_t e[4], bad;
	CUfileIOEvents_t events[4];
	unsigned n = 4;
	struct timespec t = {0, 1000000};
	STATUS(cuFileDriverOpen, "");
	CUfileHandle_t h = handle_of(scratch(SIZE));
	CUdeviceptr p = device_memory();
	STATUS(cuFileBatchIOSetUp, "2", &b, 2);
	for (int i = 0; i < 4; i++)
		e[i] = entry(h, CUFILE_READ, p, 4096, 0, 0, i);
	STATUS(cuFileBatchIOSubmit, "more than there is room", b, 4, e, 0);
	STATUS(cuFileBatchIOSubmit, "none", b, 0, e, 0);
	STATUS(cuFileBatchIOSubmit, "flags", b, 1, e, 77);
	/* A library that ignores the flags has taken the entry: its event is not for the calls below. */
	struct timespec long_enough = {1, 0};
	n = 1;
	F(cuFileBatchIOGetStatus)(b, 1, &n, events, &long_enough);
	bad = e[0], bad.opcode = (CUfileOpcode_t)9;
	STATUS(cuFileBatchIOSubmit, "opcode 9", b, 1, &bad, 0);
	bad = e[0], bad.u.batch.devPtr_base = NULL;
	STATUS(cuFileBatchIOSubmit, "NULL memory", b, 1, &bad, 0);
	bad = e[0], bad.u.batch.file_offset = -1;
	STATUS(cuFileBatchIOSubmit, "negative offset", b, 1, &bad, 0);
	n = 1;
	STATUS(cuFileBatchIOGetStatus, "min above room", b, 2, &n, events, &t);
	n = 2;
	STATUS(cuFileBatchIOGetStatus, "nothing submitted", b, 0, &n, events, &t);
	say("cuFileBatchIOGetStatus", "nothing submitted: %u", n);
	STATUS(cuFileBatchIOCancel, "nothing submitted", b);
	F(cuFileBatchIODestroy)(b);
}

static void batch_handle(void)
{
	CUfileBatchHandle_t b = NULL;
	STATUS(cuFileDriverOpen, "");
	CUdeviceptr p = device_memory();
	STATUS(cuFileBatchIOSetUp, "2", &b, 2);
	CUfileIOParams_t e = entry(NULL, CUFILE_READ, p, 4096, 0, 0, 1);
	STATUS(cuFileBatchIOSubmit, "NULL handle", b, 1, &e, 0);
	F(cuFileBatchIODestroy)(b);
}

static void batch_unknown(void)
{
	unsigned n = 1;
	CUfileIOEvents_t event;
	struct timespec t = {0, 1000000};
	CUfileBatchHandle_t b = NULL;
	STATUS(cuFileDriverOpen, "");
	STATUS(cuFileBatchIOSetUp, "2", &b, 2);
	F(cuFileBatchIODestroy)(b);
	STATUS(cuFileBatchIOGetStatus, "destroyed", b, 1, &n, &event, &t);
	STATUS(cuFileBatchIOCancel, "destroyed", b);
}

static CUstream new_stream(void)
{
	CUstream s = NULL;
	if (cuStreamCreate(&s, CU_STREAM_NON_BLOCKING))
		die("no stream");
	return s;
}

static void stream_register(void)
{
	CUstream s = new_stream();
	STATUS(cuFileDriverOpen, "");
	STATUS(cuFileStreamDeregister, "unknown", s);
	STATUS(cuFileStreamRegister, "flags 16", s, 16);
	STATUS(cuFileStreamRegister, "flags 0", s, 0);
	STATUS(cuFileStreamRegister, "twice", s, 0);
	STATUS(cuFileStreamDeregister, "", s);
	STATUS(cuFileStreamDeregister, "twice", s);
	STATUS(cuFileStreamRegister, "flags 15", s, 15);
	STATUS(cuFileStreamDeregister, "flags 15", s);
	STATUS(cuFileStreamRegister, "default stream", NULL, 0);
	STATUS(cuFileStreamDeregister, "default stream", NULL);
}

static void stream_read(CUstream s, CUfileHandle_t h, CUdeviceptr p, const char *what, size_t n, off_t off, off_t at)
{
	ssize_t done = -77;
	int code = (int)F(cuFileReadAsync)(h, (void *)p, &n, &off, &at, &done, s).err;
	int sync = (int)cuStreamSynchronize(s);
	say("cuFileReadAsync", "%s = %d then %d done %zd", what, code, sync, done);
}

static void stream_reads(void)
{
	CUstream s = new_stream();
	STATUS(cuFileDriverOpen, "");
	CUfileHandle_t h = handle_of(scratch(SIZE));
	CUdeviceptr p = device_memory();
	stream_read(s, h, p, "4096", 4096, 0, 0);
	stream_read(s, h, p, "unaligned", 5000, 3, 8192);
	say("cuFileReadAsync", "bytes %d %d %d %d", byte(p), byte(p + 4096), byte(p + 8192 + 4999), byte(p + 8192 + 5000));
	stream_read(s, h, p, "across the end", 4096, SIZE - 1000, 0);
	stream_read(s, h, p, "behind the end", 4096, 2 * SIZE, 0);
	stream_read(s, h, p, "nothing", 0, 0, 0);
	stream_read(s, h, p, "negative offset", 4096, -1, 0);
	stream_read(NULL, h, p, "default stream", 4096, 0, 0);
	STATUS(cuFileStreamRegister, "flags 15", s, 15);
	stream_read(s, h, p, "registered", 4096, 0, 0);
	STATUS(cuFileStreamDeregister, "", s);
}

static void stream_write(void)
{
	CUstream s = new_stream();
	size_t n = 4096;
	off_t off = 8192, at = 0;
	ssize_t done = -77;
	char host[4096];
	STATUS(cuFileDriverOpen, "");
	int fd = scratch(SIZE);
	CUfileHandle_t h = handle_of(fd);
	CUdeviceptr p = device_memory();
	cuMemsetD8Async(p, 9, n, s);
	STATUS(cuFileWriteAsync, "", h, (void *)p, &n, &off, &at, &done, s);
	cuMemsetD8Async(p, 3, n, s);
	int sync = (int)cuStreamSynchronize(s);
	ssize_t read = pread(fd, host, 4096, 8192);
	say("cuFileWriteAsync", "then %d done %zd bytes %zd of %d", sync, done, read, host[4095]);
}

static void stream_bad(void)
{
	CUstream s = new_stream();
	size_t n = 4096;
	off_t off = 0, at = 0;
	ssize_t done = -77;
	STATUS(cuFileDriverOpen, "");
	CUfileHandle_t h = handle_of(scratch(SIZE));
	CUdeviceptr p = device_memory();
	STATUS(cuFileReadAsync, "NULL handle", NULL, (void *)p, &n, &off, &at, &done, s);
	STATUS(cuFileReadAsync, "NULL memory", h, NULL, &n, &off, &at, &done, s);
	STATUS(cuFileReadAsync, "NULL size", h, (void *)p, NULL, &off, &at, &done, s);
	STATUS(cuFileReadAsync, "NULL offset", h, (void *)p, &n, NULL, &at, &done, s);
	STATUS(cuFileReadAsync, "NULL result", h, (void *)p, &n, &off, &at, NULL, s);
	say("cuFileReadAsync", "done %zd", done);
}

const struct call_case queue_cases[] = {
	{"calls/batch-setup", batch_setup, NULL},
	{"calls/batch-null", batch_null, NULL},
	{"calls/batch-read", batch_read, NULL},
	{"calls/batch-write", batch_write, NULL},
	{"calls/batch-bad", batch_bad, NULL},
	{"calls/batch-handle", batch_handle, NULL},
	{"calls/batch-unknown", batch_unknown, NULL},
	{"calls/stream-register", stream_register, NULL},
	{"calls/stream-reads", stream_reads, NULL},
	{"calls/stream-write", stream_write, NULL},
	{"calls/stream-bad", stream_bad, NULL},
	{NULL, NULL, NULL},
};
