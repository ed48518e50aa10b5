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

// The product of two polynomials modulo CASTAGNOLI.
static __device__ u32 multiply(u32 a, u32 b)
{
	u32 p = 0;
#pragma unroll 8
	for (u32 m = 0x80000000u; m != 0; m >>= 1) {
		if (a & m)
			p ^= b;
		b = (b >> 1) ^ (b & 1 ? CASTAGNOLI : 0);
	}
	return p;
}

// x to the power 8 * 2^k.
__constant__ u32 squares[64] = {
	0x00800000, 0x00008000, 0x82f63b78, 0x6ea2d55c, 0x18b8ea18, 0x510ac59a, 0xb82be955, 0xb8fdb1e7,
	0x88e56f72, 0x74c360a4, 0xe4172b16, 0x0d65762a, 0x35d73a62, 0x28461564, 0xbf455269, 0xe2ea32dc,
	0xfe7740e6, 0xf946610b, 0x3c204f8f, 0x538586e3, 0x59726915, 0x734d5309, 0xbc1ac763, 0x7d0722cc,
	0xd289cabe, 0xe94ca9bc, 0x05b74f3f, 0xa51e1f42, 0x40000000, 0x20000000, 0x08000000, 0x00800000,
	0x00008000, 0x82f63b78, 0x6ea2d55c, 0x18b8ea18, 0x510ac59a, 0xb82be955, 0xb8fdb1e7, 0x88e56f72,
	0x74c360a4, 0xe4172b16, 0x0d65762a, 0x35d73a62, 0x28461564, 0xbf455269, 0xe2ea32dc, 0xfe7740e6,
	0xf946610b, 0x3c204f8f, 0x538586e3, 0x59726915, 0x734d5309, 0xbc1ac763, 0x7d0722cc, 0xd289cabe,
	0xe94ca9bc, 0x05b74f3f, 0xa51e1f42, 0x40000000, 0x20000000, 0x08000000, 0x00800000, 0x00008000,
};

// x to the power 8n: what n bytes after a message do to its remainder.
static __device__ u32 shift_bytes(u64 n)
{
	u32 p = 0x80000000u; // 1
#pragma unroll 1
	for (int k = 0; n != 0; k++, n >>= 1) {
		if (n & 1)
			p = multiply(squares[k], p);
	}
	return p;
}

// The remainder c with so many bits more. It is computed bit by bit: a table that
// each thread reads elsewhere makes them wait for each other.
static __device__ u32 add_bits(u32 c, u32 word, int bits)
{
	c ^= word;
#pragma unroll
	for (int i = 0; i < bits; i++)
		c = (c >> 1) ^ (CASTAGNOLI & (0u - (c & 1)));
	return c;
}

// XORs the CRC-32C of the n bytes into *crc, which is 0 for a fresh sum. The
// remainder is linear: each thread takes a stretch, shifts its remainder by
// the bytes that follow and XORs it in; the first adds what the initial and
// final inversions amount to. So the order of the threads does not matter.
extern "C" __global__ void culvert_crc32c(const u8 *data, u64 n, u32 *crc)
{
	// Multiples of 16, so that threads begin where a wide load may.
	u64 stretch = (n / threads() + 16) & ~15ull;
	u64 from = rank() * stretch;
	u32 sum = 0;
	if (from < n) {
		u64 to = n - from < stretch ? n : from + stretch, i = from;
		u32 c = 0;
#pragma unroll 1
		for (; i < to && ((u64)(data + i) & 15) != 0; i++)
			c = add_bits(c, data[i], 8);
#pragma unroll 1
		for (; to - i >= 16; i += 16) {
			uint4 v = *(const uint4 *)(data + i);
			c = add_bits(c, v.x, 32);
			c = add_bits(c, v.y, 32);
			c = add_bits(c, v.z, 32);
			c = add_bits(c, v.w, 32);
		}
#pragma unroll 1
		for (; i < to; i++)
			c = add_bits(c, data[i], 8);
		sum = multiply(shift_bytes(n - to), c);
	}
	if (rank() == 0)
		sum ^= multiply(shift_bytes(n), 0xffffffffu) ^ 0xffffffffu;
	if (sum != 0)
		atomicXor(crc, sum);
}

// Segment in Go.
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

// NVMe in Go.
struct nvme {
	u64 sq, cq;
	u64 sq_doorbell, cq_doorbell;
	u64 lists, lists_bus;
	u64 pages;
	u64 lba;
	u32 entries, nsid, opcode, blocks, count, looks;
	u32 tail, head, phase;
	u32 done, strays, status, failed, reserved;
	u32 answered[16];
};

// Writes command n, for its page of 64 KiB, and the list of all its memory
// pages but the first.
static __device__ void nvme_put(nvme *q, u32 n)
{
	u64 bus = ((const u64 *)q->pages)[n];
	u64 *list = (u64 *)(q->lists + 128 * (u64)n);
	for (u32 i = 0; i < 15; i++)
		list[i] = bus + 4096 * (u64)(i + 1);
	u64 lba = q->lba + (u64)n * q->blocks;
	u64 *cmd = (u64 *)(q->sq + 64 * (u64)q->tail);
	cmd[0] = (u64)q->nsid << 32 | n << 16 | q->opcode;
	cmd[1] = 0;
	cmd[2] = 0;
	cmd[3] = bus;
	cmd[4] = q->lists_bus + 128 * (u64)n;
	cmd[5] = lba;
	cmd[6] = q->blocks - 1;
	cmd[7] = 0;
	q->tail = q->tail + 1 == q->entries ? 0 : q->tail + 1;
}

// Takes a completion by its last word.
static __device__ void nvme_take(nvme *q, u32 sent, u32 dw3)
{
	u32 n = dw3 & 0xffff, bit = 1u << (n & 31);
	if (n >= sent || (q->answered[n >> 5] & bit)) {
		q->strays++;
		return;
	}
	q->answered[n >> 5] |= bit;
	q->done++;
	if (dw3 >> 17 != 0 && q->status == 0) {
		q->status = dw3 >> 17;
		q->failed = n;
	}
}

// Has an NVMe controller carry out count commands. One thread does all of it:
// it fills the submission queue, rings the doorbell, and polls the completion
// queue for entries with the right phase.
extern "C" __global__ void culvert_nvme(nvme *q)
{
	if (rank() != 0)
		return;
	for (u32 i = 0; i < 16; i++)
		q->answered[i] = 0;
	q->done = q->strays = q->status = q->failed = 0;
	u32 sent = 0, looks = 0;
	while (q->done < q->count && q->strays <= q->count) {
		u32 before = sent;
		while (sent < q->count && sent - q->done < q->entries - 1)
			nvme_put(q, sent++);
		if (sent != before) {
			__threadfence_system();
			*(volatile u32 *)q->sq_doorbell = q->tail;
		}
		u32 dw3 = ((volatile u32 *)q->cq)[4 * (u64)q->head + 3];
		if ((dw3 >> 16 & 1) != q->phase) {
			if (++looks >= q->looks)
				return;
			continue;
		}
		looks = 0;
		nvme_take(q, sent, dw3);
		if (++q->head == q->entries) {
			q->head = 0;
			q->phase ^= 1;
		}
		*(volatile u32 *)q->cq_doorbell = q->head;
	}
}
