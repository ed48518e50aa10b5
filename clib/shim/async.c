/*
 * Stream I/O: cuFileReadAsync and cuFileWriteAsync.
 *
 * Stream I/O is ordered with the stream but synchronous: the call waits for earlier
 * work on the stream, reads sizes and offsets, moves the data and returns. The stream
 * cannot wait for a worker instead: many CUDA calls of a transfer wait for every
 * stream of the context, and so for the one that waits for them.
 */
#define _GNU_SOURCE
#include "async.h"
#include "gocore.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>

static CUfileError_t status(CUfileOpError code, CUresult cuda_code)
{
	return (CUfileError_t){.err = code, .cu_err = cuda_code};
}

typedef CUresult (*synchronize_fn)(CUstream);

/* find_synchronize finds the function that waits for a stream, in NVIDIA's libcuda or
 * the software machine's. A program that uses only the runtime has the software
 * machine's libcudart, but not its libcuda. */
static synchronize_fn find_synchronize(void)
{
	static const char *const where[][2] = {
		{"libcuda.so.1", "cuStreamSynchronize"},
		{"libcudart.so.13", "cudaStreamSynchronize"},
		{"libcudart.so.12", "cudaStreamSynchronize"},
	};
	for (size_t i = 0; i < sizeof where / sizeof *where; i++) {
		void *lib = dlopen(where[i][0], RTLD_NOW | RTLD_NOLOAD);
		synchronize_fn fn = NULL;
		if (lib)
			*(void **)&fn = dlsym(lib, where[i][1]);
		if (fn)
			return fn;
	}
	return NULL;
}

static CUresult wait_for(CUstream stream)
{
	static _Atomic synchronize_fn known;
	synchronize_fn synchronize = atomic_load(&known);
	if (!synchronize) {
		synchronize = find_synchronize();
		if (!synchronize)
			return CUDA_ERROR_NOT_INITIALIZED;
		atomic_store(&known, synchronize);
	}
	return synchronize(stream);
}

CUfileError_t culvert_in_stream(bool write, const uint64_t *a)
{
	CUfileHandle_t file = (CUfileHandle_t)a[0];
	void *base = (void *)a[1];
	size_t size;
	off_t file_offset, buf_offset;
	ssize_t n;
	CUresult r = wait_for((CUstream)a[6]);
	if (r)
		return status(CU_FILE_CUDA_DRIVER_ERROR, r);
	if (!culvert_load(&size, (const void *)a[2], sizeof size) || !culvert_load(&file_offset, (const void *)a[3], sizeof file_offset) ||
	    !culvert_load(&buf_offset, (const void *)a[4], sizeof buf_offset))
		return status(CU_FILE_INVALID_VALUE, CUDA_SUCCESS);
	errno = 0;
	if (write)
		n = cuFileWrite(file, base, size, file_offset, buf_offset);
	else
		n = cuFileRead(file, base, size, file_offset, buf_offset);
	n = n < 0 && errno ? -errno : n;
	return status(culvert_store((void *)a[5], &n, sizeof n) ? CU_FILE_SUCCESS : CU_FILE_INVALID_VALUE, CUDA_SUCCESS);
}
