/* What the generated cuda.c needs. */
#include "../include/cuda.h"
#include "gocore.h"

/* The public header maps unversioned names to the newest variant; here both are
 * functions. */
#undef cuCtxCreate
#undef cuCtxDestroy
#undef cuCtxPopCurrent
#undef cuCtxPushCurrent
#undef cuDeviceGetUuid
#undef cuDevicePrimaryCtxRelease
#undef cuDevicePrimaryCtxReset
#undef cuDevicePrimaryCtxSetFlags
#undef cuEventDestroy
#undef cuEventElapsedTime
#undef cuIpcOpenMemHandle
#undef cuGetProcAddress
#undef cuMemAdvise
#undef cuMemHostRegister
#undef cuMemPrefetchAsync
#undef cuMemcpyBatchAsync
#undef cuStreamDestroy
#undef cuStreamWaitValue32
#undef cuStreamWaitValue64
#undef cuStreamWriteValue32
#undef cuStreamWriteValue64

CUresult cuGetProcAddress(const char *symbol, void **pfn, int version, cuuint64_t flags);

typedef void (*culvert_fn)(void);

/* A function that cuGetProcAddress returns: its name without version, the CUDA
 * version that introduced it (0: any), itself. Newest first. */
struct culvert_proc {
	const char *name;
	int since;
	culvert_fn fn;
};
extern const struct culvert_proc culvert_procs[];
