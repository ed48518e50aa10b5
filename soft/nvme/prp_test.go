package nvme_test

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"

	abi "github.com/culvert-io/culvert/internal/abi/nvme"
	"github.com/culvert-io/culvert/soft/nvme"
	"github.com/culvert-io/culvert/soft/pcie"
)

// TestPRPsCoverExactlyTheTransfer reads into pages in any order, by any chain
// of lists, and looks at every byte of memory afterwards.
func TestPRPsCoverExactlyTheTransfer(t *testing.T) {
	for _, mode := range []pcie.IOMMU{pcie.Off, pcie.Translating} {
		t.Run(mode.String(), func(t *testing.T) {
			const disk = 256 << 10
			r := newRaw(t, options{cfg: nvme.Config{MaxTransfer: -1}, iommu: mode, disk: disk})
			r.enable(8)
			q := r.queue(1, 8)
			lists, pool := r.alloc(40), r.alloc(64)
			content := make([]byte, disk)
			for i := range content {
				content[i] = byte(i>>9) ^ byte(i)*3
			}
			for off := 0; off < disk; off += page {
				copy(r.mem[pool:], content[off:][:page])
				r.must(q.do(r.rw(abi.NVM_WRITE, uint64(off/512), 8, pool)))
			}
			rapid.Check(t, func(rt *rapid.T) {
				r.t = rt
				defer func() { r.t = t }()
				p := drawPRPs(rt, r, lists, pool)
				before := bytes.Repeat([]byte{0xa5}, 64*page)
				copy(r.mem[pool:], before)
				r.must(q.do(p.cmd))
				off := int(p.lba) * 512
				for _, piece := range p.pieces {
					off += copy(before[piece.at:][:piece.n], content[off:])
				}
				if !bytes.Equal(r.mem[pool:][:64*page], before) {
					rt.Fatal("the bytes in memory are not those of the transfer, or others changed too")
				}
				// The same memory, written, is the same content again.
				w := p.cmd
				w.Opcode = abi.NVM_WRITE
				r.must(q.do(w))
				copy(r.mem[pool:], bytes.Repeat([]byte{0x5a}, 64*page))
				r.must(q.do(p.cmd))
				for _, piece := range p.pieces {
					if !bytes.Equal(r.mem[pool+piece.at:][:piece.n], before[piece.at:][:piece.n]) {
						rt.Fatal("what was written is not what was read")
					}
				}
			})
		})
	}
}

// A prps is a transfer with its memory.
type prps struct {
	cmd    abi.Command
	lba    uint64
	pieces []struct{ at, n int } // of the pool, in order
}

func drawPRPs(t *rapid.T, r *raw, lists, pool int) (p prps) {
	blocks := rapid.OneOf(rapid.IntRange(1, 400), rapid.SampledFrom([]int{8, 16, 24, 32})).Draw(t, "blocks")
	p.lba = uint64(rapid.IntRange(0, 512-blocks).Draw(t, "lba"))
	first := 4 * rapid.OneOf(rapid.Just(0), rapid.IntRange(0, page/4-1)).Draw(t, "offset in the first page")
	order := rapid.Permutation(make64()).Draw(t, "pages")
	left := blocks * 512
	for off := first; left > 0; off = 0 {
		n := min(left, page-off)
		p.pieces = append(p.pieces, struct{ at, n int }{order[0]*page + off, n})
		order = order[1:]
		left -= n
	}
	bus := func(i int) uint64 { return r.bus + uint64(pool+p.pieces[i].at) }
	p.cmd = abi.Command{Opcode: abi.NVM_READ, NSID: 1, CDW10: uint32(p.lba), CDW12: uint32(blocks - 1), PRP1: bus(0)}
	switch {
	case len(p.pieces) == 2:
		p.cmd.PRP2 = bus(1)
	case len(p.pieces) > 2:
		// Lists that begin late in their page make long chains.
		at := lists + 8*rapid.IntRange(0, page/8-2).Draw(t, "offset of the list")
		next := lists + page
		p.cmd.PRP2 = r.bus + uint64(at)
		for i := 1; i < len(p.pieces); i++ {
			if at%page == page-8 && i < len(p.pieces)-1 {
				r.put64(at, r.bus+uint64(next))
				at, next = next, next+page
			}
			r.put64(at, bus(i))
			at += 8
		}
	}
	return p
}

func make64() []int {
	s := make([]int, 64)
	for i := range s {
		s[i] = i
	}
	return s
}

// TestListChain makes lists of one page and more, with 4 KiB pages and lists
// that are full.
func TestListChain(t *testing.T) {
	const disk = 1100 * page
	r := newRaw(t, options{cfg: nvme.Config{MaxTransfer: -1}, disk: disk})
	r.enable(8)
	q := r.queue(1, 8)
	lists := r.alloc(4)
	data := r.alloc(1)
	copy(r.mem[data:], bytes.Repeat([]byte{9}, page))
	r.must(q.do(r.rw(abi.NVM_WRITE, 1029*8, 8, data)))
	// 1 + 511 + 511 + 8 pages, all of them the same one.
	for list := range 3 {
		for i := range 512 {
			r.put64(lists+list*page+8*i, r.bus+uint64(data))
		}
		if list < 2 {
			r.put64(lists+list*page+8*511, r.bus+uint64(lists+(list+1)*page))
		}
	}
	cmd := r.rw(abi.NVM_READ, 0, 1031*8, data)
	cmd.PRP2 = r.bus + uint64(lists)
	before := r.c.Stats()
	r.must(q.do(cmd))
	if got := r.c.Stats().Listed - before.Listed; got != (512+512+8)*8 {
		t.Errorf("%d bytes of lists were read, want %d", got, (512+512+8)*8)
	}
	// The lists' pointers are checked as well.
	r.put64(lists+8*511, r.bus+uint64(lists+page+8))
	q.status("a second list that does not begin with its page", cmd, abi.PRP_OFFSET_INVALID)
	r.put64(lists+8*511, r.bus+uint64(lists))
	r.must(q.do(cmd)) // a list that leads to itself ends where the transfer does
}

// TestMediumIsReadStraight has a file read in pieces that direct I/O takes and
// in pieces that it does not take.
func TestMediumIsReadStraight(t *testing.T) {
	r := newRaw(t, options{file: true})
	r.enable(8)
	q := r.queue(1, 8)
	data := r.alloc(3)
	want := make([]byte, 2*page)
	for i := range want {
		want[i] = byte(i * 5 >> 3)
	}
	for _, off := range []int{0, 512, 4, 2048} {
		copy(r.mem[data+off:], want)
		w := r.rw(abi.NVM_WRITE, 7, 16, data+off)
		if off > 0 {
			list := r.alloc(1)
			r.put64(list, r.bus+uint64(data+page))
			r.put64(list+8, r.bus+uint64(data+2*page))
			w.PRP2 = r.bus + uint64(list)
		}
		r.must(q.do(w))
		clear(r.mem[data:][:3*page])
		w.Opcode = abi.NVM_READ
		r.must(q.do(w))
		if !bytes.Equal(r.mem[data+off:][:len(want)], want) {
			t.Errorf("offset %d: read other bytes than were written", off)
		}
	}
}
