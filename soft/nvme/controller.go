package nvme

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	abi "github.com/culvert-io/culvert/internal/abi/nvme"
	"github.com/culvert-io/culvert/soft/internal/faults"
	"github.com/culvert-io/culvert/soft/internal/gate"
	"github.com/culvert-io/culvert/soft/pcie"
)

// version is that of the specification.
const version = 1<<16 | 4<<8

// A Controller is an emulated drive on the fabric.
type Controller struct {
	fn     *pcie.Function
	dma    pcie.Engine
	cfg    Config
	regs   *registers
	bar    *pcie.Window
	spaces []*namespace

	users   gate.Gate                  // workers; open while the controller is enabled
	ready   chan *subQueue             // queues with a doorbell rung
	sqs     []atomic.Pointer[subQueue] // by id
	cqs     []atomic.Pointer[compQueue]
	vectors []chan struct{}
	page    atomic.Uint64 // size of a memory page, from CC.MPS

	mappings atomic.Int32 // of BAR0
	fatal    atomic.Bool  // until the next reset
	hung     atomic.Bool  // ignores all registers
	stalls   atomic.Int64 // I/O commands to park
	badBlock faults.List[badBlock]
	stats    counters
	tamper   atomic.Pointer[func(Completion) []Completion]
	liar     atomic.Pointer[Liar]
	late     late // the delayed read of a liar

	mu     sync.Mutex
	parked []parked
	queues bool // I/O queues were created since the reset

	wake     chan struct{}
	requests chan func(*manager)
	stop     chan struct{}
	running  sync.WaitGroup
}

// New makes a drive at a function of the fabric.
func New(fn *pcie.Function, cfg Config) (*Controller, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("NVMe controller %s: %w", fn.Name(), err)
	}
	c := &Controller{
		fn: fn, dma: pcie.Engine{Port: fn}, cfg: cfg,
		sqs:     make([]atomic.Pointer[subQueue], cfg.Queues+1),
		cqs:     make([]atomic.Pointer[compQueue], cfg.Queues+1),
		vectors: make([]chan struct{}, cfg.Queues+1),
		ready:   make(chan *subQueue, cfg.Queues+1),
		wake:    make(chan struct{}, 1), requests: make(chan func(*manager)), stop: make(chan struct{}),
	}
	c.users.Shut()
	for i := range c.vectors {
		c.vectors[i] = make(chan struct{}, 1)
	}
	for i, n := range cfg.Namespaces {
		ns, err := newNamespace(n)
		if err != nil {
			return nil, fmt.Errorf("NVMe controller %s: namespace %d: %w", fn.Name(), i+1, err)
		}
		c.spaces = append(c.spaces, ns)
	}
	if c.regs, err = newRegisters(cfg.barSize(), cfg.Heap); err != nil {
		return nil, fmt.Errorf("NVMe controller %s: %w", fn.Name(), err)
	}
	c.identity()
	if c.bar, err = fn.AddBAR(cfg.barSize(), barTarget{c}); err != nil {
		return nil, errors.Join(err, c.regs.close())
	}
	c.running.Go(c.manage)
	for range cfg.Workers {
		c.running.Go(c.work)
	}
	return c, nil
}

// identity writes the constant registers.
func (c *Controller) identity() {
	c.regs.store64(abi.REG_CAP, c.cfg.cap())
	c.regs.store32(abi.REG_VS, version)
}

// Function returns the drive's function.
func (c *Controller) Function() *pcie.Function { return c.fn }

// BAR returns the window through which other devices reach the registers.
func (c *Controller) BAR() *pcie.Window { return c.bar }

// Close stops the controller when the commands in progress have ended.
func (c *Controller) Close() error {
	close(c.stop)
	c.running.Wait()
	c.users.Shut()
	c.bar.Remove()
	return c.regs.close()
}

// die sets CSTS.CFS. Only a reset clears it.
func (c *Controller) die() {
	c.fatal.Store(true)
	c.regs.or32(abi.REG_CSTS, abi.CSTS_CFS)
}

// Interrupt returns a channel that gets a value, unless it has one, when a completion
// queue with this vector gets an entry.
func (c *Controller) Interrupt(vector int) (<-chan struct{}, error) {
	if vector < 0 || vector >= len(c.vectors) {
		return nil, fmt.Errorf("NVMe controller %s: interrupt vector %d must be less than %d", c.fn.Name(), vector, len(c.vectors))
	}
	return c.vectors[vector], nil
}

func (c *Controller) interrupt(vector int) {
	if vector < 0 {
		return
	}
	select {
	case c.vectors[vector] <- struct{}{}:
	default:
	}
}

// counters are those of Stats.
type counters struct{ commands, fetched, listed, posted, in, out atomic.Uint64 }

// Stats are counters since New. Bytes of queues and lists are those that the fabric
// counts in addition to data.
type Stats struct {
	Commands uint64
	Fetched  uint64 // bytes of commands
	Listed   uint64 // bytes of PRP lists
	Posted   uint64 // bytes of completions
	In, Out  uint64 // bytes of data read from memory, and written to it
}

// Stats returns the counters.
func (c *Controller) Stats() Stats {
	s := &c.stats
	return Stats{s.commands.Load(), s.fetched.Load(), s.listed.Load(), s.posted.Load(), s.in.Load(), s.out.Load()}
}
