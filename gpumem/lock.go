package gpumem

import (
	"fmt"
	"io/fs"
	"math"
	"slices"
	"sync"
	"syscall"

	"github.com/culvert-io/culvert/gpu"
	abi "github.com/culvert-io/culvert/internal/abi/gpumem"
	"github.com/culvert-io/culvert/internal/dev"
)

// A Lock is pinned GPU memory. It is safe for concurrent use.
type Lock struct {
	c      *Client
	handle uint64
	addr   gpu.Addr // of the first page
	count  uint64

	mu       sync.Mutex
	pages    []uint64
	mappings []*Mapping
	gone     bool
}

// PageSize is the size of a page.
const PageSize = abi.GPU_BOUND_SIZE

// Addr returns the GPU address of the first page.
func (l *Lock) Addr() gpu.Addr { return l.addr }

// Handle returns the module's number of the lock.
func (l *Lock) Handle() uint64 { return l.handle }

// Len returns the number of pages.
func (l *Lock) Len() int { return int(l.count) }

func (l *Lock) fail(op string, err error) error {
	return fmt.Errorf("gpumem: %s %d pages at %v: %w", op, l.count, l.addr, err)
}

// Pages asks the module for the physical addresses of the pages.
func (l *Lock) Pages() ([]uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.ask(); err != nil {
		return nil, err
	}
	return slices.Clone(l.pages), nil
}

// ask requests the pages and checks them: the module answers nothing for an unknown
// handle. Call with mu held.
func (l *Lock) ask() error {
	if l.gone {
		return l.fail("state of", fs.ErrClosed)
	}
	size, pages, err := l.state()
	if err != nil {
		return l.fail("state of", err)
	}
	if size == 0 {
		return l.fail("state of", fmt.Errorf("module does not know the lock: %w", syscall.ENOENT))
	}
	if size != PageSize {
		return l.fail("state of", fmt.Errorf("page size %d must be 65536: %w", size, syscall.EPROTO))
	}
	for _, p := range pages {
		if p%PageSize != 0 || p > math.MaxInt64-PageSize {
			return l.fail("state of", fmt.Errorf("invalid page address %#x: %w", p, syscall.EPROTO))
		}
	}
	l.pages = pages
	return nil
}

// Map maps page i for reading and writing.
func (l *Lock) Map(i int) (*Mapping, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i < 0 || i >= l.Len() {
		return nil, l.fail("map", fmt.Errorf("page %d must be less than %d: %w", i, l.count, syscall.EINVAL))
	}
	if err := l.ask(); err != nil {
		return nil, err
	}
	m, err := l.c.node.Mmap(int64(l.pages[i]), PageSize, syscall.PROT_READ|syscall.PROT_WRITE)
	if err != nil {
		return nil, l.fail(fmt.Sprintf("map page %d of", i), err)
	}
	out := &Mapping{m: m, l: l}
	l.mappings = append(l.mappings, out)
	return out, nil
}

// A Mapping is a page in the process's address space.
type Mapping struct {
	m dev.Mapping
	l *Lock
}

// Bytes returns the page's memory, valid until Unmap.
func (m *Mapping) Bytes() []byte { return dev.Bytes(m.m) }

// Unmap removes the mapping. A second call does nothing.
func (m *Mapping) Unmap() error {
	m.l.mu.Lock()
	defer m.l.mu.Unlock()
	if err := m.m.Unmap(); err != nil {
		return m.l.fail("unmap a page of", err)
	}
	m.l.mappings = slices.DeleteFunc(m.l.mappings, func(x *Mapping) bool { return x == m })
	return nil
}

// Unlock unmaps the pages and unpins the memory. A second call returns fs.ErrClosed.
// Memory that cannot be unmapped stays locked, so that a stale mapping never shows
// memory of another owner.
func (l *Lock) Unlock() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.gone {
		return l.fail("unlock", fs.ErrClosed)
	}
	for len(l.mappings) > 0 {
		if err := l.mappings[0].m.Unmap(); err != nil {
			return l.fail("unmap a page of", err)
		}
		l.mappings = l.mappings[1:]
	}
	l.gone = true
	l.c.locks.Forget(l)
	if err := l.unlock(); err != nil {
		return l.fail("unlock", err)
	}
	return nil
}
