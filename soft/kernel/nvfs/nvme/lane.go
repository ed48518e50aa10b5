package nvme

import (
	"encoding/binary"
	"syscall"
	"time"

	abi "github.com/culvert-io/culvert/internal/abi/nvme"
	"github.com/culvert-io/culvert/soft/block"
	"github.com/culvert-io/culvert/soft/kernel/nvfs"
	"github.com/culvert-io/culvert/soft/nvme"
	"github.com/culvert-io/culvert/soft/nvme/dma"
	"github.com/culvert-io/culvert/soft/pcie"
)

// A lane is what a request has for itself: a queue pair, a namespace, an interrupt
// and a PRP list.
type lane struct {
	d    *drive
	id   uint16 // of queues, namespace and interrupt
	file block.Guest

	sq, cq, list []byte
	bus          uint64 // of sq, behind which the others lie
	tail, head   int
	phase        bool // of the next completion
	irq          <-chan struct{}
	timer        *time.Timer
	thread       *nvme.Thread

	sg     []nvfs.SG
	ranges []pcie.Range
}

// attach gives the lane its memory and its interrupt.
func (l *lane) attach(mem []byte, bus uint64) (err error) {
	l.sq, l.cq, l.list, l.bus = mem[:page], mem[page:2*page], mem[2*page:], bus
	l.phase = true
	l.timer = time.NewTimer(look)
	l.timer.Stop()
	l.irq, err = l.d.ctrl.Interrupt(int(l.id))
	return err
}

func (l *lane) sqBus() uint64   { return l.bus }
func (l *lane) cqBus() uint64   { return l.bus + page }
func (l *lane) listBus() uint64 { return l.bus + 2*page }

// do gives the drive a command and waits for the answer.
func (l *lane) do(c *abi.Command) error {
	encode(l.sq[l.tail*abi.CommandSize:], c)
	l.tail = (l.tail + 1) % entries
	if l.thread == nil {
		l.thread = l.d.ctrl.Thread()
	}
	l.thread.Ring(l.id, uint32(l.tail))
	return l.await()
}

// encode writes a submission queue entry.
func encode(b []byte, c *abi.Command) {
	le := binary.LittleEndian
	clear(b[:abi.CommandSize])
	b[0] = c.Opcode
	le.PutUint32(b[4:], c.NSID)
	le.PutUint64(b[24:], c.PRP1)
	le.PutUint64(b[32:], c.PRP2)
	le.PutUint32(b[40:], c.CDW10)
	le.PutUint32(b[44:], c.CDW11)
	le.PutUint32(b[48:], c.CDW12)
}

// move has the drive move a request's bytes between its file, from off on, and bus
// addresses. All ranges but the first begin at a page and all but the last end
// with one.
func (l *lane) move(r *nvfs.Request, off int64, ranges []pcie.Range) error {
	l.file.Admit(r.FD)
	c := abi.Command{Opcode: abi.NVM_READ, NSID: uint32(l.id)}
	if r.Write {
		c.Opcode = abi.NVM_WRITE
	}
	n, ok := l.prps(&c, ranges)
	lba := uint64(off) / blockSize
	c.CDW10, c.CDW11, c.CDW12 = uint32(lba), uint32(lba>>32), uint32(n/blockSize-1)
	err := error(syscall.EIO)
	if ok {
		err = l.do(&c)
	}
	if cause := l.file.Dismiss(); err != nil && cause != nil {
		return cause // what the file system says
	}
	return err
}

// prps fills in where the bytes of a command are, and returns how many.
func (l *lane) prps(c *abi.Command, ranges []pcie.Range) (n int, ok bool) {
	for i, g := range ranges {
		last := i == len(ranges)-1
		if i > 0 && g.Bus%page != 0 || !last && (g.Bus+uint64(g.Len))%page != 0 {
			return 0, false
		}
		n += g.Len
		if i > 0 {
			binary.LittleEndian.PutUint64(l.list[(i-1)*8:], g.Bus)
		}
	}
	switch c.PRP1 = ranges[0].Bus; len(ranges) {
	case 1:
	case 2:
		c.PRP2 = ranges[1].Bus
	default:
		c.PRP2 = l.listBus()
	}
	return n, n > 0 && n <= maximum
}

// plain performs a request of ordinary memory, which the drive reaches as it
// reaches any host memory.
func (l *lane) plain(r *nvfs.Request) error {
	mem := nvfs.Memory(r.Pages)
	m, err := dma.Host(l.d.ctrl.Function(), mem, nil)
	if err != nil {
		return err
	}
	defer m.Unmap()
	for done := 0; done < len(mem); {
		bus := m.Addrs[done/dma.HostPage]
		n := min(len(mem)-done, page-int(bus%page))
		l.ranges = append(l.ranges[:0], pcie.Range{Bus: bus, Len: n})
		if err := l.move(r, r.Off+int64(done), l.ranges); err != nil {
			return err
		}
		done += n
	}
	return nil
}
