/*
 * Signals belong to the program, and Go has its own opinion on them:
 *
 * - It starts threads that take any signal: a handler that the program has masked
 *   out, in all threads it knows of, runs on one of them all the same.
 * - On its threads, and on each thread that enters Go, it unblocks SIGCHLD,
 *   SIGPROF, SIGRTMIN and others for good: whoever waits for one of them by
 *   sigwait or signalfd waits in vain, or is killed by it.
 * - It runs on small stacks, where a handler without SA_ONSTACK, which is what
 *   most programs have, writes over what lies below.
 *
 * So Go's threads have everything blocked here that Go can do without, a thread
 * that enters Go keeps its mask, and gets a stack there that has room.
 */
#define _GNU_SOURCE
#include "core.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <ucontext.h>

#include "_cgo_export.h"

/* What a thread sends to itself, to be told when Go has set its mask. It must be
 * one that Go unblocks; nothing else has had a use for this one since the 387. */
#define DONE SIGSTKFLT

/* on_done runs as soon as Go has set the mask of a thread that it has started. What
 * the mask is in the context is what it will be. */
static void on_done(int sig, siginfo_t *info, void *context)
{
	static const int not_ours[] = {SIGCHLD, SIGPROF, DONE};
	ucontext_t *c = context;
	(void)sig, (void)info;
	for (size_t i = 0; i < sizeof not_ours / sizeof *not_ours; i++)
		sigaddset(&c->uc_sigmask, not_ours[i]);
	sigaddset(&c->uc_sigmask, SIGRTMIN);
}

/* Before the Go runtime starts, which the loader does next. */
__attribute__((constructor(102))) static void prepare(void)
{
	struct sigaction old, done = {.sa_sigaction = on_done, .sa_flags = SA_SIGINFO | SA_RESTART};
	sigfillset(&done.sa_mask);
	if (sigaction(DONE, NULL, &old) == 0 && !(old.sa_flags & SA_SIGINFO) && old.sa_handler == SIG_DFL)
		sigaction(DONE, &done, NULL);
}

/* A start is a thread of Go's that is about to run. */
struct start {
	void *(*run)(void *);
	void *arg;
};

static void *begin(void *arg)
{
	struct start s = *(struct start *)arg;
	struct sigaction now;
	free(arg);
	if (sigaction(DONE, NULL, &now) == 0 && (now.sa_flags & SA_SIGINFO) && now.sa_sigaction == on_done)
		pthread_kill(pthread_self(), DONE); /* waits, as all are blocked */
	return s.run(s.arg);
}

/* pthread_create is what the Go runtime finds under this name: nobody else in this
 * library starts threads, and outside of it the name is not seen. */
int pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *), void *arg)
{
	int (*create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
	sigset_t all, before;
	struct start *s = malloc(sizeof *s);
	*(void **)&create = dlsym(RTLD_DEFAULT, "pthread_create");
	if (!s || !create) {
		free(s);
		return EAGAIN;
	}
	*s = (struct start){run, arg};
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	int err = create(thread, attr, begin, s);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (err)
		free(s);
	return err;
}

/* Faults stay unblocked, since Go turns them into codes; to block them has no
 * effect but that the process ends. */
static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP};

void culvert_bind_thread(void)
{
	static _Thread_local bool bound;
	sigset_t mask;
	if (bound)
		return;
	bound = true;
	pthread_sigmask(SIG_SETMASK, NULL, &mask);
	culvertBind();
	for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
		sigdelset(&mask, faults[i]);
	pthread_sigmask(SIG_SETMASK, &mask, NULL);
}
