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

// maxQueues is the largest number of I/O queue pairs that the driver uses.
const maxQueues = 64

// adminDepth makes admin queues that fit into one page.
const adminDepth = 31

// A Controller is an enabled NVMe controller. It is safe for concurrent use.
type Controller struct {
	t           Transport
	cfg         Config
	epoch       time.Time
	cap         abi.CAP
	info        Info
	maxTransfer int
	namespaces  []*Namespace
	limit       int // I/O queue pairs that the controller granted

	resetting sync.Mutex
	halted    bool // stopped and not reinitialized; guarded by resetting
	shared    []*Queue
	gpuQueue  *GPUQueue     // nil if there is none; guarded by resetting
	turn      atomic.Uint32 // index of the next shared queue
	gen       atomic.Uint64 // counts resets; written with resetting held

	bufMu   sync.Mutex
	buffers map[*Buffer]bool // nil if closed
	reached map[int]bool     // GPUs whose memory the drive can reach

	pageMu sync.Mutex
	page   *Buffer // for data of admin commands; guarded by pageMu

	mu     sync.Mutex
	admin  *Queue
	queues map[uint16]*Queue
	taken  [maxQueues + 1]bool // queue ids in use
	dead   error

	spare *requestPool
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
	WriteCache  bool   `json:"write_cache"`  // volatile write cache: Flush makes writes durable
}

// Open resets and enables the controller and finds its namespaces. Close closes
// the transport; so does Open if it fails.
func Open(t Transport, cfg Config) (*Controller, error) {
	c := &Controller{t: t, epoch: time.Now(), buffers: map[*Buffer]bool{}, reached: map[int]bool{}, queues: map[uint16]*Queue{}, spare: newRequestPool()}
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

// identify reads the controller's Identify data and finds its namespaces.
func (c *Controller) identify() error {
	id, err := identify[abi.IdentifyController](c, "identify controller", abi.CNS_CONTROLLER, 0)
	if err != nil {
		return err
	}
	if s := id.SQES & 0xf; s > abi.SQES || id.SQES>>4 < abi.SQES {
		return fmt.Errorf("controller does not support submission queue entries of 64 bytes (SQES %#x)", id.SQES)
	}
	if s := id.CQES & 0xf; s > abi.CQES || id.CQES>>4 < abi.CQES {
		return fmt.Errorf("controller does not support completion queue entries of 16 bytes (CQES %#x)", id.CQES)
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

// text is the printable part of a field that is padded with spaces.
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

// Namespaces are the active namespaces, by id.
func (c *Controller) Namespaces() []*Namespace { return c.namespaces }

func (c *Controller) now() time.Duration { return time.Since(c.epoch) }

func (c *Controller) healthInterval() time.Duration { return min(healthInterval, c.cfg.Timeout/4) }

// interrupt is the channel of a vector, or nil if the queue must be polled.
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

// allocID allocates the id of a queue pair.
func (c *Controller) allocID() (uint16, error) {
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
	return 0, fmt.Errorf("nvme %s: new queue: all %d queue pairs of the controller are in use", c.Name(), c.limit)
}

func (c *Controller) freeID(id uint16) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.taken[id] = false
}

// Close shuts the controller down, ends the requests in flight with ErrClosed,
// unmaps all buffers and closes the transport.
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
			q.rejectSubmits(ErrClosed)
			if c.Err() == nil && !c.halted {
				errs = append(errs, c.remove(q))
			}
		}
		errs = append(errs, c.shutdown())
		c.halt(ErrClosed)
		c.markDead(ErrClosed)
	}
	return errors.Join(append(errs, c.freeAll(), c.t.Close())...)
}

// freeAll unmaps and frees all buffers.
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
		if err := b.dispose(); !errors.Is(err, ErrRevoked) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// do runs an admin command and returns dword 0 of its completion. held means
// that the caller holds resetting.
func (c *Controller) do(ctx context.Context, what string, cmd *abi.Command, held bool) (uint32, error) {
	r := &Request{Op: opAdmin, admin: cmd, what: what}
	if held && c.halted {
		return 0, r.fail(c, ErrReset) // the caller has to reinitialize it
	}
	if err := c.admin.submit(ctx, r); err != nil {
		return 0, err
	}
	err := c.admin.wait(ctx, r, held)
	return r.result, err
}
