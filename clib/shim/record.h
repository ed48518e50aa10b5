/*
 * The record of a process that runs under "culvert run --report": what it did through
 * cuFile. It is a file in the directory of the run, mapped by the process, so that it
 * outlives _exit, exec and SIGKILL; forked children count in the record of their
 * parent. Package internal/watch reads it: it has the same layout in Go.
 */
#ifndef CULVERT_RECORD_H
#define CULVERT_RECORD_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define CULVERT_RECORD_MAGIC "culvrec1"

enum {
	RECORD_FILES = 128,    /* slots; the first counts the files that found none */
	RECORD_SIZES = 40,     /* powers of two of a request's size */
	RECORD_TIMES = 256,    /* durations: four for each power of two of nanoseconds */
	RECORD_CODES = 16,     /* codes that transfers of a file ended with */
	RECORD_FAILURES = 128, /* functions and codes that calls ended with */
};

typedef _Atomic int64_t record_count;

struct record_direction {
	record_count calls, bytes, failed, cut, nanos, async;
	record_count sizes[RECORD_SIZES];
	record_count times[RECORD_TIMES];
};

struct record_code {
	_Atomic int32_t code; /* 0: unused */
	int32_t unused;
	record_count count;
};

struct record_file {
	_Atomic uint32_t used;
	uint32_t direct; /* it was opened with O_DIRECT */
	char path[1016];
	struct record_direction dir[2]; /* reads, writes */
	struct record_code codes[RECORD_CODES];
	record_count asked[2]; /* bytes that requests of batches and streams asked for */
	char unused[2064];
};

struct record_failure {
	char function[48];
	_Atomic int32_t code;
	_Atomic int32_t ready; /* the name is written */
	record_count count;
};

struct record {
	char magic[8];
	uint32_t version, slots;
	int64_t pid;
	record_count calls; /* of any cuFile function */
	char command[512];
	struct record_failure failures[RECORD_FAILURES];
	char unused[4096 - 544 + 4096 - RECORD_FAILURES * 64 + 4096];
	struct record_file files[RECORD_FILES];
};

_Static_assert(sizeof(struct record_direction) == 2416, "layout");
_Static_assert(sizeof(struct record_file) == 8192, "layout");
_Static_assert(offsetof(struct record, failures) == 544, "layout");
_Static_assert(offsetof(struct record, files) == 12288, "layout");

#endif
