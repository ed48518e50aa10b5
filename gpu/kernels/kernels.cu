// The CUDA half of the kernels; the Go half of each is in this package under
// the same name. Every kernel works with any launch shape: threads are ranked
// over all three dimensions and stride over the work.

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;

static __device__ u64 block_rank()
{
	return ((u64)blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
}

static __device__ u64 blocks() { return (u64)gridDim.x * gridDim.y * gridDim.z; }

static __device__ u32 lane_rank()
{
	return (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
}

static __device__ u32 lanes() { return blockDim.x * blockDim.y * blockDim.z; }

static __device__ u64 rank() { return block_rank() * lanes() + lane_rank(); }

static __device__ u64 threads() { return blocks() * lanes(); }

// Reverses the NUL-terminated text in place and stores its length. One thread
// does all of it.
static __device__ void reverse(char *text, int *len)
{
	if (rank() != 0)
		return;
	int n = 0;
	while (text[n] != 0)
		n++;
	for (int i = 0, j = n - 1; i < j; i++, j--) {
		char c = text[i];
		text[i] = text[j];
		text[j] = c;
	}
	*len = n;
}

extern "C" __global__ void strrev(char *text, int *len) { reverse(text, len); }

extern "C" __global__ void culvert_strrev(char *text, int *len) { reverse(text, len); }

// Adds one per thread.
extern "C" __global__ void culvert_counter(u32 *count) { atomicAdd(count, 1u); }

// Adds the bytes to *total.
extern "C" __global__ void culvert_sum(const u8 *data, u64 n, u64 *total)
{
	u64 sum = 0;
	for (u64 i = rank(); i < n; i += threads())
		sum += data[i];
	if (sum != 0)
		atomicAdd(total, sum);
}

// Repeats the eight bytes of pattern, lowest first, over n bytes.
extern "C" __global__ void culvert_fill(u8 *dst, u64 n, u64 pattern)
{
	for (u64 i = rank(); i < n; i += threads())
		dst[i] = (u8)(pattern >> (8 * (i & 7)));
}

// Adds the number of differing bytes to *diff.
extern "C" __global__ void culvert_compare(const u8 *a, const u8 *b, u64 n, u64 *diff)
{
	u64 d = 0;
	for (u64 i = rank(); i < n; i += threads())
		d += a[i] != b[i];
	if (d != 0)
		atomicAdd(diff, d);
}

#define CASTAGNOLI 0x82f63b78u // x^32 + x^28 + ... + 1, lowest power in the highest bit

// CRC-32C of the 16 values of four bits.
__constant__ u32 nibble[16] = {
	0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1, 0x417b1dbc, 0x5125dad3, 0x61c69362, 0x7198540d,
	0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9, 0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75,
};

// The product of two polynomials modulo CASTAGNOLI.
static __device__ u32 multiply(u32 a, u32 b)
{
	u32 p = 0;
#pragma unroll 1
	for (u32 m = 0x80000000u; m != 0; m >>= 1) {
		if (a & m)
			p ^= b;
		b = (b >> 1) ^ (b & 1 ? CASTAGNOLI : 0);
	}
	return p;
}

// x to the power 8n: what n bytes after a message do to its remainder.
static __device__ u32 shift_bytes(u64 n)
{
	u32 p = 0x80000000u, sq = 0x00800000u; // 1 and x^8
	for (; n != 0; n >>= 1) {
		if (n & 1)
			p = multiply(sq, p);
		sq = multiply(sq, sq);
	}
	return p;
}

// XORs the CRC-32C of the n bytes into *crc, which is 0 for a fresh sum. The
// remainder is linear: each thread takes a stretch, shifts its remainder by
// the bytes that follow and XORs it in; the first adds what the initial and
// final inversions amount to. So the order of the threads does not matter.
extern "C" __global__ void culvert_crc32c(const u8 *data, u64 n, u32 *crc)
{
	u64 stretch = n / threads() + (n % threads() != 0);
	u64 from = rank() * stretch;
	u32 sum = 0;
	if (from < n) {
		u64 to = n - from < stretch ? n : from + stretch;
		u32 c = 0;
#pragma unroll 1
		for (u64 i = from; i < to; i++) {
			c ^= data[i];
			c = (c >> 4) ^ nibble[c & 15];
			c = (c >> 4) ^ nibble[c & 15];
		}
		sum = multiply(shift_bytes(n - to), c);
	}
	if (rank() == 0)
		sum ^= multiply(shift_bytes(n), 0xffffffffu) ^ 0xffffffffu;
	if (sum != 0)
		atomicXor(crc, sum);
}

// Piece in Go.
struct piece {
	u64 src, dst, len;
};

// The threads of one block copy len bytes, by 16 where all is aligned.
static __device__ void copy(u64 dst, u64 src, u64 len)
{
	if (((dst | src | len) & 15) == 0) {
		for (u64 i = lane_rank(); i < len / 16; i += lanes())
			((uint4 *)dst)[i] = ((const uint4 *)src)[i];
		return;
	}
	for (u64 i = lane_rank(); i < len; i += lanes())
		((u8 *)dst)[i] = ((const u8 *)src)[i];
}

// Packs: src are addresses, dst are offsets from base. One block per piece.
extern "C" __global__ void culvert_gather(u64 base, const piece *table, u64 count)
{
	for (u64 i = block_rank(); i < count; i += blocks())
		copy(base + table[i].dst, table[i].src, table[i].len);
}

// Unpacks: src are offsets from base, dst are addresses. One block per piece.
extern "C" __global__ void culvert_scatter(u64 base, const piece *table, u64 count)
{
	for (u64 i = block_rank(); i < count; i += blocks())
		copy(table[i].dst, base + table[i].src, table[i].len);
}
