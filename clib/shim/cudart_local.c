/*
 * The functions of libcudart that do not call the Go core: names of errors, versions,
 * and what the start-up code of a program with kernels calls. Such kernels are machine
 * code for a GPU and cannot run here, but the program may work without launching them.
 */
#define _GNU_SOURCE
#include "cudart_local.h"

#include <dlfcn.h>

#include "errors.h"

struct text {
	int code;
	const char *name, *message;
};

static const struct text texts[] = {
#define X(code, name, message) {code, name, message},
	CULVERT_RUNTIME_ERRORS(X)
#undef X
};

static const struct text *find_text(cudaError_t code)
{
	static const struct text unknown = {-1, "unrecognized error code", "unrecognized error code"};
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
		if (texts[i].code == (int)code)
			return &texts[i];
	return &unknown;
}

CULVERT_EXPORT const char *cudaGetErrorName(cudaError_t error)
{
	return find_text(error)->name;
}

CULVERT_EXPORT const char *cudaGetErrorString(cudaError_t error)
{
	return find_text(error)->message;
}

CULVERT_EXPORT cudaError_t cudaRuntimeGetVersion(int *version)
{
	const int own = CULVERT_CUDART * 1000;
	return culvert_store(version, &own, sizeof own) ? cudaSuccess : cudaErrorInvalidValue;
}

typedef int (*get_proc_fn)(const char *, void **, int, unsigned long long, int *);

/* The driver's functions come from the libcuda that the process has loaded. */
CULVERT_EXPORT cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **fn, unsigned int version,
							    unsigned long long flags,
							    enum cudaDriverEntryPointQueryResult *status)
{
	if (!symbol || !fn)
		return cudaErrorInvalidValue;
	void *cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	get_proc_fn get = NULL;
	if (cuda)
		*(void **)&get = dlsym(cuda, "cuGetProcAddress_v2");
	if (!get)
		return cudaErrorInsufficientDriver;
	int s = 0;
	cudaError_t err = (cudaError_t)get(symbol, fn, (int)version, flags, &s);
	const enum cudaDriverEntryPointQueryResult result = (enum cudaDriverEntryPointQueryResult)s;
	return !status || culvert_store(status, &result, sizeof result) ? err : cudaErrorInvalidValue;
}

CULVERT_EXPORT cudaError_t cudaGetDriverEntryPoint(const char *symbol, void **fn, unsigned long long flags,
						   enum cudaDriverEntryPointQueryResult *status)
{
	return cudaGetDriverEntryPointByVersion(symbol, fn, CULVERT_CUDART * 1000, flags, status);
}

CULVERT_ALIAS(cudaGetDriverEntryPointByVersion_ptsz, cudaGetDriverEntryPointByVersion)
CULVERT_ALIAS(cudaGetDriverEntryPoint_ptsz, cudaGetDriverEntryPoint)

CULVERT_EXPORT cudaError_t cudaProfilerStart(void)
{
	return cudaSuccess;
}

CULVERT_EXPORT cudaError_t cudaProfilerStop(void)
{
	return cudaSuccess;
}

/* Start-up of programs built by nvcc. Nothing is kept. */

CULVERT_EXPORT void **__cudaRegisterFatBinary(void *binary)
{
	static void *handle;
	(void)binary;
	return &handle;
}

CULVERT_EXPORT void __cudaRegisterFatBinaryEnd(void **handle)
{
	(void)handle;
}

CULVERT_EXPORT void __cudaUnregisterFatBinary(void **handle)
{
	(void)handle;
}

CULVERT_EXPORT char __cudaInitModule(void **handle)
{
	(void)handle;
	return 1;
}

CULVERT_EXPORT void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name, int limit,
					   void *tid, void *bid, void *block, void *grid, int *warp)
{
	(void)handle, (void)host, (void)device, (void)name, (void)limit;
	(void)tid, (void)bid, (void)block, (void)grid, (void)warp;
}

CULVERT_EXPORT void __cudaRegisterVar(void **handle, char *host, char *device, const char *name, int ext, size_t size,
				      int constant, int global)
{
	(void)handle, (void)host, (void)device, (void)name, (void)ext, (void)size, (void)constant, (void)global;
}

CULVERT_EXPORT void __cudaRegisterHostVar(void **handle, const char *device, char *host, size_t size)
{
	(void)handle, (void)device, (void)host, (void)size;
}

CULVERT_EXPORT void __cudaRegisterManagedVar(void **handle, void **host, char *device, const char *name, int ext,
					     size_t size, int constant, int global)
{
	(void)handle, (void)host, (void)device, (void)name, (void)ext, (void)size, (void)constant, (void)global;
}

/* The table of CUDA 13's start-up code: functions and variables at once. */
CULVERT_EXPORT void __cudaRegisterUnifiedTable(void **handle, void *functions, size_t n, void *data, size_t m)
{
	(void)handle, (void)functions, (void)n, (void)data, (void)m;
}

/* refuse_launch ends every launch. A stub made by nvcc returns nothing, so its caller
 * learns of the failure from cudaGetLastError only. */
static cudaError_t refuse_launch(void)
{
	static atomic_flag said = ATOMIC_FLAG_INIT;
	culvert_missing("launching a kernel of the program, which is machine code for a GPU,", &said);
	return culvert_refuse(cudaErrorNotSupported);
}

/* CUDA 13 asks once for the handle of a kernel; programs check it when they start. */
CULVERT_EXPORT cudaError_t __cudaGetKernel(void **kernel, const void *entry)
{
	return culvert_store(kernel, &entry, sizeof entry) ? cudaSuccess : cudaErrorInvalidValue;
}

CULVERT_EXPORT cudaError_t __cudaLaunchKernel(void *kernel, dim3 grid, dim3 block, void **args, size_t shared,
					      void *stream)
{
	(void)kernel, (void)grid, (void)block, (void)args, (void)shared, (void)stream;
	return refuse_launch();
}
CULVERT_ALIAS(__cudaLaunchKernel_ptsz, __cudaLaunchKernel)

/* The <<<...>>> syntax passes the launch shape through these two functions. The
 * launch is refused here: the stub calls nothing after that. */
CULVERT_EXPORT unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, void *stream)
{
	(void)grid, (void)block, (void)shared, (void)stream;
	return 0;
}

CULVERT_EXPORT cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream)
{
	(void)grid, (void)block, (void)shared, (void)stream;
	return refuse_launch();
}
