#define _GNU_SOURCE
#include "lease.h"

#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "gocore.h"

/* shard spreads threads over the counters of a slot. */
static unsigned shard(void)
{
	static unsigned threads;
	static _Thread_local unsigned mine; /* plus one; 0 is unset */
	if (!mine)
		mine = 1 + __atomic_fetch_add(&threads, 1, __ATOMIC_RELAXED) % CULVERT_LEASE_SHARDS;
	return mine - 1;
}

static int64_t now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* fence is that of package wc: stores to GPU memory are issued before the caller can
 * tell the GPU about them. */
static void fence(void)
{
#if defined __x86_64__
	__builtin_ia32_sfence();
#elif defined __aarch64__
	__asm__ volatile("dsb st" ::: "memory");
#else
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}

static bool is_for(const struct culvert_lease *l, uint64_t handle, uint64_t base)
{
	return __atomic_load_n(&l->handle, __ATOMIC_SEQ_CST) == handle && __atomic_load_n(&l->base, __ATOMIC_RELAXED) == base;
}

static struct culvert_lease *find(struct culvert_lease *all, uint64_t handle, uint64_t base)
{
	struct culvert_lease *l = all + culvert_lease_place(handle, base);
	for (int way = 0; way < CULVERT_LEASE_WAYS; way++, l++)
		if (is_for(l, handle, base))
			return l;
	return NULL;
}

static void add(uint64_t first, uint64_t offset, uint64_t n)
{
	__atomic_fetch_add((uint64_t *)(first + offset), n, __ATOMIC_RELAXED);
}

/* run reads under a lease. It checks the clock before, to save the read if the lease
 * has expired, and after, because only then the memory is known to have existed. The
 * system call is a raw one: the C library's ends a thread that was cancelled. */
static bool run(const struct culvert_lease *l, unsigned mine, uint64_t n, int64_t off, uint64_t at)
{
	if (n == 0 || n >= l->below || at > l->length || n > l->length - at)
		return false;
	int64_t start = now();
	if (start >= __atomic_load_n(&l->until, __ATOMIC_RELAXED))
		return false;
	long got = syscall(SYS_pread64, l->fd, l->memory + at, n, off);
	fence();
	int64_t end = now();
	if (got != (long)n || end >= __atomic_load_n(&l->until, __ATOMIC_RELAXED))
		return false;
	uint64_t offset = mine * l->stride;
	add(l->ops, offset, 1);
	add(l->bytes, offset, n);
	add(l->nanos, offset, (uint64_t)(end - start));
	return true;
}

bool culvert_lease_read(const uint64_t *args, int64_t *value)
{
	struct culvert_lease *all = culvert_leases();
	uint64_t handle = args[0], base = args[1], n = args[2];
	struct culvert_lease *l = all && handle ? find(all, handle, base) : NULL;
	if (!l)
		return false;
	unsigned mine = shard();
	uint64_t *in = &l->shards[mine].in;
	/* Go clears the handle, then looks for users; a user counts itself in, then
	 * checks the handle. One of the two sees the other. */
	__atomic_fetch_add(in, 1, __ATOMIC_SEQ_CST);
	bool done = is_for(l, handle, base) && run(l, mine, n, (int64_t)args[3], args[4]);
	__atomic_fetch_add(in, (done ? UINT64_C(1) << CULVERT_LEASE_USERS : 0) - 1, __ATOMIC_RELEASE);
	if (done)
		*value = (int64_t)n;
	return done;
}
