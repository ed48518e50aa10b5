// The CUDA half on a CPU: the kernels' source as C++, with one thread after
// the other. A test compares its effect on memory with the Go half's.
#include <string.h>

#define __global__
#define __device__
#define __constant__ static const

struct dim3 {
	unsigned x, y, z;
};
struct uint4 {
	unsigned x, y, z, w;
};
static dim3 gridDim, blockDim, blockIdx, threadIdx;

template <typename T> static T atomicAdd(T *p, T v)
{
	T old = *p;
	*p += v;
	return old;
}
static unsigned atomicXor(unsigned *p, unsigned v)
{
	unsigned old = *p;
	*p ^= v;
	return old;
}

static void __threadfence_system() {}

#include "../kernels.cu"

template <typename F> static void each(const unsigned *shape, F f)
{
	gridDim = {shape[0], shape[1], shape[2]};
	blockDim = {shape[3], shape[4], shape[5]};
	for (blockIdx.z = 0; blockIdx.z < gridDim.z; blockIdx.z++)
	for (blockIdx.y = 0; blockIdx.y < gridDim.y; blockIdx.y++)
	for (blockIdx.x = 0; blockIdx.x < gridDim.x; blockIdx.x++)
	for (threadIdx.z = 0; threadIdx.z < blockDim.z; threadIdx.z++)
	for (threadIdx.y = 0; threadIdx.y < blockDim.y; threadIdx.y++)
	for (threadIdx.x = 0; threadIdx.x < blockDim.x; threadIdx.x++)
		f();
}

// Runs a kernel; 0 says that there is none of this name.
extern "C" int emulate(const char *name, const unsigned *shape, const u64 *a)
{
	auto is = [name](const char *s) { return strcmp(name, s) == 0; };
	if (is("strrev"))
		each(shape, [a] { strrev((char *)a[0], (int *)a[1]); });
	else if (is("culvert_strrev"))
		each(shape, [a] { culvert_strrev((char *)a[0], (int *)a[1]); });
	else if (is("culvert_counter"))
		each(shape, [a] { culvert_counter((u32 *)a[0]); });
	else if (is("culvert_sum"))
		each(shape, [a] { culvert_sum((u8 *)a[0], a[1], (u64 *)a[2]); });
	else if (is("culvert_fill"))
		each(shape, [a] { culvert_fill((u8 *)a[0], a[1], a[2]); });
	else if (is("culvert_compare"))
		each(shape, [a] { culvert_compare((u8 *)a[0], (u8 *)a[1], a[2], (u64 *)a[3]); });
	else if (is("culvert_crc32c"))
		each(shape, [a] { culvert_crc32c((u8 *)a[0], a[1], (u32 *)a[2]); });
	else if (is("culvert_gather"))
		each(shape, [a] { culvert_gather(a[0], (const piece *)a[1], a[2]); });
	else if (is("culvert_scatter"))
		each(shape, [a] { culvert_scatter(a[0], (const piece *)a[1], a[2]); });
	else if (is("culvert_nvme"))
		each(shape, [a] { culvert_nvme((nvme *)a[0]); });
	else
		return 0;
	return 1;
}
