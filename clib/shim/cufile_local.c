/*
 * The core makes its own CUDA context current on the thread that it works on,
 * which here is the caller's. A caller that has another one current must find it
 * again after the call.
 */
#define _GNU_SOURCE
#include "door.h"

#include <dlfcn.h>
#include <errno.h>

/* NVIDIA's calls, once a libcuda is loaded; the software machine's keeps a
 * current context of its own that the core does not touch. */
static int (*_Atomic get_current)(void **);
static int (*_Atomic set_current)(void *);
static atomic_bool settled;

/* The core loads libcuda when it opens the machine, which is in one of the first
 * calls. If there is none by then the machine is a software one. */
enum { LOOKS = 16 };
static atomic_int looks;

static void look_for_cuda(void)
{
	void *cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
	if (!cuda) {
		if (atomic_fetch_add(&looks, 1) >= LOOKS)
			atomic_store(&settled, true);
		return;
	}
	if (!dlsym(cuda, "culvert_soft_machine")) {
		int (*get)(void **);
		int (*set)(void *);
		*(void **)&get = dlsym(cuda, "cuCtxGetCurrent");
		*(void **)&set = dlsym(cuda, "cuCtxSetCurrent");
		atomic_store(&set_current, set);
		atomic_store(&get_current, get);
	}
	atomic_store(&settled, true);
}

/* current is the thread's context; none before CUDA is initialised. */
static void *current(void)
{
	int (*get)(void **) = atomic_load_explicit(&get_current, memory_order_relaxed);
	void *ctx = NULL;
	if (get && get(&ctx) != 0)
		ctx = NULL;
	return ctx;
}

bool culvert_file_call(enum culvert_entry fn, const uint64_t *args, int64_t *value, int fail_errno)
{
	int saved = errno;
	if (!atomic_load_explicit(&settled, memory_order_relaxed))
		look_for_cuda();
	void *before = current();
	errno = saved;
	bool answered = culvert_call(fn, args, value, fail_errno);
	saved = errno;
	if (!atomic_load_explicit(&settled, memory_order_relaxed))
		look_for_cuda(); /* the core may have loaded it just now */
	if (current() != before) {
		int (*set)(void *) = atomic_load_explicit(&set_current, memory_order_relaxed);
		if (set)
			set(before);
	}
	errno = saved;
	return answered;
}
