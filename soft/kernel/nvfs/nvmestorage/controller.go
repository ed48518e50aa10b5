package nvmestorage

import (
	"fmt"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	abi "github.com/culvert-io/culvert/internal/abi/nvme"
	"github.com/culvert-io/culvert/soft/block"
	"github.com/culvert-io/culvert/soft/kernel/nvfs"
	"github.com/culvert-io/culvert/soft/nvme"
	"github.com/culvert-io/culvert/soft/nvme/dma"
	"github.com/culvert-io/culvert/soft/pcie"
)

const (
	queuePairs = 16 // requests in flight at a time
	entries    = 2  // of a queue: one command, and the entry that stays empty
	// page is the controller's memory page. It is the GPU's, so that one PRP covers
	// 64 KiB.
	page      = 64 << 10
	mps       = 4 // CC.MPS of page
	blockSize = nvfs.BlockSize
	maximum   = 16 << 20 // bytes of a command: a shadow buffer
	// Each queue and each PRP list begins at a page.
	queuePairSize = 3 * page
)

// A controller is the drive under nvidia-fs, with its queue pairs.
type controller struct {
	*nvme.Controller
	mem  []byte
	dma  *dma.Map
	kill func() error // resets the controller, once
	view *block.View  // of files, through the layers above

	mu       sync.Mutex
	released sync.Cond
	idle     []*queuePair
}

// acquire returns the queue pair that was used last: its memory is in the cache.
func (c *controller) acquire() *queuePair {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.idle) == 0 {
		c.released.Wait()
	}
	n := len(c.idle) - 1
	q := c.idle[n]
	c.idle = c.idle[:n]
	return q
}

func (c *controller) release(q *queuePair) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.idle = append(c.idle, q)
	c.released.Signal()
}

// newController plugs a drive in and enables it.
func newController(fn *pcie.Function, heap bool, view *block.View) (c *controller, err error) {
	c = &controller{view: view}
	c.released.L = &c.mu
	c.kill = sync.OnceValue(func() error { return c.Reset() })
	cfg := nvme.Config{
		Queues: queuePairs, Entries: entries, MaxTransfer: maximum, Heap: heap,
		Workers: 1, // requests run in their callers' threads
	}
	all := make([]*queuePair, queuePairs)
	for i := range all {
		all[i] = &queuePair{c: c, id: uint16(i + 1)}
		cfg.Namespaces = append(cfg.Namespaces, nvme.Namespace{Medium: &all[i].file, BlockSize: blockSize})
	}
	if c.Controller, err = nvme.New(fn, cfg); err != nil {
		return nil, err
	}
	if err := c.bringUp(fn, all); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// bringUp allocates memory for the queues, enables the controller and creates them.
func (c *controller) bringUp(fn *pcie.Function, all []*queuePair) (err error) {
	// The admin queues are one more pair. One page more lets the first queue begin
	// at a page of the controller.
	c.mem, err = unix.Mmap(-1, 0, (queuePairs+1)*queuePairSize+page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return err
	}
	if c.dma, err = dma.Host(fn, c.mem, nil); err != nil {
		return err
	}
	skip := -c.dma.Addrs[0] & (page - 1)
	admin := &queuePair{c: c}
	for i, q := range append([]*queuePair{admin}, all...) {
		at := skip + uint64(i)*queuePairSize
		if err := q.attach(c.mem[at:at+queuePairSize], c.dma.Addrs[0]+at); err != nil {
			return err
		}
	}
	if err := c.enable(admin); err != nil {
		return err
	}
	for _, q := range all {
		if err := q.create(admin); err != nil {
			return err
		}
		c.release(q)
	}
	return nil
}

// enable sets CC.EN and waits for CSTS.RDY.
func (c *controller) enable(admin *queuePair) error {
	const n = entries - 1
	c.Store32(abi.REG_AQA, n<<abi.AQA_ASQS_SHIFT|n<<abi.AQA_ACQS_SHIFT)
	c.Store64(abi.REG_ASQ, admin.sqBus())
	c.Store64(abi.REG_ACQ, admin.cqBus())
	c.Store32(abi.REG_CC, abi.CC_EN|mps<<abi.CC_MPS_SHIFT|abi.SQES<<abi.CC_IOSQES_SHIFT|abi.CQES<<abi.CC_IOCQES_SHIFT)
	limit := time.Duration(abi.CAP(c.Load64(abi.REG_CAP)).TO()) * 500 * time.Millisecond
	for start := time.Now(); c.Load32(abi.REG_CSTS)&(abi.CSTS_RDY|abi.CSTS_CFS) != abi.CSTS_RDY; runtime.Gosched() {
		if s := c.Load32(abi.REG_CSTS); s&abi.CSTS_CFS != 0 || time.Since(start) > limit {
			return fmt.Errorf("enable controller: not ready: CSTS is %#x", s)
		}
	}
	return nil
}

// failed reports whether the controller will never answer.
func (c *controller) failed() bool { return c.Load32(abi.REG_CSTS)&abi.CSTS_CFS != 0 }

// close ends the controller and releases its memory.
func (c *controller) close() {
	_ = c.Controller.Close() // its registers were memory
	if c.dma != nil {
		_ = c.dma.Unmap() // it was mapped here, once
	}
	if c.mem != nil {
		_ = unix.Munmap(c.mem)
	}
}
