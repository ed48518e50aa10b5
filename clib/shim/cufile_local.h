/* What the generated cufile.c needs. */
#include "../include/cufile.h"
#include "gocore.h"

#undef cuFileDriverClose

/* culvert_file_call is culvert_call that keeps the caller's CUDA context current. */
bool culvert_file_call(enum culvert_entry fn, const uint64_t *args, int64_t *value, int fail_errno);
#define culvert_call culvert_file_call

static inline CUfileError_t culvert_file_error(CUfileOpError code)
{
	return (CUfileError_t){.err = code, .cu_err = CUDA_SUCCESS};
}

/* The Go core returns both codes in one word, cuFile's in the low half. */
static inline CUfileError_t culvert_file_status(int64_t v)
{
	return (CUfileError_t){.err = (CUfileOpError)(int32_t)v, .cu_err = (CUresult)(v >> 32)};
}
