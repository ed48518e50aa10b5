package gpumem

import (
	"fmt"
	"io/fs"
	"math"
	"slices"
	"sync"
	"syscall"

	abi "github.com/culvert-io/culvert/internal/abi/gpumem"
	"github.com/culvert-io/culvert/internal/dev"
)

// A Lock is GPU memory that is held in place. It is safe for concurrent use.
type Lock struct {
	c      *Client
	handle uint64
	addr   uint64 // of the first page
	count  uint64

	mu       sync.Mutex
	pages    []uint64
	mappings []*Mapping
	gone     bool
}

// PageSize is the size of a page.
const PageSize = abi.GPU_BOUND_SIZE

// Addr is the GPU address of the first page.
func (l *Lock) Addr() uint64 { return l.addr }

// Handle is the module's name for the lock.
func (l *Lock) Handle() uint64 { return l.handle }

// Len is the number of pages.
func (l *Lock) Len() int { return int(l.count) }

func (l *Lock) fail(op string, err error) error {
	return fmt.Errorf("gpumem %s %d pages at %#x: %w", op, l.count, l.addr, err)
}

// Pages are the physical addresses of the pages, asked for anew each time.
func (l *Lock) Pages() ([]uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.ask(); err != nil {
		return nil, err
	}
	return slices.Clone(l.pages), nil
}

// ask asks the module for the pages and looks at what it says: an unknown
// handle is answered by silence. Call with mu held.
func (l *Lock) ask() error {
	if l.gone {
		return l.fail("state of", fs.ErrClosed)
	}
	size, pages, err := l.state()
	if err != nil {
		return l.fail("state of", err)
	}
	if size == 0 {
		return l.fail("state of", fmt.Errorf("the module does not know the lock any more: %w", syscall.ENOENT))
	}
	if size != PageSize {
		return l.fail("state of", fmt.Errorf("pages of %d bytes: %w", size, syscall.EPROTO))
	}
	for _, p := range pages {
		if p%PageSize != 0 || p > math.MaxInt64-PageSize {
			return l.fail("state of", fmt.Errorf("a page at %#x: %w", p, syscall.EPROTO))
		}
	}
	l.pages = pages
	return nil
}

// Map maps page i.
func (l *Lock) Map(i, prot int) (*Mapping, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i < 0 || i >= l.Len() {
		return nil, l.fail("map", fmt.Errorf("page %d: %w", i, syscall.EINVAL))
	}
	if err := l.ask(); err != nil {
		return nil, err
	}
	m, err := l.c.node.Mmap(int64(l.pages[i]), PageSize, prot)
	if err != nil {
		return nil, l.fail(fmt.Sprintf("map page %d of", i), err)
	}
	out := &Mapping{Mapping: m, l: l}
	l.mappings = append(l.mappings, out)
	return out, nil
}

// A Mapping is a page in the process's address space.
type Mapping struct {
	dev.Mapping
	l *Lock
}

// Unmap gives the addresses back. A second call does nothing.
func (m *Mapping) Unmap() error {
	m.l.mu.Lock()
	defer m.l.mu.Unlock()
	if err := m.Mapping.Unmap(); err != nil {
		return m.l.fail("unmap a page of", err)
	}
	m.l.mappings = slices.DeleteFunc(m.l.mappings, func(x *Mapping) bool { return x == m })
	return nil
}

// Unlock unmaps what is mapped and lets the memory go. A second call is
// fs.ErrClosed. What cannot be unmapped stays locked: its addresses must not
// lead to somebody else's memory.
func (l *Lock) Unlock() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.gone {
		return l.fail("unlock", fs.ErrClosed)
	}
	for len(l.mappings) > 0 {
		if err := l.mappings[0].Mapping.Unmap(); err != nil {
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
