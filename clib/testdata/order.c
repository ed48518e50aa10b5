/*
 * Times the ways in which a stream and a thread of the host can wait for each other, with
 * the CUDA driver alone. A transfer in a stream needs both: the thread begins when the
 * stream has reached the transfer, and the stream goes on when the thread has ended it.
 * The second is a wait of the stream for a word of pinned memory; the first can be
 *
 *	function  a host function wakes the thread
 *	event     an event is recorded, and the thread blocks in cuEventSynchronize
 *	fresh     the same with an event of its own: those that are kept are gone when the
 *	          program resets its device
 *	word      the stream writes a word, for which the thread spins
 *	idle      the stream is idle when the transfer is enqueued: its turn has come, and
 *	          the call wakes the thread
 *	ready     the same, with a thread that spins for transfers
 *
 *	order [ROUNDS]
 *
 * Prints "NAME VALUE UNIT" lines, medians of the rounds, in which the ways take turns:
 * the call that enqueues a transfer on an idle stream and behind other work, a transfer
 * of nothing from the call to its end, the same in a row of queued ones, and the
 * processor time of the process while one waits for its turn.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cuda.h>

enum { CALLS = 400, QUEUED = 32, MOST_ROUNDS = 31 };
enum { BLOCKING_SYNC = 1, DISABLE_TIMING = 2 };
enum { GEQ = 0, WAIT_64 = 4, WRITE_64 = 5 };

static CUcontext ctx;
static CUstream stream;
static CUevent events[QUEUED + 1];
static _Atomic uint64_t *reached, *ended, *barrier; /* pinned words */
static uint64_t turn, first, open_at;
static sem_t wake;
static _Atomic int quit;

static void must(const char *what, int code)
{
	if (code) {
		printf("%s: %d\n", what, code);
		exit(1);
	}
}
#define TRY(call) must(#call, (int)(call))

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static double processor_time(void)
{
	struct timespec t;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static double median(double *v, int n)
{
	qsort(v, (size_t)n, sizeof *v, by_value);
	return v[n / 2];
}

static int wait_for(_Atomic uint64_t *word, uint64_t value)
{
	return (int)cuStreamWaitValue64(stream, (CUdeviceptr)word, value, GEQ);
}

/* The ways. Each enqueues transfer number "turn", or returns a code. */

static void on_turn(void *unused)
{
	(void)unused;
	sem_post(&wake);
}

static int by_function(void)
{
	int code = (int)cuLaunchHostFunc(stream, on_turn, NULL);
	return code ? code : wait_for(ended, turn);
}

static int by_event(void)
{
	int code = (int)cuEventRecord(events[turn % (QUEUED + 1)], stream);
	sem_post(&wake);
	return code ? code : wait_for(ended, turn);
}

static int by_fresh_event(void)
{
	int code = (int)cuEventCreate(&events[turn % (QUEUED + 1)], BLOCKING_SYNC | DISABLE_TIMING);
	return code ? code : by_event();
}

/* The driver's union of operations, six words: kind, address, value, flags. */
struct operation {
	uint64_t kind, address, value, flags, rest[2];
};
static int (*batch)(CUstream, unsigned, struct operation *, unsigned);

static int by_word(void)
{
	struct operation o[2];
	memset(o, 0, sizeof o);
	o[0] = (struct operation){WRITE_64, (uint64_t)(uintptr_t)reached, turn, 0, {0, 0}};
	o[1] = (struct operation){WAIT_64, (uint64_t)(uintptr_t)ended, turn, GEQ, {0, 0}};
	return batch(stream, 2, o, 0);
}

static int if_idle(void)
{
	if (cuStreamQuery(stream) != CUDA_SUCCESS)
		return by_function();
	int code = wait_for(ended, turn);
	sem_post(&wake);
	return code;
}

static int if_idle_ready(void)
{
	if (cuStreamQuery(stream) != CUDA_SUCCESS)
		return by_word();
	int code = wait_for(ended, turn);
	atomic_store(reached, turn);
	return code;
}

static const struct way {
	const char *name;
	int (*enqueue)(void);
} ways[] = {{"function", by_function}, {"event", by_event}, {"fresh", by_fresh_event}, {"word", by_word}, {"idle", if_idle}, {"ready", if_idle_ready}};
enum { WAYS = sizeof ways / sizeof *ways };

static int spins(const struct way *w) { return w->enqueue == by_word || w->enqueue == if_idle_ready; }

/* thread ends each transfer of a way as soon as its turn has come. */
static void *thread(void *way)
{
	const struct way *w = way;
	TRY(cuCtxSetCurrent(ctx));
	for (uint64_t i = first; !atomic_load(&quit); i++) {
		if (spins(w))
			while (atomic_load(reached) < i && !atomic_load(&quit))
				;
		else
			sem_wait(&wake);
		if (atomic_load(&quit))
			break;
		if (w->enqueue == by_event || w->enqueue == by_fresh_event)
			TRY(cuEventSynchronize(events[i % (QUEUED + 1)]));
		if (w->enqueue == by_fresh_event)
			TRY(cuEventDestroy(events[i % (QUEUED + 1)]));
		atomic_store(ended, i);
	}
	return NULL;
}

static void close_barrier(void) { TRY(wait_for(barrier, ++open_at)); }
static void open_barrier(void) { atomic_store(barrier, open_at); }

static void enqueue(const struct way *w)
{
	turn++;
	must(w->name, w->enqueue());
}

enum { IDLE_CALL, WHOLE, QUEUED_CALL, IN_A_ROW, WAITING, MEASURES };
static const char *const measures[] = {"call-idle", "whole", "call-queued", "in-a-row", "processor-while-waiting"};
static const char *const units[] = {"us", "us", "us", "us", "share"};

static void measure(const struct way *w, double *result)
{
	static double call[CALLS], whole[CALLS];
	pthread_t worker;
	first = turn + 1;
	for (int i = 0; w->enqueue == by_event && i <= QUEUED; i++)
		TRY(cuEventCreate(&events[i], BLOCKING_SYNC | DISABLE_TIMING));
	atomic_store(&quit, 0);
	pthread_create(&worker, NULL, thread, (void *)w);
	for (int i = -10; i < CALLS; i++) {
		double start = now();
		enqueue(w);
		double called = now();
		TRY(cuStreamSynchronize(stream));
		call[i < 0 ? 0 : i] = (called - start) * 1e6;
		whole[i < 0 ? 0 : i] = (now() - start) * 1e6;
	}
	result[IDLE_CALL] = median(call, CALLS);
	result[WHOLE] = median(whole, CALLS);
	for (int k = 0; k < CALLS / QUEUED; k++) {
		close_barrier();
		for (int i = 0; i < QUEUED; i++) {
			double start = now();
			enqueue(w);
			call[k * QUEUED + i] = (now() - start) * 1e6;
		}
		double start = now();
		open_barrier();
		TRY(cuStreamSynchronize(stream));
		whole[k] = (now() - start) * 1e6 / QUEUED;
	}
	result[QUEUED_CALL] = median(call, CALLS / QUEUED * QUEUED);
	result[IN_A_ROW] = median(whole, CALLS / QUEUED);
	close_barrier();
	enqueue(w);
	double began = processor_time();
	usleep(20000);
	result[WAITING] = (processor_time() - began) / 0.020;
	open_barrier();
	TRY(cuStreamSynchronize(stream));
	atomic_store(&quit, 1);
	sem_post(&wake);
	pthread_join(worker, NULL);
	for (int i = 0; w->enqueue == by_event && i <= QUEUED; i++)
		TRY(cuEventDestroy(events[i]));
	sem_destroy(&wake);
	sem_init(&wake, 0, 0);
}

/* queries: what cuStreamQuery says of streams that wait for others. "idle" relies on the
 * first two. */
static void queries(void)
{
	CUstream other;
	CUevent e;
	TRY(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
	TRY(cuEventCreate(&e, DISABLE_TIMING));
	close_barrier();
	printf("query-behind-a-word %d code\n", (int)cuStreamQuery(stream));
	TRY(cuEventRecord(e, stream));
	TRY(cuStreamWaitEvent(other, e, 0));
	printf("query-behind-an-event %d code\n", (int)cuStreamQuery(other));
	open_barrier();
	TRY(cuStreamSynchronize(other));
	TRY(cuStreamDestroy(other));
	TRY(cuStreamCreate(&other, 0));
	TRY(cuStreamWaitValue64(0, (CUdeviceptr)barrier, ++open_at, GEQ));
	printf("query-blocking-stream-behind-the-default %d code\n", (int)cuStreamQuery(other));
	open_barrier();
	TRY(cuStreamSynchronize(0));
}

int main(int argc, char **argv)
{
	static double results[WAYS][MEASURES][MOST_ROUNDS];
	int rounds = argc > 1 ? atoi(argv[1]) : 7;
	CUdevice dev;
	void *page;
	if (rounds < 1 || rounds > MOST_ROUNDS)
		rounds = 7;
	TRY(cuInit(0));
	TRY(cuDeviceGet(&dev, 0));
	TRY(cuDevicePrimaryCtxRetain(&ctx, dev));
	TRY(cuCtxSetCurrent(ctx));
	TRY(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	TRY(cuMemHostAlloc(&page, 4096, 1)); /* portable */
	memset(page, 0, 4096);
	reached = page, ended = reached + 64, barrier = reached + 128;
	*(void **)&batch = dlsym(RTLD_DEFAULT, "cuStreamBatchMemOp_v2");
	sem_init(&wake, 0, 0);
	queries();
	for (int r = 0; r < rounds; r++)
		for (int w = 0; w < WAYS; w++) {
			double one[MEASURES];
			if (spins(&ways[w]) && (!batch || getenv("ORDER_WITHOUT_WORD")))
				continue;
			measure(&ways[w], one);
			for (int m = 0; m < MEASURES; m++)
				results[w][m][r] = one[m];
		}
	for (int w = 0; w < WAYS; w++)
		for (int m = 0; m < MEASURES; m++) {
			double mid = median(results[w][m], rounds);
			if (results[w][IDLE_CALL][rounds - 1] > 0)
				printf("%s-%s %.2f %s (%.2f to %.2f)\n", ways[w].name, measures[m], mid, units[m], results[w][m][0], results[w][m][rounds - 1]);
		}
	return 0;
}
