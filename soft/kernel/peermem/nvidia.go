package peermem

import (
	"sync"
	"syscall"

	"github.com/culvert-io/culvert/soft/kernel/p2p"
	"github.com/culvert-io/culvert/soft/pcie"
)

// NVIDIA is nvidia-peermem, the peer client of NVIDIA GPUs.
type NVIDIA struct {
	rm   *p2p.RM
	regs []*Registration
	fail func(site string) bool
}

// NVIDIAConfig says how the module is loaded.
type NVIDIAConfig struct {
	// Callback pins with free callbacks and invalidates (persistent_api_support=0).
	// There are two clients: nv_mem, which invalidates, and nv_mem_nc for
	// registrations that do not support it. Otherwise there is nv_mem only, whose
	// pins outlive the free.
	Callback bool
	// Fail, if not nil, is called at every allocation and can make it fail.
	Fail func(site string) bool
}

// NewNVIDIA loads nvidia-peermem.
func NewNVIDIA(core *Core, rm *p2p.RM, cfg NVIDIAConfig) (*NVIDIA, error) {
	n := &NVIDIA{rm: rm, fail: cfg.Fail}
	err := n.register(core, "nv_mem", !cfg.Callback)
	if err == nil && cfg.Callback {
		err = n.register(core, "nv_mem_nc", true)
	}
	if err != nil {
		n.Close()
		return nil, err
	}
	return n, nil
}

func (n *NVIDIA) register(core *Core, name string, persistent bool) error {
	client := len(n.regs)
	r, err := core.Register(&Client{Name: name, Version: "1.3", Acquire: func(t *p2p.Task, addr, size uint64) Memory {
		return n.acquire(t, addr, size, persistent, client)
	}}, !persistent)
	if err == nil {
		n.regs = append(n.regs, r)
	}
	return err
}

// Close unloads the module. It waits until no memory is registered with it.
func (n *NVIDIA) Close() {
	for _, r := range n.regs {
		r.Unregister()
	}
}

// Clients returns the registrations: nv_mem, and nv_mem_nc if there is one.
func (n *NVIDIA) Clients() []*Registration { return n.regs }

func (n *NVIDIA) fails(site string) bool { return n.fail != nil && n.fail(site) }

// An nvContext is GPU memory of one registration.
type nvContext struct {
	n          *NVIDIA
	client     int // index in NVIDIA.regs
	va, size   uint64
	persistent bool
	ticket     uint64

	mu      sync.Mutex
	table   *p2p.PageTable
	mapping *p2p.DMAMapping
	// callback is the thread that runs the free callback. In this thread only, the
	// driver unmaps and puts the pages.
	callback *p2p.Task
}

// acquire claims what can be pinned. The callback has nothing to do.
func (n *NVIDIA) acquire(t *p2p.Task, addr, size uint64, persistent bool, client int) Memory {
	first := addr &^ (p2p.PageSize - 1)
	end := (addr + size + p2p.PageSize - 1) &^ (p2p.PageSize - 1)
	if n.fails("context") {
		return nil
	}
	table, err := n.rm.GetPages(t, first, end-first, func(*p2p.Task, *p2p.PageTable) {})
	if err != nil || n.rm.PutPages(t, first, table) != nil {
		return nil
	}
	return &nvContext{n: n, client: client, va: first, size: end - first, persistent: persistent}
}

func (x *nvContext) PageSize() uint64  { return p2p.PageSize }
func (x *nvContext) Release(*p2p.Task) {}

func (x *nvContext) GetPages(t *p2p.Task, _, _ bool, ticket uint64) error {
	x.ticket = ticket
	var table *p2p.PageTable
	var err error
	if x.persistent {
		table, err = x.n.rm.GetPagesPersistent(t, x.va, x.size, 0)
	} else {
		table, err = x.n.rm.GetPages(t, x.va, x.size, x.lost)
	}
	if err != nil {
		return err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.table = table
	return nil
}

// lost is the free callback: the core invalidates, and the adapter stops.
func (x *nvContext) lost(t *p2p.Task, _ *p2p.PageTable) {
	x.mu.Lock()
	x.callback = t
	x.mu.Unlock()
	x.n.regs[x.client].Invalidate(t, x.ticket)
	x.mu.Lock()
	defer x.mu.Unlock()
	x.callback = nil
}

// inCallback reports whether t is the thread that runs the callback.
func (x *nvContext) inCallback(t *p2p.Task) bool { return x.callback != nil && x.callback == t }

func (x *nvContext) DMAMap(_ *p2p.Task, dev *pcie.Function) ([]Segment, error) {
	x.mu.Lock()
	table := x.table
	x.mu.Unlock()
	if x.n.fails("sg_alloc_table") {
		return nil, syscall.ENOMEM
	}
	m, err := x.n.rm.DMAMapPages(dev, table)
	if err != nil {
		return nil, err
	}
	x.mu.Lock()
	x.mapping = m
	x.mu.Unlock()
	sg := make([]Segment, len(m.Addresses))
	for i, a := range m.Addresses {
		sg[i] = Segment{a, p2p.PageSize}
	}
	return sg, nil
}

func (x *nvContext) DMAUnmap(t *p2p.Task, dev *pcie.Function, _ []Segment) {
	x.mu.Lock()
	if x.inCallback(t) || x.mapping == nil {
		x.mu.Unlock()
		return
	}
	m, table := x.mapping, x.table
	x.mapping = nil
	x.mu.Unlock()
	_ = x.n.rm.DMAUnmapPages(dev, table, m) // only this thread unmaps it
}

func (x *nvContext) PutPages(t *p2p.Task) {
	x.mu.Lock()
	if x.inCallback(t) || x.table == nil {
		x.mu.Unlock()
		return
	}
	table := x.table
	x.table = nil
	x.mu.Unlock()
	if x.persistent {
		_ = x.n.rm.PutPagesPersistent(t, x.va, table, 0) // only this thread puts the table
		return
	}
	_ = x.n.rm.PutPages(t, x.va, table)
}
