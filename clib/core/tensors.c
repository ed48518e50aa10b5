/*
 * The functions of the core that the Python package calls by name: the guard
 * against forked children, and DLPack, whose deleters must be C.
 */
#define _GNU_SOURCE
#include "core.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "_cgo_export.h"

#define EXPORT __attribute__((visibility("default")))

/* Answers of the functions that return int64_t. */
enum {
	FAILED = -1, /* the reply, where there is one, says why */
	FORKED = -2, /* a child of the process that loaded the library */
};

/* DLPack 0.x, which every consumer takes. */
typedef struct {
	int32_t device_type;
	int32_t device_id;
} DLDevice;

typedef struct {
	uint8_t code;
	uint8_t bits;
	uint16_t lanes;
} DLDataType;

typedef struct {
	void *data;
	DLDevice device;
	int32_t ndim;
	DLDataType dtype;
	int64_t *shape;
	int64_t *strides;
	uint64_t byte_offset;
} DLTensor;

typedef struct DLManagedTensor {
	DLTensor dl_tensor;
	void *manager_ctx;
	void (*deleter)(struct DLManagedTensor *self);
} DLManagedTensor;

enum { kDLCUDA = 2 };

/* culvert_tensor_abi is the version of all the others. */
EXPORT int64_t culvert_tensor_abi(void)
{
	return CULVERT_TENSOR_ABI;
}

/* culvert_tensor_call answers a request of n bytes of JSON. *reply is the
 * answer, or the error where it returns FAILED; the caller frees it. */
EXPORT int64_t culvert_tensor_call(uint64_t ticket, const char *request, uint64_t n, char **reply)
{
	*reply = NULL;
	if (culvert_forked())
		return FORKED;
	return culvertTensorCall(ticket, (void *)request, n, reply) ? 0 : FAILED;
}

/* culvert_tensor_cancel stops the call that has this ticket, which is not 0. */
EXPORT void culvert_tensor_cancel(uint64_t ticket)
{
	if (!culvert_forked())
		culvertTensorCancel(ticket);
}

/* culvert_tensor_copy copies n bytes at off of a tensor into host memory. */
EXPORT int64_t culvert_tensor_copy(uint64_t memory, uint64_t index, uint64_t off, void *host, uint64_t n, char **reply)
{
	*reply = NULL;
	if (culvert_forked())
		return FORKED;
	return culvertTensorCopy(memory, index, off, host, n, reply) ? 0 : FAILED;
}

EXPORT void culvert_tensor_release(uint64_t object)
{
	if (!culvert_forked())
		culvertTensorRelease(object);
}

EXPORT void culvert_tensor_free(char *reply)
{
	free(reply);
}

/* A view owns a reference to the memory that it shows. */
struct view {
	DLManagedTensor managed;
	uint64_t memory;
	int64_t numbers[]; /* shape, strides */
};

static void delete_view(DLManagedTensor *self)
{
	struct view *v = self->manager_ctx;
	culvert_tensor_release(v->memory);
	free(v);
}

static struct view *new_view(uint64_t memory, const struct culvert_view *from)
{
	struct view *v = malloc(sizeof *v + 2 * from->ndim * sizeof *v->numbers);
	if (!v)
		return NULL;
	int64_t *shape = v->numbers, *strides = v->numbers + from->ndim, stride = 1;
	memcpy(shape, from->shape, from->ndim * sizeof *shape);
	for (int i = from->ndim - 1; i >= 0; i--) {
		strides[i] = stride;
		stride *= shape[i] ? shape[i] : 1;
	}
	v->memory = memory;
	v->managed = (DLManagedTensor){
		.dl_tensor = {.data = (void *)(uintptr_t)from->address,
			      .device = {kDLCUDA, from->gpu},
			      .ndim = from->ndim,
			      .dtype = {from->code, from->bits, 1},
			      .shape = shape,
			      .strides = strides},
		.manager_ctx = v,
		.deleter = delete_view,
	};
	return v;
}

/* culvert_tensor_drop is the destructor of capsules around DLManagedTensors:
 * whoever takes the tensor out renames the capsule. Python is not linked to, it
 * is there. */
EXPORT void culvert_tensor_drop(void *capsule)
{
	static const char name[] = "dltensor";
	int (*valid)(void *, const char *);
	void *(*pointer)(void *, const char *);
	*(void **)&valid = dlsym(RTLD_DEFAULT, "PyCapsule_IsValid");
	*(void **)&pointer = dlsym(RTLD_DEFAULT, "PyCapsule_GetPointer");
	if (valid && pointer && valid(capsule, name))
		delete_view(pointer(capsule, name));
}

/* culvert_tensor_dlpack makes DLManagedTensors of n tensors from index first on.
 * Whoever consumes one calls its deleter. */
EXPORT int64_t culvert_tensor_dlpack(uint64_t memory, uint64_t first, uint64_t n, void **out, char **reply)
{
	*reply = NULL;
	if (culvert_forked())
		return FORKED;
	for (uint64_t i = 0; i < n; i++) {
		struct culvert_view from;
		struct view *v = NULL;
		if (culvertTensorView(memory, first + i, &from, reply)) {
			v = new_view(memory, &from);
			if (!v)
				culvert_tensor_release(memory);
		}
		if (!v) {
			while (i-- > 0)
				delete_view(out[i]);
			return FAILED;
		}
		out[i] = &v->managed;
	}
	return 0;
}
