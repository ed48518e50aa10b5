/*
 * The C part of the Go core: the version check, the state of threads, the memory of
 * leases, and the guard against forked children. The Go runtime does not survive a
 * fork: the child has only one of its threads, and the first call that needs another
 * goroutine would hang.
 */
#define _GNU_SOURCE /* RTLD_DEFAULT */
#include "core.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include "../shim/gocore.h"
#include "_cgo_export.h"
#include "table.h"

/* The version of this library, readable without a call. */
const char culvert_version[] = CULVERT_VERSION;

static atomic_bool forked;

static bool call(int fn, const uint64_t *args, int64_t *value, int *err);

struct culvert_lease culvert_lease_slots[CULVERT_LEASES] __attribute__((aligned(128)));

static struct culvert_core core = {.call = call, .leases = culvert_lease_slots};

static void child(void)
{
	atomic_store(&forked, true);
	atomic_store(&core.leases, NULL);
}

/* Before the Go runtime starts, which the loader does next. */
__attribute__((constructor(101))) static void watch_forks(void)
{
	pthread_atfork(NULL, NULL, child);
}

/* At exit. A forked child has nothing to leave. Go sends SIGURG to a thread that runs it for
 * long, and ends the process if the thread has no alternate stack by then: Python has taken
 * its own away. The signal stays blocked, because one that is pending would arrive. */
__attribute__((destructor)) static void leave(void)
{
	sigset_t urgent;
	sigemptyset(&urgent);
	sigaddset(&urgent, SIGURG);
	pthread_sigmask(SIG_BLOCK, &urgent, NULL);
	if (culvert_enter())
		culvertLeave();
}

const char *culvert_variable(const char *name)
{
	return secure_getenv(name);
}

bool culvert_maps_exports(void)
{
	return dlsym(RTLD_DEFAULT, "culvert_dev");
}

bool culvert_enter(void)
{
	if (atomic_load_explicit(&forked, memory_order_relaxed))
		return false;
	culvert_bind_thread();
	return true;
}

static bool call(int fn, const uint64_t *args, int64_t *value, int *err)
{
	static _Thread_local struct culvert_thread thread;
	if (!culvert_enter())
		return false;
	int32_t e = 0;
	*value = culvertCall(fn, &thread, (void *)args, &e);
	*err = e;
	return true;
}

__attribute__((visibility("default"))) const struct culvert_core *culvert_core_open(const char *version,
										    const char **have)
{
	*have = CULVERT_CORE_VERSION;
	return strcmp(version, *have) == 0 ? &core : NULL;
}

/* Calls from Go into the program. */

void culvert_call_host(uintptr_t fn, uintptr_t user)
{
	((void (*)(void *))fn)((void *)user);
}

void culvert_call_stream(uintptr_t fn, uintptr_t stream, int status, uintptr_t user)
{
	((void (*)(void *, int, void *))fn)((void *)stream, status, (void *)user);
}

void culvert_call_log(uintptr_t fn, uintptr_t user, int level, void *message, size_t n)
{
	((void (*)(void *, int, char *, size_t))fn)((void *)user, level, message, n);
}

uintptr_t culvert_call_fs_type(uintptr_t fn, uintptr_t handle)
{
	return (uintptr_t)((const char *(*)(const void *))fn)((const void *)handle);
}

/* read and write of CUfileFSOps_t differ only in const. A function may return -1 and
 * set errno, or return a negative errno. */
int64_t culvert_call_fs_transfer(uintptr_t fn, uintptr_t handle, void *buf, size_t n, int64_t off)
{
	typedef ssize_t (*transfer)(const void *handle, void *, size_t, int64_t, const void *rdma_info);
	errno = 0;
	ssize_t done = ((transfer)fn)((const void *)handle, buf, n, off, NULL);
	if (done == -1)
		return errno > 0 ? -errno : -EIO;
	return done;
}
