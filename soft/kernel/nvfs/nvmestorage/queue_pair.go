package nvmestorage

import (
	"encoding/binary"
	"errors"
	"syscall"
	"time"

	abi "github.com/culvert-io/culvert/internal/abi/nvme"
	"github.com/culvert-io/culvert/soft/block"
	"github.com/culvert-io/culvert/soft/kernel/nvfs"
	"github.com/culvert-io/culvert/soft/nvme"
	"github.com/culvert-io/culvert/soft/nvme/dma"
	"github.com/culvert-io/culvert/soft/pcie"
)

// A queuePair belongs to one request at a time, with a namespace, an interrupt and a
// PRP list.
type queuePair struct {
	c    *controller
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

// attach sets the memory and the interrupt.
func (q *queuePair) attach(mem []byte, bus uint64) (err error) {
	q.sq, q.cq, q.list, q.bus = mem[:page], mem[page:2*page], mem[2*page:], bus
	q.phase = true
	q.timer = time.NewTimer(checkInterval)
	q.timer.Stop()
	q.irq, err = q.c.Interrupt(int(q.id))
	return err
}

func (q *queuePair) sqBus() uint64   { return q.bus }
func (q *queuePair) cqBus() uint64   { return q.bus + page }
func (q *queuePair) listBus() uint64 { return q.bus + 2*page }

// do submits a command and waits for its completion.
func (q *queuePair) do(cmd *abi.Command) error {
	encode(q.sq[q.tail*abi.CommandSize:], cmd)
	q.tail = (q.tail + 1) % entries
	if q.thread == nil {
		q.thread = q.c.Thread()
	}
	q.thread.Ring(q.id, uint32(q.tail))
	return q.await()
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

// move moves bytes between the request's file, from off on, and bus addresses. All
// ranges but the first begin at a page, and all but the last end at one.
func (q *queuePair) move(r *nvfs.Request, off int64, ranges []pcie.Range) error {
	q.file.Admit(r.FD, q.c.view)
	c := abi.Command{Opcode: abi.NVM_READ, NSID: uint32(q.id)}
	if r.Write {
		c.Opcode = abi.NVM_WRITE
	}
	n, ok := q.prps(&c, ranges)
	lba := uint64(off) / blockSize
	c.CDW10, c.CDW11, c.CDW12 = uint32(lba), uint32(lba>>32), uint32(n/blockSize-1)
	err := error(syscall.EIO)
	if ok {
		err = q.do(&c)
	}
	if cause := q.file.Dismiss(); err != nil && cause != nil {
		return cause // what the file system reported: a status says less
	}
	return err
}

// prps sets the PRPs of a command and returns its number of bytes.
func (q *queuePair) prps(c *abi.Command, ranges []pcie.Range) (n int, ok bool) {
	for i, g := range ranges {
		last := i == len(ranges)-1
		if i > 0 && g.Bus%page != 0 || !last && (g.Bus+uint64(g.Len))%page != 0 {
			return 0, false
		}
		n += g.Len
		if i > 0 {
			binary.LittleEndian.PutUint64(q.list[(i-1)*8:], g.Bus)
		}
	}
	switch c.PRP1 = ranges[0].Bus; len(ranges) {
	case 1:
	case 2:
		c.PRP2 = ranges[1].Bus
	default:
		c.PRP2 = q.listBus()
	}
	return n, n > 0 && n <= maximum
}

// plain performs a request of ordinary memory, as host memory of the drive.
func (q *queuePair) plain(r *nvfs.Request) error {
	mem := nvfs.Memory(r.Pages)
	m, err := dma.Host(q.c.Function(), mem, nil)
	if err != nil {
		return err
	}
	defer m.Unmap()
	for done := 0; done < len(mem); {
		bus := m.Addrs[done/dma.HostPage]
		n := min(len(mem)-done, page-int(bus%page))
		q.ranges = append(q.ranges[:0], pcie.Range{Bus: bus, Len: n})
		if err := q.move(r, r.Off+int64(done), q.ranges); err != nil {
			return err
		}
		done += n
	}
	return nil
}

// create creates the queues, by commands to the admin queues.
func (q *queuePair) create(admin *queuePair) error {
	cq := abi.CreateCQ(q.id, entries, q.cqBus(), int(q.id))
	sq := abi.CreateSQ(q.id, entries, q.sqBus())
	return errors.Join(admin.do(&cq), admin.do(&sq))
}

const (
	// checkInterval is how often a request that waits checks that the drive works.
	checkInterval = 10 * time.Millisecond
	// timeout is Linux's for a command.
	timeout = 30 * time.Second
)

// await waits for the completion of the command.
func (q *queuePair) await() error {
	for waited := time.Duration(0); ; {
		if q.completed() {
			return BlockError(uint16(q.take()))
		}
		q.timer.Reset(checkInterval)
		select {
		case <-q.irq:
		case <-q.timer.C:
			if waited += checkInterval; waited < timeout && !q.c.failed() {
				continue
			}
			// After the request the drive must not access the file or the memory.
			return errors.Join(syscall.EIO, q.c.kill())
		}
	}
}

// completed checks the phase tag of the next completion.
func (q *queuePair) completed() bool {
	return abi.Phase(binary.LittleEndian.Uint32(q.completion()[12:])) == q.phase
}

func (q *queuePair) completion() []byte { return q.cq[q.head*abi.CompletionSize:][:abi.CompletionSize] }

// take consumes the completion and returns its status.
func (q *queuePair) take() abi.Status {
	s := abi.StatusOf(binary.LittleEndian.Uint32(q.completion()[12:]))
	if q.head = (q.head + 1) % entries; q.head == 0 {
		q.phase = !q.phase
	}
	q.c.Store32(abi.CQHDBL(q.id, 0), uint32(q.head))
	return s
}
