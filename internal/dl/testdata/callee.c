// What the tests of package dl call.
#include <errno.h>
#include <pthread.h>
#include <stdint.h>

struct pair {
	int32_t err, cu_err;
};

struct wide {
	uint64_t lo, hi;
};

struct pair callee_pair(int32_t a, int32_t b) { return (struct pair){a, b}; }

struct wide callee_wide(uint64_t a, uint64_t b) { return (struct wide){a, b}; }

// Every argument has its own decimal place, so that no order but the right
// one gives the right sum.
uint64_t callee_twelve(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f,
		       uint64_t g, uint64_t h, uint64_t i, uint64_t j, uint64_t k, uint64_t l)
{
	uint64_t args[] = {a, b, c, d, e, f, g, h, i, j, k, l}, sum = 0;
	for (int n = 0; n < 12; n++)
		sum = sum * 10 + args[n] % 10;
	return sum;
}

int callee_fail(int code)
{
	errno = code;
	return -1;
}

int callee_keep_errno(void) { return 7; }

struct job {
	void (*fn)(uintptr_t);
	uintptr_t arg;
};

static void *run(void *p)
{
	struct job *j = p;
	j->fn(j->arg);
	return 0;
}

// Calls fn from a thread that Go has never seen.
int callee_thread(void (*fn)(uintptr_t), uintptr_t arg)
{
	struct job j = {fn, arg};
	pthread_t t;
	int r = pthread_create(&t, 0, run, &j);
	return r ? r : pthread_join(t, 0);
}

int callee_marker;

// Notes its arguments and its stack's alignment, and returns what it is told.
int callee_step(uint64_t *log, uint64_t a, uint64_t b, uint64_t c, uint64_t d, int result)
{
	char aligned[32] __attribute__((aligned(16)));
	volatile char *p = aligned;
	p[0] = 1;
	log[0] = log[0] * 10000 + a * 1000 + b * 100 + c * 10 + d;
	log[1] |= (uintptr_t)p & 15;
	return result;
}
