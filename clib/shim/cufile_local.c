/*
 * What a cuFile call must do because it shares CUDA with its caller.
 *
 * The Go core makes its own CUDA context current on the calling thread. The caller's
 * context is restored after the call.
 *
 * A transfer is not ordered with streams, by cuFile's rules. But NVIDIA's library
 * copies in a way that waits for the default stream, and programs rely on that: a
 * cudaMemset or a kernel, then cuFileRead or cuFileWrite. The Go core does not use
 * that stream, so the call waits for it here.
 *
 * A process may have loaded NVIDIA's library, too, for example by its path while ours is
 * preloaded. NVIDIA's cuFileDriverClose jumps to cuFileDriverClose_v2 by name, which
 * the dynamic linker then finds here (seen in 1.15.1).
 */
#define _GNU_SOURCE
#include "gocore.h"
#include "lease.h"
#include "other.h"

#include <dlfcn.h>
#include <errno.h>

/* NVIDIA's functions, once a libcuda is loaded. The software machine's libcuda keeps
 * its own current context, which the Go core does not change. */
static int (*_Atomic get_current)(void **);
static int (*_Atomic set_current)(void *);
static int (*_Atomic query_stream)(void *);
static int (*_Atomic wait_stream)(void *);
static atomic_bool known; /* whether there is an NVIDIA libcuda */

/* The Go core loads libcuda when it opens the machine, in one of the first calls. If
 * there is none after LOOKS calls, the machine is a software one. */
enum { LOOKS = 16 };
static atomic_int looks;

static void look_for_cuda(void)
{
	void *cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
	if (!cuda) {
		if (atomic_fetch_add(&looks, 1) >= LOOKS)
			atomic_store(&known, true);
		return;
	}
	if (!dlsym(cuda, "culvert_soft_machine")) {
		int (*get)(void **);
		int (*set)(void *), (*query)(void *), (*wait)(void *);
		*(void **)&get = dlsym(cuda, "cuCtxGetCurrent");
		*(void **)&set = dlsym(cuda, "cuCtxSetCurrent");
		*(void **)&query = dlsym(cuda, "cuStreamQuery");
		*(void **)&wait = dlsym(cuda, "cuStreamSynchronize");
		atomic_store(&query_stream, query);
		atomic_store(&wait_stream, wait);
		atomic_store(&set_current, set);
		atomic_store(&get_current, get);
	}
	atomic_store(&known, true);
}

/* current is the thread's context; NULL before CUDA is initialized. */
static void *current(void)
{
	int (*get)(void **) = atomic_load_explicit(&get_current, memory_order_relaxed);
	void *ctx = NULL;
	if (get && get(&ctx) != 0)
		ctx = NULL;
	return ctx;
}

/* opened says that the program has opened this library. */
static atomic_bool opened;

static bool opens(enum culvert_entry fn)
{
	return fn == FN_cuFileDriverOpen || fn == FN_cuFileHandleRegister || fn == FN_cuFileBufRegister;
}

static bool moves(enum culvert_entry fn)
{
	return fn == FN_cuFileRead || fn == FN_cuFileWrite || fn == FN_cuFileReadv || fn == FN_cuFileWritev || fn == FN_cuFileBatchIOSubmit;
}

/* wait_default_stream waits for the default stream of the caller's context. A query
 * is cheaper than a wait if there is nothing to wait for. */
static void wait_default_stream(void)
{
	int (*query)(void *) = atomic_load_explicit(&query_stream, memory_order_relaxed);
	int (*wait)(void *) = atomic_load_explicit(&wait_stream, memory_order_relaxed);
	if (query && wait && query(NULL) != 0)
		wait(NULL);
}

bool culvert_file_call(enum culvert_entry fn, const uint64_t *args, int64_t *value, int fail_errno)
{
	int saved = errno;
	if (!atomic_load_explicit(&known, memory_order_relaxed))
		look_for_cuda();
	void *before = current();
	if (before && moves(fn))
		wait_default_stream();
	if (fn == FN_cuFileRead && culvert_lease_read(args, value)) {
		errno = saved;
		return true;
	}
	errno = saved;
	bool answered = culvert_call(fn, args, value, fail_errno);
	saved = errno;
	if (!atomic_load_explicit(&known, memory_order_relaxed))
		look_for_cuda(); /* the call may have loaded it */
	if (current() != before) {
		int (*set)(void *) = atomic_load_explicit(&set_current, memory_order_relaxed);
		if (set)
			set(before);
	}
	if (answered && *value == 0 && opens(fn))
		atomic_store_explicit(&opened, true, memory_order_relaxed);
	if (fn == FN_cuFileDriverClose_v2 && !atomic_load_explicit(&opened, memory_order_relaxed))
		answered |= culvert_close_other(value);
	errno = saved;
	return answered;
}
