/*
 * A program that uses signals: it waits for some of them with sigtimedwait, blocked in
 * all of its threads, and sets a handler without SA_ONSTACK after its first call of
 * the library.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cuda_runtime.h>
#include <cufile.h>

enum { THREADS = 4, SIGNALS = 300, ROUNDS = 20, FILE_SIZE = 4 << 20 };

static CUfileHandle_t file;
static atomic_bool sent;
static atomic_int taken, failed, early;

/* use_stack writes over n bytes of stack. */
static __attribute__((noinline)) void use_stack(int n)
{
	volatile char frame[1024];
	for (size_t i = 0; i < sizeof frame; i++)
		frame[i] = (char)0xee;
	if (n > (int)sizeof frame)
		use_stack(n - (int)sizeof frame);
	frame[0]++;
}

static void on_signal(int sig)
{
	int saved = errno;
	(void)sig;
	use_stack(16 << 10);
	taken++;
	errno = saved;
}

/* on_early is set before the first call, and needs a lot of stack. */
static void on_early(int sig)
{
	(void)sig;
	use_stack(256 << 10);
	early++;
}

static char expected(size_t offset)
{
	return (char)(offset >> 8);
}

/* reader reads with a size that depends on the thread, so that each uses another
 * route. */
static void *reader(void *arg)
{
	static const size_t sizes[THREADS] = {4096, 70001, 1 << 20, 3 << 20};
	size_t n = sizes[(size_t)arg];
	char *device = NULL, *host = malloc(n);
	if (!host || cudaMalloc((void **)&device, n) || cuFileBufRegister(device, n, 0).err)
		failed++;
	for (size_t i = 0; !sent || i < 20; i++) {
		size_t offset = i % 16 * 65536;
		if (cuFileRead(file, device, n, (off_t)offset, 0) != (ssize_t)n || cudaMemcpy(host, device, n, cudaMemcpyDeviceToHost))
			failed++;
		for (size_t j = 0; j < n; j += 509)
			if (host[j] != expected(offset + j)) {
				failed++;
				break;
			}
	}
	if (cuFileBufDeregister(device).err || cudaFree(device))
		failed++;
	free(host);
	return NULL;
}

/* interrupted has threads read that are interrupted all the time. */
static void interrupted(void)
{
	struct sigaction sa = {.sa_handler = on_signal};
	pthread_t t[THREADS];
	sigaction(SIGUSR2, &sa, NULL);
	for (size_t i = 0; i < THREADS; i++)
		pthread_create(&t[i], NULL, reader, (void *)i);
	for (int i = 0; i < SIGNALS; i++) {
		pthread_kill(t[i % THREADS], SIGUSR2);
		usleep(200);
	}
	sent = true;
	for (int i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	printf("interrupted: %d, failed %d\n", taken > 0, failed);
}

/* waited sends the process a signal and waits for it, again and again. */
static void waited(const char *name, int sig)
{
	struct timespec long_enough = {60, 0};
	sigset_t one;
	int got = 0;
	sigemptyset(&one);
	sigaddset(&one, sig);
	for (int i = 0; i < ROUNDS; i++)
		if (kill(getpid(), sig) == 0 && sigtimedwait(&one, NULL, &long_enough) == sig)
			got++;
		else
			break;
	printf("%s: %d of %d\n", name, got, ROUNDS);
}

static void prepare(const char *path)
{
	CUfileDescr_t d = {.type = CU_FILE_HANDLE_TYPE_OPAQUE_FD};
	char *data = malloc(FILE_SIZE);
	d.handle.fd = open(path, O_CREAT | O_TRUNC | O_RDWR, 0644);
	for (size_t i = 0; i < FILE_SIZE; i++)
		data[i] = expected(i);
	if (d.handle.fd < 0 || write(d.handle.fd, data, FILE_SIZE) != FILE_SIZE)
		exit(1);
	free(data);
	printf("register: %d\n", (int)cuFileHandleRegister(&file, &d).err);
}

int main(int argc, char **argv)
{
	const int blocked[] = {SIGCHLD, SIGPROF, SIGURG, SIGUSR1, SIGRTMIN};
	sigset_t mask, now;
	(void)argc;
	setvbuf(stdout, NULL, _IOLBF, 0); /* a crash shows how far it came */
	sigemptyset(&mask);
	for (size_t i = 0; i < sizeof blocked / sizeof *blocked; i++)
		sigaddset(&mask, blocked[i]);
	pthread_sigmask(SIG_SETMASK, &mask, NULL);
	struct sigaction sa = {.sa_handler = on_early};
	sigaction(SIGWINCH, &sa, NULL);
	prepare(argv[1]);
	raise(SIGWINCH);
	printf("set early: %d\n", early);
	interrupted();
	pthread_sigmask(SIG_SETMASK, NULL, &now);
	for (int sig = 1; sig < SIGRTMAX; sig++)
		if (sigismember(&now, sig) != sigismember(&mask, sig))
			printf("signal %d has changed\n", sig);
	waited("SIGUSR1", SIGUSR1);
	waited("SIGCHLD", SIGCHLD);
	waited("SIGRTMIN", SIGRTMIN);
	waited("SIGPROF", SIGPROF);
	return 0;
}
