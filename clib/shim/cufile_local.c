/*
 * What a cuFile call must do for a caller that it shares a GPU with.
 *
 * The core makes its own CUDA context current on the thread that it works on,
 * which here is the caller's. A caller that has another one current must find it
 * again after the call.
 *
 * A transfer is not ordered with streams, by cuFile's rules. But NVIDIA's library
 * copies in a way that waits for the default stream, and programs have come to
 * rely on that: a cudaMemset or a kernel, then cuFileRead or cuFileWrite at once.
 * Our core does not go through that stream, or through any, so it is waited for
 * here.
 */
#define _GNU_SOURCE
#include "async.h"
#include "gocore.h"
#include "lease.h"

#include <dlfcn.h>
#include <errno.h>

/* NVIDIA's calls, once a libcuda is loaded; the software machine's keeps a
 * current context of its own that the core does not touch. */
static int (*_Atomic get_current)(void **);
static int (*_Atomic set_current)(void *);
static int (*_Atomic query_stream)(void *);
static int (*_Atomic wait_stream)(void *);
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

static bool moves(enum culvert_entry fn)
{
	return fn == FN_cuFileRead || fn == FN_cuFileWrite || fn == FN_cuFileReadv || fn == FN_cuFileWritev || fn == FN_cuFileBatchIOSubmit;
}

/* settle waits for the default stream of the caller's context. To ask first is
 * cheaper than to wait for nothing. */
static void settle(void)
{
	int (*query)(void *) = atomic_load_explicit(&query_stream, memory_order_relaxed);
	int (*wait)(void *) = atomic_load_explicit(&wait_stream, memory_order_relaxed);
	if (query && wait && query(NULL) != 0)
		wait(NULL);
}

bool culvert_file_call(enum culvert_entry fn, const uint64_t *args, int64_t *value, int fail_errno)
{
	int saved = errno;
	if (!atomic_load_explicit(&settled, memory_order_relaxed))
		look_for_cuda();
	void *before = current();
	if (before && moves(fn))
		settle();
	if (fn == FN_cuFileRead && culvert_lease_read(args, value)) {
		errno = saved;
		return true;
	}
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
	if (answered && *value == 0 && (fn == FN_cuFileReadAsync || fn == FN_cuFileWriteAsync)) {
		/* The core has nothing against it. */
		CUfileError_t e = culvert_in_stream(fn == FN_cuFileWriteAsync, args);
		*value = (int64_t)((uint64_t)(uint32_t)e.cu_err << 32 | (uint32_t)e.err);
	}
	errno = saved;
	return answered;
}
