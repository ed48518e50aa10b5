package nvmetest

import (
	"encoding/binary"
	"slices"
	"sync"
	"testing"

	"github.com/culvert-io/culvert/gpu"
	abi "github.com/culvert-io/culvert/internal/abi/nvme"
	"github.com/culvert-io/culvert/nvme"
)

// An audit is a transport that checks the driver against the specification. It
// sees all mapped memory and all stores to registers.
type audit struct {
	nvme.Transport
	t testing.TB

	mu      sync.Mutex
	stride  uint8
	block   int // size
	regions []*region
	sqs     map[uint16]*ring
	cqs     map[uint16]*ring
	aqa     uint32
	asq     uint64
	acq     uint64
}

// A region is mapped memory.
type region struct {
	pages []uint64
	size  uint64
	mem   []byte // nil for GPU memory
}

// A ring is a submission or a completion queue.
type ring struct {
	base  uint64
	size  uint32
	at    uint32 // tail, or head
	phase bool   // of a completion queue
	out   map[uint16]bool
}

func newAudit(t testing.TB, tr nvme.Transport) *audit {
	a := &audit{Transport: tr, t: t, stride: abi.CAP(tr.Load64(abi.REG_CAP)).DSTRD()}
	a.reset()
	return a
}

func (a *audit) reset() { a.sqs, a.cqs = map[uint16]*ring{}, map[uint16]*ring{} }

func (a *audit) MapHost(b []byte) ([]uint64, uint64, func() error, error) {
	pages, size, unmap, err := a.Transport.MapHost(b)
	return pages, size, a.mapped(pages, size, b, unmap, err), err
}

func (a *audit) MapGPU(s gpu.Span) ([]uint64, uint64, func() error, error) {
	pages, size, unmap, err := a.Transport.MapGPU(s)
	return pages, size, a.mapped(pages, size, nil, unmap, err), err
}

func (a *audit) mapped(pages []uint64, size uint64, mem []byte, unmap func() error, err error) func() error {
	if err != nil {
		return nil
	}
	r := &region{pages, size, mem}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.regions = append(a.regions, r)
	return func() error {
		a.mu.Lock()
		a.regions = slices.DeleteFunc(a.regions, func(x *region) bool { return x == r })
		a.mu.Unlock()
		return unmap()
	}
}

// find is the memory from a bus address to the end of its page.
func (a *audit) find(bus uint64) (mem []byte, left uint64, ok bool) {
	for _, r := range a.regions {
		for i, p := range r.pages {
			if bus < p || bus-p >= r.size {
				continue
			}
			off := bus - p
			if r.mem != nil {
				start := uint64(i)*r.size + off
				mem = r.mem[start:min(uint64(i+1)*r.size, uint64(len(r.mem)))]
			}
			return mem, r.size - off, true
		}
	}
	return nil, 0, false
}

// host is n contiguous bytes of mapped host memory.
func (a *audit) host(what string, bus uint64, n int) []byte {
	mem, _, ok := a.find(bus)
	if !ok || len(mem) < n {
		a.t.Errorf("audit: %s at %#x: %d bytes are not mapped host memory", what, bus, n)
		return make([]byte, n)
	}
	return mem[:n]
}

func (a *audit) Store64(off, v uint64) {
	a.mu.Lock()
	switch off {
	case abi.REG_ASQ:
		a.asq = v
	case abi.REG_ACQ:
		a.acq = v
	}
	a.mu.Unlock()
	a.Transport.Store64(off, v)
}

func (a *audit) Store32(off uint64, v uint32) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case off == abi.REG_AQA:
		a.aqa = v
	case off == abi.REG_CC:
		a.configure(v)
	case off >= abi.REG_SQ0TD:
		a.doorbell(off, v)
	}
	a.Transport.Store32(off, v)
}

// configure handles a store to CC.
func (a *audit) configure(cc uint32) {
	up := a.sqs[0] != nil
	switch {
	case cc&abi.CC_EN == 0:
		a.reset()
	case !up:
		if a.Load32(abi.REG_CSTS)&abi.CSTS_RDY != 0 {
			a.t.Error("audit: controller enabled while CSTS.RDY is set")
		}
		a.sqs[0] = &ring{base: a.asq, size: a.aqa>>abi.AQA_ASQS_SHIFT&abi.AQA_MASK + 1, out: map[uint16]bool{}}
		a.cqs[0] = &ring{base: a.acq, size: a.aqa>>abi.AQA_ACQS_SHIFT&abi.AQA_MASK + 1, phase: true}
	}
}

func (a *audit) doorbell(off uint64, v uint32) {
	i := (off - abi.REG_SQ0TD) / (4 << a.stride)
	q, rings := uint16(i/2), a.sqs
	if i%2 == 1 {
		rings = a.cqs
	}
	r := rings[q]
	csts := a.Load32(abi.REG_CSTS)
	switch {
	case csts&abi.CSTS_RDY == 0:
		a.t.Errorf("audit: doorbell %#x written while CSTS is %#x", off, csts)
	case r == nil:
		a.t.Errorf("audit: doorbell %#x of nonexistent queue %d", off, q)
	case v >= r.size:
		a.t.Errorf("audit: doorbell %#x of a queue of %d entries set to %d", off, r.size, v)
	case i%2 == 0:
		a.submitted(q, r, v)
	default:
		a.consumed(q, r, v)
	}
}

// submitted checks new commands.
func (a *audit) submitted(q uint16, r *ring, tail uint32) {
	for ; r.at != tail; r.at = (r.at + 1) % r.size {
		cmd := commandAt(a.host("command", r.base+uint64(r.at)*abi.CommandSize, abi.CommandSize))
		if r.out[cmd.CID] {
			a.t.Errorf("audit: command id %#x used twice in queue %d", cmd.CID, q)
		}
		r.out[cmd.CID] = true
		if q == 0 {
			a.admin(&cmd)
		} else {
			a.data(&cmd)
		}
	}
	if len(r.out) > int(r.size)-1 {
		a.t.Errorf("audit: %d commands in flight in a queue of %d entries", len(r.out), r.size)
	}
}

// consumed checks completions that the driver has taken.
func (a *audit) consumed(q uint16, r *ring, head uint32) {
	for r.at != head {
		dw3 := dw3At(a.host("completion", r.base+uint64(r.at)*abi.CompletionSize, abi.CompletionSize))
		if abi.Phase(dw3) != r.phase {
			a.t.Errorf("audit: completion of queue %d taken before it was written", q)
		}
		if sq := a.sqs[q]; sq != nil {
			delete(sq.out, abi.CID(dw3))
		}
		if r.at++; r.at == r.size {
			r.at, r.phase = 0, !r.phase
		}
	}
}

// admin tracks the creation and deletion of queues.
func (a *audit) admin(cmd *abi.Command) {
	id, size := uint16(cmd.CDW10), cmd.CDW10>>abi.QUEUE_SIZE_SHIFT+1
	switch cmd.Opcode {
	case abi.ADMIN_CREATE_CQ:
		a.cqs[id] = &ring{base: cmd.PRP1, size: size, phase: true}
		a.host("completion queue", cmd.PRP1, min(4096, int(size)*abi.CompletionSize))
	case abi.ADMIN_CREATE_SQ:
		if a.cqs[uint16(cmd.CDW11>>abi.SQ_CQID_SHIFT)] == nil {
			a.t.Error("audit: submission queue created before its completion queue")
		}
		a.sqs[id] = &ring{base: cmd.PRP1, size: size, out: map[uint16]bool{}}
		a.host("submission queue", cmd.PRP1, min(4096, int(size)*abi.CommandSize))
	case abi.ADMIN_DELETE_SQ:
		delete(a.sqs, id)
	case abi.ADMIN_DELETE_CQ:
		if a.sqs[id] != nil {
			a.t.Error("audit: completion queue deleted before its submission queue")
		}
		delete(a.cqs, id)
	}
}

// data checks the PRPs of a command.
func (a *audit) data(cmd *abi.Command) {
	if cmd.Opcode != abi.NVM_READ && cmd.Opcode != abi.NVM_WRITE {
		return
	}
	seen := map[uint64]bool{}
	n := (int(cmd.CDW12&0xffff) + 1) * a.block
	page := func(prp uint64, first bool) {
		off := int(prp % 4096)
		_, left, ok := a.find(prp)
		k := min(n, 4096-off)
		switch {
		case off != 0 && !first:
			a.t.Errorf("audit: PRP %#x is not page-aligned", prp)
		case !ok || uint64(k) > left:
			a.t.Errorf("audit: PRP %#x with %d bytes is outside mapped memory", prp, k)
		case seen[prp]:
			a.t.Errorf("audit: PRP %#x used twice", prp)
		}
		seen[prp] = true
		n -= k
	}
	page(cmd.PRP1, true)
	switch {
	case n == 0:
		return
	case n <= 4096:
		page(cmd.PRP2, false)
		return
	}
	for list := cmd.PRP2; n > 0; {
		room := (4096 - int(list%4096)) / 8
		entries := min((n+4095)/4096, room)
		mem := a.host("PRP list", list, entries*8)
		entry := func(i int) uint64 { return binary.LittleEndian.Uint64(mem[8*i:]) }
		more := n > entries*4096
		if more {
			entries--
		}
		for i := range entries {
			page(entry(i), false)
		}
		if more {
			list = entry(entries)
			if list%4096 != 0 {
				a.t.Errorf("audit: next PRP list at %#x is not page-aligned", list)
				return
			}
		}
	}
}
