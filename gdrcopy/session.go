package gdrcopy

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/machine"
)

// A Session is GDRCopy's gdr_t. It is safe for concurrent use.
type Session struct {
	backend  backend
	declined string

	mu      sync.Mutex
	buffers map[*Buffer]struct{} // pinned
	closed  bool
}

// SessionInfo tells how a session reaches GPU memory.
type SessionInfo struct {
	Backend string `json:"backend"`
	// Module is the version of GDRCopy's module, {0, 0} if the session does without it.
	Module [2]int `json:"module"`
	// Persistent is set if pinned memory stays until it is unpinned, also if it is freed.
	Persistent bool `json:"persistent"`
	// Declined is why Open did not use GDRCopy's module.
	Declined string `json:"declined,omitempty"`
}

// Open opens a session for memory of d, a GPU of m. It uses GDRCopy's kernel
// module if that is loaded and answers, else the GPU's driver.
func Open(m *machine.Machine, d gpu.Device) (*Session, error) {
	mod, declined := newModule(dev.Of(m))
	if declined == nil {
		return newSession(mod), nil
	}
	b, err := newBAR(d, dev.Of(m))
	if err != nil {
		return nil, fmt.Errorf("gdrcopy: open gpu %d: neither gdrdrv nor the driver maps its memory: %w", d.Info().Index, errors.Join(declined, err))
	}
	s := newSession(b)
	s.declined = declined.Error()
	return s, nil
}

// OpenModule opens a session on GDRCopy's kernel module, for memory of all GPUs of m. It
// opens no GPU.
func OpenModule(m *machine.Machine) (*Session, error) {
	mod, err := newModule(dev.Of(m))
	if err != nil {
		return nil, fmt.Errorf("gdrcopy: open: %w", err)
	}
	return newSession(mod), nil
}

// newSession returns a session on a backend and takes it over.
func newSession(b backend) *Session {
	return &Session{backend: b, buffers: map[*Buffer]struct{}{}}
}

// Info returns the backend of the session.
func (s *Session) Info() SessionInfo {
	i := s.backend.Describe()
	i.Declined = s.declined
	return i
}

// Pin pins n bytes from a. The same memory may be pinned more than once.
func (s *Session) Pin(a gpu.Addr, n uint64) (*Buffer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, fmt.Errorf("gdrcopy: pin %d bytes at %v: %w", n, a, os.ErrClosed)
	}
	p, err := s.backend.Pin(a, n)
	if err != nil {
		return nil, fmt.Errorf("gdrcopy: pin %d bytes at %v: %w", n, a, err)
	}
	b := &Buffer{s: s, pin: p, addr: a, size: n}
	s.buffers[b] = struct{}{}
	return b, nil
}

// Close unmaps and unpins all buffers. A second call does nothing.
func (s *Session) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	list := slices.Collect(maps.Keys(s.buffers))
	s.mu.Unlock()
	var errs []error
	for _, b := range list {
		errs = append(errs, b.Unpin())
	}
	return errors.Join(append(errs, s.backend.Close())...)
}

func (s *Session) forget(b *Buffer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.buffers, b)
}
