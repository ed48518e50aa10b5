/*
 * The functions of libcuda.so.1 that do not call the Go core: names of errors and the
 * lookup of functions. They work in a forked child, too.
 */
#define _GNU_SOURCE
#include "cuda_local.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "errors.h"

struct text {
	int code;
	const char *name, *message;
};

static const struct text texts[] = {
#define X(code, name, message) {code, name, message},
	CULVERT_DRIVER_ERRORS(X)
#undef X
};

static const struct text *find_text(CUresult code)
{
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
		if (texts[i].code == (int)code)
			return &texts[i];
	return NULL;
}

CULVERT_EXPORT CUresult cuGetErrorName(CUresult error, const char **pstr)
{
	const struct text *t = find_text(error);
	const char *name = t ? t->name : NULL;
	return culvert_store(pstr, &name, sizeof name) && t ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CULVERT_EXPORT CUresult cuGetErrorString(CUresult error, const char **pstr)
{
	const struct text *t = find_text(error);
	const char *message = t ? t->message : NULL;
	return culvert_store(pstr, &message, sizeof message) && t ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static culvert_fn find_proc(const char *symbol, int version, CUdriverProcAddressQueryResult *status)
{
	*status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
	for (const struct culvert_proc *p = culvert_procs; p->name; p++) {
		if (strcmp(p->name, symbol) != 0)
			continue;
		if (p->since <= version) {
			*status = CU_GET_PROC_ADDRESS_SUCCESS;
			return p->fn;
		}
		*status = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
	}
	return NULL;
}

/* Since CUDA 12 a missing function is a status, not an error. */
CULVERT_EXPORT CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int version, cuuint64_t flags,
					    CUdriverProcAddressQueryResult *status)
{
	char name[128]; /* longer than any of them */
	CUdriverProcAddressQueryResult s;
	(void)flags; /* per-thread default streams are the legacy stream here */
	if (!culvert_load_string(name, symbol, sizeof name))
		return CUDA_ERROR_INVALID_VALUE;
	culvert_fn fn = find_proc(name, version, &s);
	if (!culvert_store(pfn, &fn, sizeof fn) || (status && !culvert_store(status, &s, sizeof s)))
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

CULVERT_EXPORT CUresult cuGetProcAddress(const char *symbol, void **pfn, int version, cuuint64_t flags)
{
	CUdriverProcAddressQueryResult status;
	CUresult r = cuGetProcAddress_v2(symbol, pfn, version, flags, &status);
	return r == CUDA_SUCCESS && status != CU_GET_PROC_ADDRESS_SUCCESS ? CUDA_ERROR_NOT_FOUND : r;
}

/* A statically linked runtime asks for these tables first. Without them each of its
 * calls fails with 36, since release 13.5 with 500, which says nothing about the cause. */
static void explain_tables(void)
{
	static atomic_flag said = ATOMIC_FLAG_INIT;
	const char *log = secure_getenv("CULVERT_LOG");
	if (log && strcmp(log, "errors") == 0 && !atomic_flag_test_and_set(&said))
		fputs("culvert: cuGetExportTable: the software machine has no private tables of NVIDIA's driver; the program or one of its "
		      "libraries contains the CUDA runtime, whose calls fail now with 36, cudaErrorCallRequiresNewerDriver, "
		      "or 500, cudaErrorSymbolNotFound (fix: link the shared runtime, nvcc --cudart=shared)\n", stderr);
}

/* The tables are private to NVIDIA's libraries: there are none. */
CULVERT_EXPORT CUresult cuGetExportTable(const void **table, const CUuuid *id)
{
	const void *none = NULL;
	(void)id;
	explain_tables();
	if (table)
		culvert_store(table, &none, sizeof none);
	return CUDA_ERROR_NOT_FOUND;
}

/* There is nothing to profile. */
CULVERT_EXPORT CUresult cuProfilerStart(void)
{
	return CUDA_SUCCESS;
}

CULVERT_EXPORT CUresult cuProfilerStop(void)
{
	return CUDA_SUCCESS;
}
