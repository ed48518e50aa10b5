package kernel

import (
	"io/fs"
	"sync"
	"sync/atomic"

	"github.com/culvert-io/culvert/internal/dev"
)

// A node is an open file. It lives until it is closed and its last mapping is
// unmapped.
type node struct {
	os   *OS
	path string
	file File
	fd   int // constant; Close closes the descriptor

	refs atomic.Int32 // the open file, and each mapping

	mu     sync.RWMutex // held for reading by calls in progress
	closed bool
}

func (n *node) enter() bool {
	n.mu.RLock()
	if n.closed {
		n.mu.RUnlock()
		return false
	}
	return true
}

func (n *node) leave() { n.mu.RUnlock() }

func (n *node) Mmap(off int64, size, prot int) (dev.Mapping, error) {
	if !n.enter() {
		return nil, n.fail("mmap", fs.ErrClosed)
	}
	defer n.leave()
	m, err := n.file.Mmap(off, size, prot)
	if err != nil {
		return nil, n.fail("mmap", err)
	}
	n.refs.Add(1)
	return &mapping{Mapping: m, node: n}, nil
}

func (n *node) Fd() int {
	if !n.enter() {
		return -1
	}
	defer n.leave()
	return n.fd
}

func (n *node) Close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return n.fail("close", fs.ErrClosed)
	}
	n.closed = true
	err := n.os.forget(n)
	n.drop()
	if err != nil {
		return n.fail("close", err)
	}
	return nil
}

func (n *node) drop() {
	if n.refs.Add(-1) == 0 {
		n.file.Release()
	}
}

func (n *node) fail(op string, err error) error {
	return &fs.PathError{Op: op, Path: n.path, Err: err}
}

// A mapping has a reference to its file.
type mapping struct {
	Mapping
	node *node
	once sync.Once
	err  error
}

func (m *mapping) Unmap() error {
	m.once.Do(func() {
		if err := m.Mapping.Unmap(); err != nil {
			m.err = m.node.fail("munmap", err)
			return
		}
		m.node.drop()
	})
	return m.err
}
