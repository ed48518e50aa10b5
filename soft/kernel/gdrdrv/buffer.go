package gdrdrv

import (
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	abi "github.com/culvert-io/culvert/internal/abi/gdrdrv"
	"github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/soft/kernel"
	"github.com/culvert-io/culvert/soft/kernel/p2p"
)

// tscKHz is the clock in which the module reports how long a pin took: here a cycle
// is a nanosecond.
const tscKHz = 1_000_000

// A buffer is pinned memory of a file.
type buffer struct {
	f      *File
	id     uint64 // for sync points
	handle uint64
	va     uint64 // of the first page
	offset uint64 // of the requested address in it
	size   uint64 // in whole pages
	took   time.Duration

	mu      sync.Mutex
	table   *p2p.PageTable // nil if the memory was freed
	mapping *mapping
	revoked bool
}

// A mapping is a buffer in the process's address space.
type mapping struct {
	*p2p.VMA
	b *buffer
}

var _ kernel.Mapping = (*mapping)(nil)

// pinRange returns the whole pages around a request.
func pinRange(addr, size uint64) (start, n uint64, err error) {
	if addr == 0 || addr+size < addr || addr+size > -abi.GPU_PAGE_SIZE&(1<<64-1) {
		return 0, 0, syscall.EINVAL
	}
	start = addr &^ (abi.GPU_PAGE_SIZE - 1)
	end := (addr + size + abi.GPU_PAGE_SIZE - 1) &^ (abi.GPU_PAGE_SIZE - 1)
	return start, end - start, nil
}

// pin pins memory and assigns a handle.
func (f *File) pin(addr, size, token uint64, space, flags uint32) (*buffer, error) {
	rm, callback := f.m.cfg.RM, f.m.cfg.Callback
	if flags&^abi.GDRDRV_PIN_FLAG_FORCE_PCIE != 0 || callback && flags != 0 || !callback && (token != 0 || space != 0) {
		return nil, syscall.EINVAL
	}
	start, n, err := pinRange(addr, size)
	if err != nil {
		return nil, err
	}
	b := &buffer{f: f, id: f.m.lastID.Add(1), va: start, offset: addr - start, size: n}
	task := f.owner.Task()
	began := time.Now()
	var table *p2p.PageTable
	if callback {
		table, err = rm.GetPages(task, start, n, b.lost)
	} else {
		table, err = rm.GetPagesPersistent(task, start, n, flags)
	}
	if err != nil {
		return nil, err
	}
	b.took = time.Since(began)
	f.m.pins.Add(1)
	b.keep(table)
	f.m.cfg.Points.At("gdrdrv.pinned", b.id)
	if err := f.add(b); err != nil {
		_ = b.unpin() // the first error is reported
		return nil, err
	}
	return b, nil
}

// keep stores the table, unless the callback was first.
func (b *buffer) keep(t *p2p.PageTable) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.revoked {
		b.table = t
	}
}

// lost is the free callback.
func (b *buffer) lost(*p2p.Task, *p2p.PageTable) {
	b.f.m.cfg.Points.At("gdrdrv.callback", b.id)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.revoked = true
	b.zap()
	b.table = nil
}

// zap revokes the mapping, if any. Call with mu held.
func (b *buffer) zap() {
	if b.mapping != nil {
		b.mapping.Zap()
		b.mapping = nil
	}
}

// unpin unpins the memory. It unlocks before it puts the pages: that waits for a
// running callback, which locks.
func (b *buffer) unpin() error {
	rm, points := b.f.m.cfg.RM, b.f.m.cfg.Points
	points.At("gdrdrv.unpin", b.id)
	b.mu.Lock()
	b.zap()
	table := b.table
	b.table = nil
	b.mu.Unlock()
	points.At("gdrdrv.zapped", b.id)
	b.f.m.pins.Add(-1)
	if b.f.m.cfg.Callback {
		return rm.PutPages(b.f.owner.Task(), b.va, table)
	}
	return rm.PutPagesPersistent(b.f.owner.Task(), b.va, table, 0)
}

// mmap maps the first n bytes.
func (b *buffer) mmap(n uint64, prot int) (kernel.Mapping, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mapping != nil || b.revoked || b.table == nil || b.offset != 0 || n > b.size {
		return nil, syscall.EINVAL
	}
	v, err := b.f.m.cfg.RM.Mmap(b.table, 0, n, prot)
	if err != nil {
		return nil, err
	}
	// The module's mappings are not inherited by children.
	if err := unix.Madvise(dev.Bytes(v), unix.MADV_DONTFORK); err != nil {
		_ = v.Unmap() // the first error is reported
		return nil, err
	}
	b.mapping = &mapping{v, b}
	return b.mapping, nil
}

// Unmap removes the mapping. The buffer can then be mapped again.
func (m *mapping) Unmap() error {
	if err := m.VMA.Unmap(); err != nil {
		return err
	}
	m.b.mu.Lock()
	defer m.b.mu.Unlock()
	if m.b.mapping == m {
		m.b.mapping = nil
	}
	return nil
}

// mappingType returns that of the current mapping. Call with mu held.
func (b *buffer) mappingType() abi.MappingType {
	if b.mapping == nil {
		return abi.GDR_MAPPING_TYPE_NONE
	}
	return abi.GDR_MAPPING_TYPE_WC
}

// request checks a requested mapping type. A platform has only one.
func (b *buffer) request(t abi.MappingType) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.mapping != nil:
		return syscall.EBUSY
	case t != abi.GDR_MAPPING_TYPE_NONE && t != abi.GDR_MAPPING_TYPE_WC:
		return syscall.EOPNOTSUPP
	}
	return nil
}
