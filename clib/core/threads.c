/*
 * Signals belong to the program, but the Go runtime changes how they are handled:
 *
 * - It starts threads that accept any signal: a handler whose signal the program
 *   has blocked in all of its threads still runs on one of them.
 * - On its threads, and on each thread that enters Go, it unblocks SIGCHLD,
 *   SIGPROF, SIGRTMIN and others permanently: a thread that waits for one of them
 *   with sigwait or signalfd waits forever, or is killed.
 * - It runs on small stacks, which a handler without SA_ONSTACK, as in most
 *   programs, overflows. It adds that flag to the handlers that it finds, but its
 *   alternate stacks are small as well.
 *
 * So Go's threads have all signals blocked that Go does not need. A thread that
 * enters Go keeps its mask and gets a large stack there. Handlers stay as the
 * program has set them.
 */
#define _GNU_SOURCE
#include "core.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <ucontext.h>

#include "_cgo_export.h"

/* The signal that a thread sends to itself to learn when Go has set its mask. It
 * must be one that Go unblocks; no other software uses this one. */
#define DONE SIGSTKFLT

/* on_done runs as soon as Go has set the mask of a thread, its own or one that
 * enters it. The mask in the context becomes that of the thread. */
static void on_done(int sig, siginfo_t *info, void *context)
{
	static const int not_ours[] = {SIGCHLD, SIGPROF, DONE};
	ucontext_t *c = context;
	(void)sig, (void)info;
	for (size_t i = 0; i < sizeof not_ours / sizeof *not_ours; i++)
		sigaddset(&c->uc_sigmask, not_ours[i]);
	sigaddset(&c->uc_sigmask, SIGRTMIN);
}

/* The handlers without SA_ONSTACK from before Go was loaded, by signal. */
static void (*off_stack[_NSIG])(int);

static bool handled_off_stack(int sig, struct sigaction *sa)
{
	return sigaction(sig, NULL, sa) == 0 && sa->sa_handler != SIG_DFL && sa->sa_handler != SIG_IGN && !(sa->sa_flags & SA_ONSTACK);
}

/* restore removes the flag that Go has added to handlers of the program. It leaves
 * signals alone whose handler Go has replaced. */
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

/* read_word reads the first word behind a key of a file, or its first word without one. */
static bool read_word(const char *path, const char *key, char *word, size_t size)
{
	char line[256];
	bool found = false;
	FILE *f = fopen(path, "re");
	while (f && !found && fgets(line, sizeof line, f))
		if ((found = strncmp(line, key, strlen(key)) == 0))
			snprintf(word, size, "%s", line + strlen(key) + strspn(line + strlen(key), " \t"));
	if (f)
		fclose(f);
	return found;
}

/* under_gdb reports whether gdb started this process, or cuda-gdb or gdbserver. gdb has no
 * name for DONE: it stops at each and cannot pass it on, and the program hangs. */
static bool under_gdb(void)
{
	char tracer[32], name[64], path[64];
	if (!read_word("/proc/self/status", "TracerPid:", tracer, sizeof tracer) || atoi(tracer) == 0)
		return false;
	snprintf(path, sizeof path, "/proc/%d/comm", atoi(tracer));
	return read_word(path, "", name, sizeof name) && strstr(name, "gdb");
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
	if (sigaction(DONE, NULL, &old) == 0 && !(old.sa_flags & SA_SIGINFO) && old.sa_handler == SIG_DFL && !under_gdb())
		sigaction(DONE, &done, NULL);
}

/* A start is what a new thread of Go runs. */
struct start {
	void *(*run)(void *);
	void *arg;
};

/* ask_for_done makes on_done run when Go unblocks the signal. All signals must be
 * blocked. */
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

/* pthread_create is the function that the Go runtime links to. Only Go starts
 * threads in this library, and the name is not exported. */
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

/* Faults stay unblocked, because Go turns them into codes. A fault that is blocked
 * ends the process. */
static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP};

/* No signal may interrupt a thread while its stack in Go is small. All are blocked
 * until Go sets its own mask; at that moment DONE arrives, and on_done blocks again
 * what Go has unblocked. */
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
	sigtimedwait(&done, NULL, &now); /* if Go knew the thread and set no mask */
	pthread_once(&once, restore);
	for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
		sigdelset(&mask, faults[i]);
	pthread_sigmask(SIG_SETMASK, &mask, NULL);
}
