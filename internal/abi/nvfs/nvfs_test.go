package nvfs

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/culvert-io/culvert/internal/abi/cproof"
)

// header declares the structs once more, in C.
const header = `
struct map_args { int64_t size; uint64_t pdevinfo, cpuvaddr, gpuvaddr, end_fence_addr; uint32_t sbuf_block; uint16_t is_bounce_buffer; uint8_t pad[2]; } __attribute__((packed, aligned(8)));
struct file_args { uint64_t inum; uint32_t generation, majdev, mindev; uint64_t devptroff; } __attribute__((packed, aligned(8)));
struct ioargs { uint64_t cpuvaddr; int64_t offset; uint64_t size, end_fence_value; int64_t ioctl_return; struct file_args file_args; int fd;
	uint8_t sync:1, hipri:1, allowreads:1, use_rkeys:1, optype:3, reserved:1; uint8_t pad[3]; } __attribute__((packed, aligned(8)));
struct batch_args { uint64_t ctx_id, nents; struct ioargs *io_entries; } __attribute__((packed, aligned(8)));
struct set_args { uint64_t cpuvaddr; uint64_t gid[2]; uint32_t qp_num; uint16_t lid; uint8_t flags, version; uint32_t dc_key, rkey[16], nkeys; } __attribute__((packed, aligned(8)));
struct info { uint8_t version, flags; uint16_t lid; uint32_t qp_num; uint64_t rem_vaddr; uint32_t size, rkey; uint64_t gid[2]; uint32_t dc_key; };
struct get_args { uint64_t cpuvaddr, gpu_buf_offset; struct info info; };
union arg { struct map_args m; struct ioargs i; struct batch_args b; struct set_args s; struct get_args g; };
struct meta { uint64_t end_fence_val, result; uint32_t state; uint64_t magic; uint32_t meta_version, nholes; int64_t start_fd_offset; struct { uint16_t start, npages; } hole[768]; };
`

func TestNumbersAgainstC(t *testing.T) {
	cproof.Numbers(t, header, map[string]uint64{
		"_IOW('t', 1, int)": NVFS_IOCTL_REMOVE,
		"_IOW('t', 2, int)": NVFS_IOCTL_READ,
		"_IOW('t', 3, int)": NVFS_IOCTL_MAP,
		"_IOW('t', 4, int)": NVFS_IOCTL_WRITE,
		"_IOW('t', 5, int)": NVFS_IOCTL_SET_RDMA_REG_INFO,
		"_IOW('t', 6, int)": NVFS_IOCTL_GET_RDMA_REG_INFO,
		"_IOW('t', 7, int)": NVFS_IOCTL_CLEAR_RDMA_REG_INFO,
		"_IOW('t', 8, int)": NVFS_IOCTL_BATCH_IO,

		"sizeof(union arg)":         ArgSize,
		"sizeof(struct map_args)":   MapArgsSize,
		"sizeof(struct ioargs)":     IOArgsSize,
		"sizeof(struct file_args)":  32,
		"sizeof(struct batch_args)": BatchArgsSize,
		"sizeof(struct set_args)":   ArgSize,
		"sizeof(struct get_args)":   64,
		"sizeof(struct meta)":       sparseEnd,
	})
}

// mark encodes a struct and says where its byte 0xfe is.
func mark(encode func([]byte)) uint64 {
	var a Arg
	encode(a[:])
	return uint64(bytes.IndexByte(a[:], 0xfe))
}

func TestOffsetsAgainstC(t *testing.T) {
	m := func(a MapArgs) uint64 { return mark(a.Encode) }
	io := func(a IOArgs) uint64 { return mark(a.Encode) }
	set := func(a SetRDMAArgs) uint64 { return mark(a.Encode) }
	info := func(a RDMAInfo) uint64 { return mark(a.Encode) }
	batch := func(a BatchArgs) uint64 { return mark(a.Encode) }
	const v = 0xfe
	cproof.Numbers(t, "#include <stddef.h>\n"+header, map[string]uint64{
		"1 + offsetof(struct map_args, size)":         1 + m(MapArgs{Size: v}),
		"offsetof(struct map_args, pdevinfo)":         m(MapArgs{PDevInfo: v}),
		"offsetof(struct map_args, cpuvaddr)":         m(MapArgs{CPUVAddr: v}),
		"offsetof(struct map_args, gpuvaddr)":         m(MapArgs{GPUVAddr: v}),
		"offsetof(struct map_args, end_fence_addr)":   m(MapArgs{EndFenceAddr: v}),
		"offsetof(struct map_args, sbuf_block)":       m(MapArgs{SbufBlock: v}),
		"offsetof(struct map_args, is_bounce_buffer)": m(MapArgs{IsBounceBuffer: v}),

		"1 + offsetof(struct ioargs, cpuvaddr)":         1 + io(IOArgs{CPUVAddr: v}),
		"offsetof(struct ioargs, offset)":               io(IOArgs{Offset: v}),
		"offsetof(struct ioargs, size)":                 io(IOArgs{Size: v}),
		"offsetof(struct ioargs, end_fence_value)":      io(IOArgs{EndFenceValue: v}),
		"offsetof(struct ioargs, ioctl_return)":         io(IOArgs{IoctlReturn: v}),
		"offsetof(struct ioargs, ioctl_return) + 0":     ReturnAt,
		"offsetof(struct ioargs, file_args.inum)":       io(IOArgs{Inum: v}),
		"offsetof(struct ioargs, file_args.generation)": io(IOArgs{Generation: v}),
		"offsetof(struct ioargs, file_args.majdev)":     io(IOArgs{Majdev: v}),
		"offsetof(struct ioargs, file_args.mindev)":     io(IOArgs{Mindev: v}),
		"offsetof(struct ioargs, file_args.devptroff)":  io(IOArgs{DevPtrOff: v}),
		"offsetof(struct ioargs, fd)":                   io(IOArgs{FD: v}),
		"offsetof(struct ioargs, fd) + 4":               io(IOArgs{Bits: v}),

		"1 + offsetof(struct batch_args, ctx_id)": 1 + batch(BatchArgs{CtxID: v}),
		"offsetof(struct batch_args, nents)":      batch(BatchArgs{Nents: v}),
		"offsetof(struct batch_args, io_entries)": batch(BatchArgs{IOEntries: v}),

		"offsetof(struct set_args, gid[1])":   set(SetRDMAArgs{GID: [2]uint64{0, v}}),
		"offsetof(struct set_args, qp_num)":   set(SetRDMAArgs{QPNum: v}),
		"offsetof(struct set_args, lid)":      set(SetRDMAArgs{LID: v}),
		"offsetof(struct set_args, flags)":    set(SetRDMAArgs{Flags: v}),
		"offsetof(struct set_args, version)":  set(SetRDMAArgs{Version: v}),
		"offsetof(struct set_args, dc_key)":   set(SetRDMAArgs{DCKey: v}),
		"offsetof(struct set_args, rkey[15])": set(SetRDMAArgs{Rkey: [16]uint32{15: v}}),
		"offsetof(struct set_args, nkeys)":    set(SetRDMAArgs{Nkeys: v}),

		"offsetof(struct get_args, info)":  RDMAInfoAt,
		"offsetof(struct info, lid)":       info(RDMAInfo{LID: v}),
		"offsetof(struct info, qp_num)":    info(RDMAInfo{QPNum: v}),
		"offsetof(struct info, rem_vaddr)": info(RDMAInfo{RemVAddr: v}),
		"offsetof(struct info, size)":      info(RDMAInfo{Size: v}),
		"offsetof(struct info, rkey)":      info(RDMAInfo{Rkey: v}),
		"offsetof(struct info, gid[1])":    info(RDMAInfo{GID: [2]uint64{0, v}}),
		"offsetof(struct info, dc_key)":    info(RDMAInfo{DCKey: v}),

		"offsetof(struct meta, result)":          MetaResult,
		"offsetof(struct meta, state)":           MetaState,
		"offsetof(struct meta, magic)":           MetaMagic,
		"offsetof(struct meta, meta_version)":    MetaVersion,
		"offsetof(struct meta, nholes)":          MetaHoles,
		"offsetof(struct meta, start_fd_offset)": MetaOffset,
		"offsetof(struct meta, hole)":            MetaList,
	})
}

// codec is what the structs have in common.
type codec[T any] interface {
	*T
	Encode([]byte)
	Decode([]byte)
}

func roundTrip[T any, P codec[T]](t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.Make[T]().Draw(t, "args")
		var a Arg
		P(&want).Encode(a[:])
		var got T
		if P(&got).Decode(a[:]); !cmp.Equal(got, want) {
			t.Fatal(cmp.Diff(want, got))
		}
	})
}

func TestArgsComeBack(t *testing.T) {
	roundTrip[MapArgs](t)
	roundTrip[IOArgs](t)
	roundTrip[BatchArgs](t)
	roundTrip[SetRDMAArgs](t)
	roundTrip[RDMAInfo](t)
}

func TestSparseComesBack(t *testing.T) {
	want := Sparse{State: META_SPARSE, Offset: 1 << 40, Holes: []Hole{{0, 16}, {32, 16}, {64, 4032}}}
	page := make([]byte, MetaSize)
	copy(page[MetaState:], AppendSparse(nil, &want))
	var got Sparse
	if err := ParseSparse(page, &got); err != nil || !cmp.Equal(got, want) {
		t.Errorf("%v\n%s", err, cmp.Diff(want, got))
	}
}

// Whatever is in the page, what is taken from it can be used.
func FuzzParseSparse(f *testing.F) {
	f.Add(AppendSparse(make([]byte, MetaState), &Sparse{State: META_SPARSE, Holes: []Hole{{0, 16}}}))
	f.Add(AppendSparse(make([]byte, MetaState), &Sparse{State: META_SPARSE, Holes: []Hole{{0, 16}, {8, 1}}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		page := make([]byte, MetaSize)
		copy(page, b)
		var s Sparse
		if ParseSparse(page, &s) != nil {
			return
		}
		end := 0
		for _, h := range s.Holes {
			if h.Blocks == 0 || int(h.Start) < end || int(h.Start)+int(h.Blocks) > MAX_BLOCKS {
				t.Fatalf("holes %v", s.Holes)
			}
			end = int(h.Start) + int(h.Blocks)
		}
		if (s.State == META_SPARSE) != (len(s.Holes) > 0) {
			t.Fatalf("state %d with %d holes", s.State, len(s.Holes))
		}
	})
}
