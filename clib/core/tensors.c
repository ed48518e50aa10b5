/*
 * The functions of the Go core that the Python package calls: the guard against
 * forked children, and DLPack, whose deleters must be C.
 */
#define _GNU_SOURCE
#include "core.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "_cgo_export.h"

#define EXPORT __attribute__((visibility("default")))

/* DLPack 0.x, which every consumer accepts. */
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

/* culvert_tensor_abi returns the version of the functions below. */
EXPORT int64_t culvert_tensor_abi(void)
{
	return CULVERT_TENSOR_ABI;
}

/* culvert_tensor_call answers a request of n bytes of JSON. *reply is the answer,
 * or the error if it returns CULVERT_FAILED; the caller frees it. */
EXPORT int64_t culvert_tensor_call(const char *request, uint64_t n, char **reply)
{
	*reply = NULL;
	if (!culvert_enter())
		return CULVERT_FORKED;
	return culvertTensorCall((void *)request, n, reply) ? 0 : CULVERT_FAILED;
}

/* culvert_tensor_begin starts a request that may take long, under a ticket that the
 * caller chooses. */
EXPORT int64_t culvert_tensor_begin(uint64_t ticket, const char *request, uint64_t n)
{
	if (!culvert_enter())
		return CULVERT_FORKED;
	culvertTensorBegin(ticket, (void *)request, n);
	return 0;
}

/* culvert_tensor_wait waits up to the given time for the answer of a started request.
 * If it returns CULVERT_PENDING, call it again. */
EXPORT int64_t culvert_tensor_wait(uint64_t ticket, uint64_t milliseconds, char **reply)
{
	*reply = NULL;
	if (!culvert_enter())
		return CULVERT_FORKED;
	return culvertTensorWait(ticket, milliseconds, reply);
}

/* culvert_tensor_cancel cancels a started request. The caller must still wait for
 * it. */
EXPORT void culvert_tensor_cancel(uint64_t ticket)
{
	if (culvert_enter())
		culvertTensorCancel(ticket);
}

/* culvert_tensor_copy copies n bytes at off of a tensor into host memory. */
EXPORT int64_t culvert_tensor_copy(uint64_t memory, uint64_t index, uint64_t off, void *host, uint64_t n, char **reply)
{
	*reply = NULL;
	if (!culvert_enter())
		return CULVERT_FORKED;
	return culvertTensorCopy(memory, index, off, host, n, reply) ? 0 : CULVERT_FAILED;
}

/* culvert_tensor_read reads n bytes at off of a tensor of an open model into host
 * memory. */
EXPORT int64_t culvert_tensor_read(uint64_t model, uint64_t index, uint64_t off, void *host, uint64_t n, char **reply)
{
	*reply = NULL;
	if (!culvert_enter())
		return CULVERT_FORKED;
	return culvertTensorRead(model, index, off, host, n, reply) ? 0 : CULVERT_FAILED;
}

EXPORT void culvert_tensor_release(uint64_t object)
{
	if (culvert_enter())
		culvertTensorRelease(object);
}

EXPORT void culvert_tensor_free(char *reply)
{
	free(reply);
}

/* A view owns a reference to its memory. */
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

/* culvert_tensor_drop is the destructor of capsules with a DLManagedTensor; a
 * consumer renames the capsule. The functions of Python are looked up in the
 * process, not linked. */
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

/* culvert_tensor_dlpack makes a DLManagedTensor of each of n tensors, from index
 * first on. The consumer calls its deleter. */
EXPORT int64_t culvert_tensor_dlpack(uint64_t memory, uint64_t first, uint64_t n, void **out, char **reply)
{
	*reply = NULL;
	if (!culvert_enter())
		return CULVERT_FORKED;
	struct culvert_view *from = calloc(n ? n : 1, sizeof *from);
	if (!from)
		return CULVERT_FAILED;
	if (!culvertTensorViews(memory, first, n, from, reply)) {
		free(from);
		return CULVERT_FAILED;
	}
	uint64_t made = 0;
	for (; made < n; made++) {
		struct view *v = new_view(memory, &from[made]);
		if (!v)
			break;
		out[made] = &v->managed;
	}
	free(from);
	if (made == n)
		return 0;
	for (uint64_t i = made; i < n; i++)
		culvert_tensor_release(memory);
	while (made-- > 0)
		delete_view(out[made]);
	return CULVERT_FAILED;
}
