/*
 * Leases: small reads that do not enter Go.
 *
 * After a small read of a file into a registered buffer that was one pread into
 * CPU-mapped memory, the Go core publishes a lease in a slot, and C does the next
 * such reads. A lease lasts 1 ms, the time for which Go relies on the GPU memory to
 * exist. It is revoked, after its users have left, before its file or buffer ends.
 *
 * The slots belong to the Go core and are never freed. clib/internal/lease is the
 * other half.
 */
#ifndef CULVERT_LEASE_H
#define CULVERT_LEASE_H

#include <stdbool.h>
#include <stdint.h>

enum {
	CULVERT_LEASE_SETS = 9,	   /* bits of the number of sets */
	CULVERT_LEASE_WAYS = 8,	   /* slots of a set: those that a pair of file and buffer may use */
	CULVERT_LEASES = CULVERT_LEASE_WAYS << CULVERT_LEASE_SETS, /* room for 1024 files with few sets full */
	CULVERT_LEASE_SHARDS = 16, /* counters of a slot, by thread */
	CULVERT_LEASE_USERS = 24,  /* bits of a counter for users; above them, completed reads */
};

/* lease.Slot in Go. A user that has counted itself in and found its handle may use
 * all other fields. */
struct culvert_lease {
	uint64_t handle; /* 0: no lease */
	uint64_t base;	 /* of the buffer, on the GPU */
	int64_t until;	 /* by CLOCK_MONOTONIC */
	uint64_t memory; /* CPU mapping of the buffer */
	uint64_t length;
	uint64_t below; /* only reads of fewer bytes */
	uint64_t ops, bytes, nanos; /* addresses of counters */
	uint64_t stride;	    /* from one shard of the counters to the next */
	int32_t fd;
	uint32_t pad0;
	uint64_t pad1[5];
	struct {
		uint64_t in;
		uint64_t pad[15];
	} shards[CULVERT_LEASE_SHARDS];
};

/* culvert_lease_place is the first slot of a pair of handle and base. */
static inline unsigned culvert_lease_place(uint64_t handle, uint64_t base)
{
	uint64_t mixed = ((handle >> 4) + (base >> 12)) * 0x9e3779b97f4a7c15u;
	return (unsigned)(mixed >> (64 - CULVERT_LEASE_SETS)) * CULVERT_LEASE_WAYS;
}

/* culvert_lease_read does the read of cuFileRead's arguments, if there is a lease.
 * It returns false if there is none or the read must be repeated in Go; part of the
 * data may be in place then. It changes errno. */
bool culvert_lease_read(const uint64_t *args, int64_t *value);

#endif
