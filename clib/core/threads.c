/*
 * Signals belong to the program, and Go has its own opinion on them:
 *
 * - It starts threads that take any signal: a handler that the program has masked
 *   out, in all threads it knows of, runs on one of them all the same.
 * - On its threads, and on each thread that enters Go, it unblocks SIGCHLD,
 *   SIGPROF, SIGRTMIN and others for good: whoever waits for one of them by
 *   sigwait or signalfd waits in vain, or is killed by it.
 * - It runs on small stacks, where a handler without SA_ONSTACK, which is what
 *   most programs have, writes over what lies below. To handlers that it finds it
 *   gives that flag; its alternate stacks are small as well, and then such a
 *   handler runs on one wherever the thread is.
 *
 * So Go's threads have everything blocked here that Go can do without, a thread
 * that enters Go keeps its mask, and gets a stack there that has room, and handlers
 * stay as the program has set them.
 */
#define _GNU_SOURCE
#include "core.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <ucontext.h>

#include "_cgo_export.h"

/* What a thread sends to itself, to be told when Go has set its mask. It must be
 * one that Go unblocks; nothing else has had a use for this one since the 387. */
#define DONE SIGSTKFLT

/* on_done runs as soon as Go has set the mask of a thread, one of its own or one that
 * enters it. What the mask is in the context is what it will be. */
static void on_done(int sig, siginfo_t *info, void *context)
{
	static const int not_ours[] = {SIGCHLD, SIGPROF, DONE};
	ucontext_t *c = context;
	(void)sig, (void)info;
	for (size_t i = 0; i < sizeof not_ours / sizeof *not_ours; i++)
		sigaddset(&c->uc_sigmask, not_ours[i]);
	sigaddset(&c->uc_sigmask, SIGRTMIN);
}

/* The handlers without SA_ONSTACK that there were before Go, by signal. */
static void (*off_stack[_NSIG])(int);

static bool handled_off_stack(int sig, struct sigaction *sa)
{
	return sigaction(sig, NULL, sa) == 0 && sa->sa_handler != SIG_DFL && sa->sa_handler != SIG_IGN && !(sa->sa_flags & SA_ONSTACK);
}

/* restore takes the flag away that Go has given to handlers of the program. Those
 * that Go has replaced by its own are Go's. */
static void restore(void)
{
	for (int sig = 1; sig < _NSIG; sig++) {
		struct sigaction sa;
		if (!off_stack[sig] || sigaction(sig, NULL, &sa) != 0 || sa.sa_handler != off_stack[sig] || !(sa.sa_flags & SA_ONSTACK))
			continue;
		sa.sa_flags &= ~SA_ONSTACK;
		sigaction(sig, &sa, NULL);
	}
}

/* Before the Go runtime starts, which the loader does next. */
__attribute__((constructor(102))) static void prepare(void)
{
	for (int sig = 1; sig < _NSIG; sig++) {
		struct sigaction sa;
		if (handled_off_stack(sig, &sa))
			off_stack[sig] = sa.sa_handler;
	}
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

/* ask_for_done has on_done called when Go unblocks the signal: all are blocked. */
static void ask_for_done(void)
{
	struct sigaction now;
	if (sigaction(DONE, NULL, &now) == 0 && (now.sa_flags & SA_SIGINFO) && now.sa_sigaction == on_done)
		pthread_kill(pthread_self(), DONE);
}

static void *begin(void *arg)
{
	struct start s = *(struct start *)arg;
	free(arg);
	ask_for_done();
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

/* Nothing may interrupt a thread while its stack in Go is still small: all signals
 * are blocked until Go sets its own mask, and DONE waits for that moment to block
 * again what Go has unblocked. */
void culvert_bind_thread(void)
{
	static _Thread_local bool bound;
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	const struct timespec now = {0, 0};
	sigset_t all, mask, done;
	if (bound)
		return;
	bound = true;
	sigfillset(&all);
	sigemptyset(&done);
	sigaddset(&done, DONE);
	pthread_sigmask(SIG_SETMASK, &all, &mask);
	ask_for_done();
	culvertBind(); /* returns when Go has set up its handlers */
	pthread_sigmask(SIG_SETMASK, &all, NULL);
	sigtimedwait(&done, NULL, &now); /* where Go knew the thread and set nothing */
	pthread_once(&once, restore);
	for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
		sigdelset(&mask, faults[i]);
	pthread_sigmask(SIG_SETMASK, &mask, NULL);
}
