/*
 * Leases: small reads that need not enter Go.
 *
 * When the core has read a little of a file into a registered buffer, and it was
 * one pread into memory that the CPU can reach, it writes down in a slot what that
 * took, for the next such reads to be done here. It does so for a millisecond,
 * the time for which it relies on the GPU memory being there; and it takes the
 * slot back, and waits until nobody is in it, before anything in it ends.
 *
 * The slots belong to the core and are never freed. clib/internal/lease is the
 * other half.
 */
#ifndef CULVERT_LEASE_H
#define CULVERT_LEASE_H

#include <stdbool.h>
#include <stdint.h>

enum {
	CULVERT_LEASES = 256,
	CULVERT_LEASE_WAYS = 4,	   /* slots in which a pair of file and buffer may be */
	CULVERT_LEASE_SHARDS = 16, /* places in which a slot counts its users */
	CULVERT_LEASE_USERS = 24,  /* bits of a place for those inside; above them, reads done */
};

/* lease.Slot in Go. Whoever is inside and has found the handle they came with may
 * rely on everything else. */
struct culvert_lease {
	uint64_t handle; /* 0: nobody may enter */
	uint64_t base;	 /* of the buffer, as the GPU knows it */
	int64_t until;	 /* by CLOCK_MONOTONIC */
	uint64_t memory; /* where the CPU has the buffer */
	uint64_t length;
	uint64_t below; /* reads of fewer bytes */
	uint64_t ops, bytes, nanos; /* what to add to */
	uint64_t stride;	    /* from one shard of these to the next */
	int32_t fd;
	uint32_t pad0;
	uint64_t pad1[5];
	struct {
		uint64_t in;
		uint64_t pad[15];
	} shards[CULVERT_LEASE_SHARDS];
};

/* Where a pair of handle and base may be: the first of its slots. */
static inline unsigned culvert_lease_place(uint64_t handle, uint64_t base)
{
	uint64_t mixed = ((handle >> 4) + (base >> 12)) * 0x9e3779b97f4a7c15u;
	return (unsigned)(mixed >> 58) * CULVERT_LEASE_WAYS;
}

/* culvert_lease_read does what the arguments of cuFileRead say, if there is a
 * lease for it and all goes well. Otherwise it is false, and nothing has happened
 * but that bytes of the file may be where they belong. It changes errno. */
bool culvert_lease_read(const uint64_t *args, int64_t *value);

#endif
