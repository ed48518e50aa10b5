package nvme_test

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/culvert-io/culvert/gpu"
	abi "github.com/culvert-io/culvert/internal/abi/nvme"
	"github.com/culvert-io/culvert/nvme"
)

// A liar is a controller that answers every admin command at once, with data
// and results that somebody made up. It has no fabric: bus addresses are those
// of the process.
type liar struct {
	mu   sync.Mutex
	data []byte                              // what Identify gives, over and over again
	fill func(cmd *abi.Command, page []byte) // gives it instead
	next int
	dw0  uint32
	regs map[uint64]uint64
	maps map[uintptr]bool
	head uint32 // of the admin queues
	flip bool
}

func newLiar(data []byte, dw0 uint32, cap uint64) *liar {
	return &liar{data: data, dw0: dw0, regs: map[uint64]uint64{abi.REG_CAP: cap}, maps: map[uintptr]bool{}}
}

func (l *liar) Name() string                           { return "liar" }
func (l *liar) BARSize() uint64                        { return 0x4000 }
func (l *liar) Reset() error                           { return errors.ErrUnsupported }
func (l *liar) Interrupt(int) (<-chan struct{}, error) { return nil, errors.ErrUnsupported }
func (l *liar) Load64(off uint64) uint64               { l.mu.Lock(); defer l.mu.Unlock(); return l.regs[off] }
func (l *liar) Load32(off uint64) uint32               { return uint32(l.Load64(off)) }
func (l *liar) Store64(off, v uint64)                  { l.mu.Lock(); defer l.mu.Unlock(); l.regs[off] = v }

func (l *liar) MapGPU(gpu.Span) ([]uint64, uint64, func() error, error) {
	return nil, 0, nil, errors.ErrUnsupported
}

func (l *liar) Close() error {
	if len(l.maps) > 0 {
		return errors.New("memory is still mapped")
	}
	return nil
}

func (l *liar) MapHost(b []byte) ([]uint64, uint64, func() error, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	base := uintptr(unsafe.Pointer(&b[0]))
	l.maps[base] = true
	var pages []uint64
	for i := 0; i < len(b); i += 4096 {
		pages = append(pages, uint64(base)+uint64(i))
	}
	return pages, 4096, func() error {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.maps, base)
		return nil
	}, nil
}

func at[T any](bus uint64) *T { return *(**T)(unsafe.Pointer(&bus)) }

func (l *liar) Store32(off uint64, v uint32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.regs[off] = uint64(v)
	switch off {
	case abi.REG_CC:
		l.head, l.flip = 0, true
		l.regs[abi.REG_CSTS] = uint64(v & abi.CC_EN)
		if v&abi.CC_SHN_MASK != 0 {
			l.regs[abi.REG_CSTS] |= abi.CSTS_SHST_COMPLETE
		}
	case abi.REG_SQ0TD:
		size := uint32(l.regs[abi.REG_AQA])&abi.AQA_MASK + 1
		for l.head != v%size {
			l.answer(size)
		}
	}
}

func (l *liar) answer(size uint32) {
	cmd := at[abi.Command](l.regs[abi.REG_ASQ] + uint64(l.head)*abi.CommandSize)
	if cmd.Opcode == abi.ADMIN_IDENTIFY {
		l.identify(cmd, unsafe.Slice(at[byte](cmd.PRP1), abi.IdentifySize))
	}
	e := at[abi.Completion](l.regs[abi.REG_ACQ] + uint64(l.head)*abi.CompletionSize)
	e.DW0, e.SQID = l.dw0, 0
	atomic.StoreUint32(&e.DW3, abi.MakeDW3(cmd.CID, l.flip, abi.SUCCESS))
	if l.head++; l.head == size {
		l.head, l.flip = 0, !l.flip
	}
}

func (l *liar) identify(cmd *abi.Command, page []byte) {
	if l.fill != nil {
		l.fill(cmd, page)
		return
	}
	for i := range min(len(page), len(page)*len(l.data)) {
		page[i] = l.data[l.next%len(l.data)]
		l.next++
	}
}

// FuzzOpen opens controllers whose data is made up.
func FuzzOpen(f *testing.F) {
	good := make([]byte, 3*abi.IdentifySize)
	id := (*abi.IdentifyController)(unsafe.Pointer(&good[0]))
	id.SQES, id.CQES, id.NN = 0x66, 0x44, 1
	(*abi.NamespaceList)(unsafe.Pointer(&good[abi.IdentifySize]))[0] = 1
	ns := (*abi.IdentifyNamespace)(unsafe.Pointer(&good[2*abi.IdentifySize]))
	ns.NSZE, ns.LBAF[0].LBADS = 1000, 9
	const cap = 1023 | abi.CAP_CSS_NVM
	f.Add(good, uint32(7<<16|7), uint64(cap))
	f.Add(good, uint32(0), uint64(1|abi.CAP_CSS_NVM))
	f.Add(good, uint32(1<<32-1), uint64(0xffff|abi.CAP_CSS_NVM|9<<abi.CAP_DSTRD_SHIFT))
	f.Add([]byte{0xff}, uint32(1<<32-1), uint64(cap))
	f.Add([]byte{}, uint32(0), uint64(cap))
	f.Fuzz(func(t *testing.T, data []byte, dw0 uint32, cap uint64) {
		c, err := nvme.Open(newLiar(data, dw0, cap), nvme.Config{Timeout: time.Minute, Depth: 3})
		if err != nil {
			return
		}
		for _, n := range c.Namespaces() {
			if s := n.BlockSize(); s < 512 || s > c.Info().MaxTransfer || n.Blocks() > 1<<63/uint64(s) {
				t.Errorf("namespace %d: %d blocks of %d bytes", n.ID(), n.Blocks(), s)
			}
		}
		if i := c.Info(); i.Queues < 1 || i.MaxTransfer < 4096 {
			t.Errorf("%+v", i)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestNamespacesWithoutEnd lists one namespace after the other.
func TestNamespacesWithoutEnd(t *testing.T) {
	l := newLiar(nil, 0, 1023|abi.CAP_CSS_NVM)
	l.fill = func(cmd *abi.Command, page []byte) {
		switch cmd.CDW10 {
		case abi.CNS_CONTROLLER:
			id := (*abi.IdentifyController)(unsafe.Pointer(&page[0]))
			id.SQES, id.CQES = 0x66, 0x44
		case abi.CNS_ACTIVE_NAMESPACE:
			for i := range (*abi.NamespaceList)(unsafe.Pointer(&page[0])) {
				(*abi.NamespaceList)(unsafe.Pointer(&page[0]))[i] = cmd.NSID + uint32(i) + 1
			}
		}
	}
	if _, err := nvme.Open(l, nvme.Config{}); err == nil {
		t.Error("a controller with namespaces without end was opened")
	}
}
