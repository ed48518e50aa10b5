/* What the two halves of the core, C and Go, share. */
#ifndef CULVERT_CORE_H
#define CULVERT_CORE_H

#include <stdint.h>

/* What CUDA keeps per thread: softcuda.Thread in Go. */
#define CULVERT_MAX_DEPTH 62
struct culvert_thread {
	int32_t depth;
	int32_t device;
	int32_t last_error;
	int32_t pad0;
	uint64_t stack[CULVERT_MAX_DEPTH];
};

#endif
