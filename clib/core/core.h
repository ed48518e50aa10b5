/* What the C and Go parts of the Go core share. */
#ifndef CULVERT_CORE_H
#define CULVERT_CORE_H

#include <stdbool.h>
#include <stdint.h>

#include "../shim/lease.h"

/* The version of the module: culvert.Version in Go. */
#define CULVERT_VERSION "0.1.0"

/* What CUDA keeps per thread: softcuda.Thread in Go. */
#define CULVERT_MAX_DEPTH 62
struct culvert_thread {
	int32_t depth;
	int32_t device;
	int32_t last_error;
	int32_t capture_mode;
	uint64_t stack[CULVERT_MAX_DEPTH];
};

/* The leases: lease.Slots in Go. */
extern struct culvert_lease culvert_lease_slots[CULVERT_LEASES];

/* culvert_enter prepares the thread for a call of Go. It returns false in a forked
 * child, where Go must not be entered. */
bool culvert_enter(void);

/* culvert_variable is the value that an environment variable has now; NULL if it is not
 * set, or if the process has more rights than its caller. */
const char *culvert_variable(const char *name);

/* culvert_maps_exports reports whether libculvert-dev.so is loaded, whose mmap maps dma-bufs
 * of the software CUDA. */
bool culvert_maps_exports(void);

/* culvert_bind_thread registers the thread with the Go runtime, as its first call
 * would, and keeps its signal mask. */
void culvert_bind_thread(void);

/* The version of the functions in tensors.c: pythonapi.ABI in Go. */
#define CULVERT_TENSOR_ABI 5

/* Results of the functions in tensors.c that return int64_t. */
enum {
	CULVERT_FAILED = -1,  /* the reply, if any, tells the cause */
	CULVERT_FORKED = -2,  /* a child of the process that loaded the library */
	CULVERT_PENDING = -3, /* not ready */
};

/* A tensor to be exported as DLPack: pythonapi.View in Go. */
#define CULVERT_TENSOR_DIMS 64
struct culvert_view {
	uint64_t address;
	int32_t gpu;
	int32_t ndim;
	uint8_t code;
	uint8_t bits;
	int64_t shape[CULVERT_TENSOR_DIMS];
};

#endif
