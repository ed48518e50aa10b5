// Package kerneltest makes launches of Culvert's kernels for tests that compare
// the CUDA and the Go version of a kernel: on a CPU that emulates CUDA, on the
// software GPU, and on hardware.
package kerneltest

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/gpu/kernels"
)

// Layout of a case's memory: data, a table of segments, the result word.
const (
	dataSize    = 4 << 10
	tableAt     = dataSize
	maxSegments = 8
	resultAt    = tableAt + maxSegments*kernels.SegmentSize

	// Size is the memory of a case in bytes. Its address must be a multiple of
	// 16.
	Size = resultAt + 16
)

// A Case is a launch and the memory before it.
type Case struct {
	Kernel      string
	Grid, Block gpu.Dim
	Args        []uint64
	Memory      []byte // Size bytes, to be put at the base that Args refer to

	base gpu.Addr
	rng  *rand.Rand
}

// New makes a case of a kernel for memory at base. Equal seeds give equal cases.
func New(kernel string, base gpu.Addr, seed uint64) *Case {
	c := &Case{Kernel: kernel, Memory: make([]byte, Size), base: base, rng: rand.New(rand.NewPCG(seed, seed))}
	for i := range dataSize {
		c.Memory[i] = byte(c.rng.IntN(4)) // NULs and equal bytes are not rare
	}
	c.Grid, c.Block = c.dim(), c.dim()
	c.Args = c.args()
	return c
}

func (c *Case) dim() gpu.Dim {
	n := func() uint32 { return 1 + c.rng.Uint32N(5) }
	return gpu.Dim{X: n(), Y: n(), Z: n()}
}

func (c *Case) at(off int) uint64 { return uint64(c.base) + uint64(off) }

// args makes arguments for the kernel, or nil for unknown kernels.
func (c *Case) args() []uint64 {
	n := c.rng.IntN(1500)
	off := c.rng.IntN(dataSize - n)
	result := c.at(resultAt)
	switch c.Kernel {
	case "strrev", "culvert_strrev":
		c.Memory[off+n] = 0 // ends at the latest here
		return []uint64{c.at(off), result}
	case "culvert_counter":
		return []uint64{result}
	case "culvert_sum", "culvert_crc32c":
		return []uint64{c.at(off), uint64(n), result}
	case "culvert_fill":
		return []uint64{c.at(off), uint64(n), c.rng.Uint64()}
	case "culvert_compare":
		return []uint64{c.at(off), c.at(c.rng.IntN(dataSize - n)), uint64(n), result}
	case "culvert_gather":
		return c.table(true)
	case "culvert_scatter":
		return c.table(false)
	case "culvert_nvme":
		return c.nvme()
	}
	return nil
}

// nvme makes a queue pair with completions, valid and invalid ones.
func (c *Case) nvme() []uint64 {
	const queue, sq, cq, doorbells, pages, lists = 0, 256, 768, 896, 1024, 2048
	clear(c.Memory[:lists])
	u32 := c.rng.Uint32N
	q := kernels.NVMe{
		SQ: gpu.Addr(c.at(sq)), CQ: gpu.Addr(c.at(cq)), SQDoorbell: gpu.Addr(c.at(doorbells)), CQDoorbell: gpu.Addr(c.at(doorbells + 4)),
		Lists: gpu.Addr(c.at(lists)), ListsBus: c.rng.Uint64(), Pages: gpu.Addr(c.at(pages)), LBA: c.rng.Uint64N(1 << 40),
		Entries: 2 + u32(7), NSID: u32(9), Opcode: u32(3), Blocks: []uint32{128, 16}[u32(2)], Count: u32(9), Looks: 1 + u32(3),
	}
	q.Tail, q.Head, q.Phase = u32(q.Entries), u32(q.Entries), u32(2)
	le := binary.LittleEndian
	for i := range q.Count {
		le.PutUint64(c.Memory[pages+8*i:], c.rng.Uint64()&^0xffff)
	}
	// One round from the head, with the phase that the kernel waits for.
	for i := range q.Entries - u32(2) {
		at := q.Head + i
		dw3 := q.Phase<<16 | i
		if at >= q.Entries {
			at, dw3 = at-q.Entries, dw3^1<<16
		}
		if u32(4) == 0 {
			dw3 ^= u32(12)
		}
		if u32(6) == 0 {
			dw3 |= u32(1<<15) << 17
		}
		le.PutUint32(c.Memory[cq+16*at+12:], dw3)
	}
	q.Append(c.Memory[queue:queue])
	return []uint64{c.at(queue)}
}

// table makes segments that do not overlap: sources in the first half of the
// data, destinations in the second.
func (c *Case) table(gather bool) []uint64 {
	const half, slot = dataSize / 2, dataSize / 2 / maxSegments
	align := []int{1, 1, 16}[c.rng.IntN(3)]
	upTo := func(limit int) int { return c.rng.IntN(limit/align+1) * align }
	count := c.rng.IntN(maxSegments + 1)
	table := c.Memory[tableAt:tableAt]
	for i := range count {
		length := upTo(slot)
		src, dst := uint64(i*slot+upTo(slot-length)), uint64(i*slot+upTo(slot-length))
		if gather {
			src += c.at(0)
		} else {
			dst += c.at(half)
		}
		table = kernels.Segment{Src: src, Dst: dst, Len: uint64(length)}.Append(table)
	}
	base := c.at(0)
	if gather {
		base = c.at(half)
	}
	return []uint64{base, c.at(tableAt), uint64(count)}
}

// Want is the memory after the Go version has run on a copy of it, in slices of
// random lengths.
func (c *Case) Want() ([]byte, error) {
	k, ok := kernels.Lookup(c.Kernel)
	if !ok {
		return nil, fmt.Errorf("no kernel %s", c.Kernel)
	}
	m := NewMemory(c.base, append([]byte(nil), c.Memory...), c.rng)
	err := k.Run(kernels.Launch{Grid: c.Grid, Block: c.Block, Args: c.Args, Mem: m})
	return m.data, err
}

// Diff describes the first difference between got and Want, or is "".
func (c *Case) Diff(got []byte) string {
	want, err := c.Want()
	if err != nil {
		return err.Error()
	}
	for i := range want {
		if want[i] != got[i] {
			return fmt.Sprintf("%s%v, grid %v, block %v: byte %d is %#x, the Go version gives %#x, before it was %#x",
				c.Kernel, c.Args, c.Grid, c.Block, i, got[i], want[i], c.Memory[i])
		}
	}
	return ""
}
