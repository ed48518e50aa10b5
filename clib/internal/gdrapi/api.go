package gdrapi

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/culvert-io/culvert/clib/internal/cmem"
	"github.com/culvert-io/culvert/clib/internal/handle"
	"github.com/culvert-io/culvert/gdrcopy"
	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/machine"
)

// An API answers the calls of a process.
type API struct {
	machine  func() (*machine.Machine, error)
	sessions *handle.Table[*session]
	buffers  *handle.Table[*buffer]
}

// A session is a gdr_t.
type session struct {
	m      *machine.Machine
	module *gdrcopy.Session // nil without gdrdrv

	mu   sync.Mutex
	gpus map[int]*onGPU // without gdrdrv, by number
}

// onGPU is the session of one GPU.
type onGPU struct {
	*gdrcopy.Session
	device gpu.Device
}

// A buffer is a gdr_mh_t.
type buffer struct {
	*gdrcopy.Buffer
	session handle.ID
	addr    gpu.Addr
	base    atomic.Uint64 // of the mapping; 0 if there is none
}

// New returns an API for the GPUs of a machine.
func New(m func() (*machine.Machine, error)) *API {
	return &API{machine: m, sessions: handle.NewTable[*session](0x38), buffers: handle.NewTable[*buffer](0x39)}
}

// Open is gdr_open.
func (a *API) Open() (int64, error) {
	m, err := a.machine()
	if err != nil {
		return -1, errors.Join(syscall.ENODEV, err)
	}
	s := &session{m: m, gpus: map[int]*onGPU{}}
	var declined error
	if s.module, declined = gdrcopy.OpenModule(m); declined != nil {
		if _, err := s.gpu(0); err != nil {
			return -1, errors.Join(syscall.ENODEV, declined, err)
		}
	}
	id, ok := a.sessions.Add(s)
	if !ok {
		return -1, errors.Join(syscall.ENOMEM, s.close())
	}
	return int64(id), nil
}

// gpu returns the session of GPU i.
func (s *session) gpu(i int) (*onGPU, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if g := s.gpus[i]; g != nil {
		return g, nil
	}
	d, err := s.m.GPU.Open(i)
	if err != nil {
		return nil, err
	}
	g, err := gdrcopy.Open(s.m, d)
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	s.gpus[i] = &onGPU{g, d}
	return s.gpus[i], nil
}

// at returns the session for an address.
func (s *session) at(addr gpu.Addr) (*gdrcopy.Session, error) {
	if s.module != nil {
		return s.module, nil
	}
	first, err := s.gpu(0)
	if err != nil {
		return nil, err
	}
	p, err := first.device.Pointer(addr)
	if err != nil {
		return nil, err
	}
	if !p.Kind.OnDevice() {
		return nil, fmt.Errorf("%v is not GPU memory: %w", addr, syscall.EINVAL)
	}
	g, err := s.gpu(p.Device)
	if err != nil {
		return nil, err
	}
	return g.Session, nil
}

func (s *session) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	if s.module != nil {
		errs = append(errs, s.module.Close())
	}
	for i, g := range s.gpus {
		errs = append(errs, g.Close(), g.device.Close())
		delete(s.gpus, i)
	}
	return errors.Join(errs...)
}

// info describes the session.
func (s *session) info() (gdrcopy.SessionInfo, error) {
	if s.module != nil {
		return s.module.Info(), nil
	}
	g, err := s.gpu(0)
	if err != nil {
		return gdrcopy.SessionInfo{}, err
	}
	return g.Info(), nil
}

func (a *API) session(id handle.ID) (*session, error) {
	s, ok := a.sessions.Get(id)
	if !ok {
		return nil, fmt.Errorf("there is no such session: %w", syscall.EINVAL)
	}
	return s, nil
}

// buffer returns pinned memory of a session.
func (a *API) buffer(g, id handle.ID) (*buffer, error) {
	b, err := a.any(id)
	if err == nil && b.session != g {
		return nil, fmt.Errorf("the handle belongs to another session: %w", syscall.EINVAL)
	}
	return b, err
}

// any returns pinned memory of any session.
func (a *API) any(id handle.ID) (*buffer, error) {
	b, ok := a.buffers.Get(id)
	if !ok {
		return nil, fmt.Errorf("there is no such handle: %w", syscall.EINVAL)
	}
	return b, nil
}

// Close is gdr_close.
func (a *API) Close(g handle.ID) error {
	s, ok := a.sessions.Remove(g)
	if !ok {
		return fmt.Errorf("there is no such session: %w", syscall.EINVAL)
	}
	a.buffers.RemoveFunc(func(b *buffer) bool { return b.session == g })
	return s.close()
}

// DriverVersion is gdr_driver_get_version.
func (a *API) DriverVersion(g handle.ID, major, minor cmem.Ptr) error {
	s, err := a.session(g)
	if err != nil {
		return err
	}
	if s.module == nil {
		return fmt.Errorf("the session does without gdrdrv: %w", syscall.EOPNOTSUPP)
	}
	v := s.module.Info().Module
	cmem.Store(major, int32(v[0]))
	return cmem.Answer(minor, int32(v[1]))
}

// Numbers of gdr_attr_t.
const (
	attrPersistent = iota + 1
	attrForcePCIe
	attrDMABuf
)

// Attribute is gdr_get_attribute.
func (a *API) Attribute(g handle.ID, attr int32, out cmem.Ptr) error {
	s, err := a.session(g)
	if err != nil {
		return err
	}
	i, err := s.info()
	if err != nil {
		return err
	}
	on := false
	switch attr {
	case attrPersistent:
		on = i.Persistent
	case attrForcePCIe:
		on = s.module == nil // there it is BAR1 in any case
	case attrDMABuf:
	default:
		return fmt.Errorf("unknown attribute %d: %w", attr, syscall.EINVAL)
	}
	return cmem.Answer(out, boolean(on))
}

func boolean(on bool) int32 {
	if on {
		return 1
	}
	return 0
}
