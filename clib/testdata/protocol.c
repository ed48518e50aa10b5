/*
 * shim/lease.c alone, with a table that is filled and cleared as fast as it goes:
 * no user accesses the memory of a revoked lease. Compiled with
 * -finstrument-functions, every step takes a different time each time.
 *
 *	protocol FILE ROUNDS
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../shim/gocore.h"

enum { USERS = 3, FEW = 300, SIZE = 64, HANDLE = 0x60000010 };
static const uint64_t base = 0x7f0000000000;

static struct culvert_lease table[CULVERT_LEASES] __attribute__((aligned(128)));
static unsigned char memory[SIZE];
static uint64_t counts[CULVERT_LEASE_SHARDS][3];
static atomic_bool stop;
static atomic_long done;

__attribute__((no_instrument_function)) static void dawdle(void)
{
	static _Thread_local unsigned rnd;
	rnd = rnd * 1103515245 + 12345;
	for (volatile unsigned i = (rnd >> 16) % 256; i; i--)
		;
	if ((rnd >> 24) % 4 == 0)
		sched_yield();
}

__attribute__((no_instrument_function)) void __cyg_profile_func_enter(void *fn, void *from)
{
	(void)fn, (void)from;
	dawdle();
}

__attribute__((no_instrument_function)) void __cyg_profile_func_exit(void *fn, void *from)
{
	(void)fn, (void)from;
	dawdle();
}

struct culvert_lease *culvert_leases(void)
{
	return table;
}

static void *user(void *arg)
{
	const uint64_t args[] = {HANDLE, base, SIZE, 0, 0};
	(void)arg;
	while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
		int64_t n = 0;
		if (culvert_lease_read(args, &n) && n == SIZE)
			atomic_fetch_add_explicit(&done, 1, memory_order_relaxed);
	}
	return NULL;
}

static int used(const struct culvert_lease *l)
{
	for (int i = 0; i < CULVERT_LEASE_SHARDS; i++)
		if (__atomic_load_n(&l->shards[i].in, __ATOMIC_SEQ_CST) % (1 << CULVERT_LEASE_USERS))
			return 1;
	return 0;
}

static int64_t now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	int fd = open(argv[1], O_CREAT | O_RDWR, 0600);
	memset(memory, 0x11, SIZE);
	if (pwrite(fd, memory, SIZE, 0) != SIZE)
		return 3;
	struct culvert_lease *l = &table[culvert_lease_place(HANDLE, base) + 1];
	pthread_t threads[USERS];
	for (int i = 0; i < USERS; i++)
		pthread_create(&threads[i], NULL, user, NULL);
	long rounds = 0, broken = 0;
	for (int64_t latest = now() + 60000000000; rounds < atol(argv[2]) || (atomic_load(&done) < FEW && now() < latest); rounds++) {
		l->fd = fd;
		l->memory = (uint64_t)memory;
		l->length = SIZE;
		l->below = SIZE + 1;
		l->ops = (uint64_t)&counts[0][0];
		l->bytes = (uint64_t)&counts[0][1];
		l->nanos = (uint64_t)&counts[0][2];
		l->stride = sizeof counts[0];
		__atomic_store_n(&l->base, base, __ATOMIC_SEQ_CST);
		__atomic_store_n(&l->until, INT64_MAX, __ATOMIC_SEQ_CST);
		__atomic_store_n(&l->handle, HANDLE, __ATOMIC_SEQ_CST);
		dawdle();
		__atomic_store_n(&l->handle, 0, __ATOMIC_SEQ_CST);
		while (used(l))
			sched_yield();
		/* Now it is ours alone. */
		memset(memory, 0xEE, SIZE);
		for (int i = 0; i < 8; i++)
			dawdle();
		for (int i = 0; i < SIZE; i++)
			if (memory[i] != 0xEE) {
				broken++;
				break;
			}
	}
	atomic_store(&stop, true);
	for (int i = 0; i < USERS; i++)
		pthread_join(threads[i], NULL);
	uint64_t ops = 0, bytes = 0;
	for (int i = 0; i < CULVERT_LEASE_SHARDS; i++)
		ops += counts[i][0], bytes += counts[i][1];
	fprintf(stderr, "%ld rounds, %ld reads\n", rounds, atomic_load(&done));
	printf("%ld broken, %s, counted %d\n", broken, atomic_load(&done) >= FEW ? "many reads" : "FEW READS",
	       ops == (uint64_t)atomic_load(&done) && bytes == SIZE * ops);
	return broken != 0;
}
