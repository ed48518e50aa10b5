package nvme

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	abi "github.com/culvert-io/culvert/internal/abi/nvme"
)

// maxQueues is how many I/O queue pairs the driver uses at most.
const maxQueues = 64

// adminDepth makes admin queues that fit into a page.
const adminDepth = 31

// A Controller is an NVMe controller that is up. It is safe for concurrent use.
type Controller struct {
	t           Transport
	cfg         Config
	epoch       time.Time
	cap         abi.CAP
	info        Info
	maxTransfer int
	namespaces  []*Namespace
	limit       int // I/O queue pairs that the controller grants

	resetting sync.Mutex
	halted    bool // stopped, and not up again; guarded by resetting
	shared    []*Queue
	gpuQueue  *GPUQueue     // the one there is; guarded by resetting
	turn      atomic.Uint32 // which of shared is next
	gen       atomic.Uint64 // counts resets; written with resetting held

	bufMu   sync.Mutex
	buffers map[*Buffer]bool // nil when closed
	reached map[int]bool     // GPUs whose memory the drive reaches

	pageMu sync.Mutex // held while page is in use
	page   *Buffer    // for data of admin commands

	mu     sync.Mutex
	admin  *Queue
	queues map[uint16]*Queue
	taken  [maxQueues + 1]bool // ids
	dead   error

	spare shelf
}

// Info describes a controller.
type Info struct {
	Name        string `json:"name"` // PCI address
	Serial      string `json:"serial"`
	Model       string `json:"model"`
	Firmware    string `json:"firmware"`
	Version     string `json:"version"`      // of the specification
	MaxTransfer int    `json:"max_transfer"` // bytes of one command
	MaxEntries  int    `json:"max_entries"`  // of a queue
	Queues      int    `json:"queues"`       // I/O queue pairs
	WriteCache  bool   `json:"write_cache"`  // volatile: Flush makes writes durable
}

// Open resets the controller, brings it up and finds its namespaces. The
// transport is closed by Close, or here when Open fails.
func Open(t Transport, cfg Config) (*Controller, error) {
	c := &Controller{t: t, epoch: time.Now(), buffers: map[*Buffer]bool{}, reached: map[int]bool{}, queues: map[uint16]*Queue{}}
	err := c.open(cfg)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("nvme %s: open: %w", t.Name(), err), c.Close())
	}
	return c, nil
}

func (c *Controller) open(cfg Config) (err error) {
	if c.cfg, err = cfg.withDefaults(); err != nil {
		return err
	}
	if err := c.readCAP(); err != nil {
		return err
	}
	if err := c.disable(); err != nil {
		return err
	}
	if c.page, err = c.AllocHost(pageSize); err != nil {
		return err
	}
	c.maxTransfer = c.cfg.MaxTransfer
	if c.admin, err = c.newQueue(0, min(adminDepth, int(c.cap.MQES()))); err != nil {
		return err
	}
	c.admin.irq = c.interrupt(0)
	if err := c.enable(); err != nil {
		return err
	}
	if err := c.identify(); err != nil {
		return err
	}
	c.lock()
	c.limit, err = c.grant()
	c.unlock()
	if err != nil {
		return err
	}
	c.info.Queues = c.limit
	for range min(c.cfg.Queues, c.limit) {
		q, err := c.NewQueue(c.cfg.Depth)
		if err != nil {
			return err
		}
		c.shared = append(c.shared, q)
	}
	return nil
}

// identify asks the controller what it is, and what it has.
func (c *Controller) identify() error {
	id, err := identify[abi.IdentifyController](c, "identify controller", abi.CNS_CONTROLLER, 0)
	if err != nil {
		return err
	}
	if s := id.SQES & 0xf; s > abi.SQES || id.SQES>>4 < abi.SQES {
		return fmt.Errorf("submission queue entries of 64 bytes are not supported (SQES %#x)", id.SQES)
	}
	if s := id.CQES & 0xf; s > abi.CQES || id.CQES>>4 < abi.CQES {
		return fmt.Errorf("completion queue entries of 16 bytes are not supported (CQES %#x)", id.CQES)
	}
	if id.MDTS > 0 && id.MDTS < 20 {
		c.maxTransfer = min(c.maxTransfer, pageSize<<id.MDTS)
	}
	vs := c.t.Load32(abi.REG_VS)
	c.info = Info{
		Name: c.t.Name(), Serial: text(id.SN[:]), Model: text(id.MN[:]), Firmware: text(id.FR[:]),
		Version: fmt.Sprintf("%d.%d.%d", vs>>16, vs>>8&0xff, vs&0xff), MaxTransfer: c.maxTransfer,
		MaxEntries: int(c.cap.MQES()) + 1, WriteCache: id.VWC&1 != 0,
	}
	return c.findNamespaces()
}

// text is a field of printable characters, padded with spaces.
func text(b []byte) string {
	return string(bytes.TrimSpace(bytes.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return -1
		}
		return r
	}, b)))
}

// Name is the controller's PCI address.
func (c *Controller) Name() string { return c.t.Name() }

// Info describes the controller.
func (c *Controller) Info() Info { return c.info }

// Namespaces are those that the controller has active, by id.
func (c *Controller) Namespaces() []*Namespace { return c.namespaces }

func (c *Controller) now() time.Duration { return time.Since(c.epoch) }

func (c *Controller) lookEvery() time.Duration { return min(lookEvery, c.cfg.Timeout/4) }

// interrupt is the channel of a vector, or nil when the queue is to be polled.
func (c *Controller) interrupt(vector int) <-chan struct{} {
	if c.cfg.Poll {
		return nil
	}
	ch, err := c.t.Interrupt(vector)
	if err != nil {
		return nil
	}
	return ch
}

// takeID finds a number for a queue pair.
func (c *Controller) takeID() (uint16, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead != nil {
		return 0, fmt.Errorf("nvme %s: new queue: %w", c.Name(), c.dead)
	}
	for id := 1; id <= c.limit; id++ {
		if !c.taken[id] {
			c.taken[id] = true
			return uint16(id), nil
		}
	}
	return 0, fmt.Errorf("nvme %s: all %d queue pairs of the controller are in use", c.Name(), c.limit)
}

func (c *Controller) dropID(id uint16) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.taken[id] = false
}

// Close shuts the controller down, answers what is in flight, unmaps the
// buffers that are left and closes the transport.
func (c *Controller) Close() error {
	c.lock()
	defer c.unlock()
	var errs []error
	if c.admin != nil {
		if errors.Is(c.Err(), ErrClosed) {
			return fmt.Errorf("nvme %s: %w", c.Name(), ErrClosed)
		}
		if c.gpuQueue != nil {
			errs = append(errs, c.gpuQueue.close(ErrClosed))
		}
		for _, q := range c.all()[1:] {
			q.kill(ErrClosed)
			if c.Err() == nil && !c.halted {
				errs = append(errs, c.remove(q))
			}
		}
		errs = append(errs, c.shutdown())
		c.halt(ErrClosed)
		c.bury(ErrClosed)
	}
	return errors.Join(append(errs, c.freeAll(), c.t.Close())...)
}

// freeAll lets all mapped memory go.
func (c *Controller) freeAll() error {
	c.bufMu.Lock()
	list := c.buffers
	c.buffers = nil
	for b := range list {
		b.closed = true
	}
	c.bufMu.Unlock()
	var errs []error
	for b := range list {
		if err := b.release(); !errors.Is(err, ErrRevoked) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// do carries out an admin command and returns dword 0 of its completion. held
// says that the caller holds resetting.
func (c *Controller) do(ctx context.Context, what string, cmd *abi.Command, held bool) (uint32, error) {
	r := &Request{Op: opAdmin, admin: cmd, what: what}
	if held && c.halted {
		return 0, r.fail(c, ErrReset) // only the caller can bring it up again
	}
	if err := c.admin.submit(ctx, r); err != nil {
		return 0, err
	}
	err := c.admin.wait(ctx, r, held)
	return r.result, err
}
