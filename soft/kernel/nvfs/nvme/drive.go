package nvme

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	abi "github.com/culvert-io/culvert/internal/abi/nvme"
	"github.com/culvert-io/culvert/soft/kernel/nvfs"
	"github.com/culvert-io/culvert/soft/nvme"
	"github.com/culvert-io/culvert/soft/nvme/dma"
	"github.com/culvert-io/culvert/soft/pcie"
)

const (
	lanes   = 16 // requests under way at a time
	entries = 2  // of a queue: one command, and the entry that stays empty
	// page is the drive's memory page: that of the GPU, so that a PRP stands for
	// 64 KiB.
	page      = 64 << 10
	mps       = 4
	blockSize = nvfs.BlockSize
	maximum   = 16 << 20 // bytes of a command: a shadow buffer
	// Each queue and each PRP list begins at a page.
	laneSize = 3 * page
)

// A drive is an NVMe controller and the queues to it.
type drive struct {
	ctrl *nvme.Controller
	mem  []byte
	dma  *dma.Map
	dead func() error // ends everything, once

	mu   sync.Mutex
	back sync.Cond // a lane has come
	idle []*lane
}

// get takes the lane that was used last: what it keeps is warm.
func (d *drive) get() *lane {
	d.mu.Lock()
	defer d.mu.Unlock()
	for len(d.idle) == 0 {
		d.back.Wait()
	}
	n := len(d.idle) - 1
	l := d.idle[n]
	d.idle = d.idle[:n]
	return l
}

func (d *drive) put(l *lane) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.idle = append(d.idle, l)
	d.back.Signal()
}

// newDrive plugs a drive in and brings it up.
func newDrive(fn *pcie.Function, heap bool) (d *drive, err error) {
	d = &drive{}
	d.back.L = &d.mu
	d.dead = sync.OnceValue(func() error { return d.ctrl.Reset() })
	cfg := nvme.Config{
		Queues: lanes, Entries: entries, MaxTransfer: maximum, Heap: heap,
		Workers: 1, // the lanes bring threads along
	}
	all := make([]*lane, lanes)
	for i := range all {
		all[i] = &lane{d: d, id: uint16(i + 1)}
		cfg.Namespaces = append(cfg.Namespaces, nvme.Namespace{Medium: &all[i].file, BlockSize: blockSize})
	}
	if d.ctrl, err = nvme.New(fn, cfg); err != nil {
		return nil, err
	}
	if err := d.bringUp(fn, all); err != nil {
		d.close()
		return nil, err
	}
	return d, nil
}

// bringUp gives the drive memory for its queues, enables it and creates them.
func (d *drive) bringUp(fn *pcie.Function, all []*lane) (err error) {
	// The admin queues are a lane too. One page more lets the first begin at a page
	// of the drive's.
	d.mem, err = unix.Mmap(-1, 0, (lanes+1)*laneSize+page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return err
	}
	if d.dma, err = dma.Host(fn, d.mem, nil); err != nil {
		return err
	}
	skip := -d.dma.Addrs[0] & (page - 1)
	admin := &lane{d: d}
	for i, l := range append([]*lane{admin}, all...) {
		at := skip + uint64(i)*laneSize
		if err := l.attach(d.mem[at:at+laneSize], d.dma.Addrs[0]+at); err != nil {
			return err
		}
	}
	if err := d.enable(admin); err != nil {
		return err
	}
	for _, l := range all {
		if err := l.create(admin); err != nil {
			return err
		}
		d.put(l)
	}
	return nil
}

// enable sets CC.EN and waits for RDY.
func (d *drive) enable(admin *lane) error {
	c := d.ctrl
	const n = entries - 1
	c.Store32(abi.REG_AQA, n<<abi.AQA_ASQS_SHIFT|n<<abi.AQA_ACQS_SHIFT)
	c.Store64(abi.REG_ASQ, admin.sqBus())
	c.Store64(abi.REG_ACQ, admin.cqBus())
	c.Store32(abi.REG_CC, abi.CC_EN|mps<<abi.CC_MPS_SHIFT|abi.SQES<<abi.CC_IOSQES_SHIFT|abi.CQES<<abi.CC_IOCQES_SHIFT)
	limit := time.Duration(abi.CAP(c.Load64(abi.REG_CAP)).TO()) * 500 * time.Millisecond
	for start := time.Now(); c.Load32(abi.REG_CSTS)&(abi.CSTS_RDY|abi.CSTS_CFS) != abi.CSTS_RDY; runtime.Gosched() {
		if s := c.Load32(abi.REG_CSTS); s&abi.CSTS_CFS != 0 || time.Since(start) > limit {
			return fmt.Errorf("the drive does not become ready: CSTS is %#x", s)
		}
	}
	return nil
}

// gone reports whether the drive will never answer.
func (d *drive) gone() bool { return d.ctrl.Load32(abi.REG_CSTS)&abi.CSTS_CFS != 0 }

// close ends the controller and gives its memory back.
func (d *drive) close() {
	_ = d.ctrl.Close() // its registers were memory
	if d.dma != nil {
		_ = d.dma.Unmap() // it was mapped here, once
	}
	if d.mem != nil {
		_ = unix.Munmap(d.mem)
	}
}

// create makes the lane's queue pair.
func (l *lane) create(admin *lane) error {
	const size = (entries - 1) << abi.QUEUE_SIZE_SHIFT
	id := uint32(l.id)
	return errors.Join(
		admin.do(&abi.Command{
			Opcode: abi.ADMIN_CREATE_CQ, PRP1: l.cqBus(),
			CDW10: size | id, CDW11: abi.QUEUE_PC | abi.CQ_IEN | id<<abi.CQ_IV_SHIFT,
		}),
		admin.do(&abi.Command{
			Opcode: abi.ADMIN_CREATE_SQ, PRP1: l.sqBus(),
			CDW10: size | id, CDW11: abi.QUEUE_PC | id<<abi.SQ_CQID_SHIFT,
		}))
}

const (
	// look is how often a request that waits looks whether the drive is there.
	look = 10 * time.Millisecond
	// patience is how long a command may take, as for Linux.
	patience = 30 * time.Second
)

// await waits for the answer to the one command.
func (l *lane) await() error {
	for waited := time.Duration(0); ; {
		if l.answered() {
			return status(l.take())
		}
		l.timer.Reset(look)
		select {
		case <-l.irq:
		case <-l.timer.C:
			if waited += look; waited < patience && !l.d.gone() {
				continue
			}
			// Nobody may touch the file or the memory when the request has ended.
			return errors.Join(syscall.EIO, l.d.dead())
		}
	}
}

// answered looks at the phase tag of the next completion.
func (l *lane) answered() bool {
	return abi.Phase(binary.LittleEndian.Uint32(l.completion()[12:])) == l.phase
}

func (l *lane) completion() []byte { return l.cq[l.head*abi.CompletionSize:][:abi.CompletionSize] }

// take consumes the completion.
func (l *lane) take() abi.Status {
	s := abi.StatusOf(binary.LittleEndian.Uint32(l.completion()[12:]))
	if l.head = (l.head + 1) % entries; l.head == 0 {
		l.phase = !l.phase
	}
	l.d.ctrl.Store32(abi.CQHDBL(l.id, 0), uint32(l.head))
	return s
}
