package nvmerdma

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"

	abi "github.com/culvert-io/culvert/internal/abi/nvme"
	"github.com/culvert-io/culvert/soft/kernel/nvfs"
	"github.com/culvert-io/culvert/soft/kernel/nvfs/nvmestorage"
	"github.com/culvert-io/culvert/soft/nic"
	"github.com/culvert-io/culvert/soft/nvme"
	"github.com/culvert-io/culvert/soft/pcie/syncpoint"
)

const blockSize = nvfs.BlockSize

const (
	retries  = 5 // of a request; Linux's nvme_max_retries
	inFlight = 8 // commands of a request
)

// A Config says where the remote drive is.
type Config struct {
	// Fabrics is nil if there is no remote drive: the module then serves no file.
	Fabrics Fabrics
	// NIC returns the adapter. It is called at the first request.
	NIC    func() (*nic.NIC, error)
	Points *syncpoint.Points // may be nil
}

// A Module is nvme_rdma, loaded. It connects with the target at the first request, and
// ends the connection when nvidia-fs is closed. It is safe for concurrent use.
type Module struct {
	cfg   Config
	stats counters
	down  atomic.Bool // the target does not answer
	liar  atomic.Pointer[nvme.Liar]

	mu  sync.RWMutex // held for reading by requests
	ops *nvfs.Ops

	link sync.Mutex // guards what follows
	nic  *nic.NIC
	s    *session
}

var (
	_ nvfs.Storage     = (*Module)(nil)
	_ nvfs.Registrar   = (*Module)(nil)
	_ nvfs.Unregistrar = (*Module)(nil)
)

// New loads the module.
func New(cfg Config) *Module { return &Module{cfg: cfg} }

// Name returns the module's name.
func (m *Module) Name() string { return "nvme_rdma" }

// Version returns the module's version.
func (m *Module) Version() string { return "1.0" }

// Serves reports whether there is a remote drive: it has all files of the machine.
func (m *Module) Serves(int) bool { return m.cfg.Fabrics != nil }

// Register sets the table of nvidia-fs.
func (m *Module) Register(ops *nvfs.Ops) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ops = ops
	return nil
}

// Unregister drops the table and ends the connection.
func (m *Module) Unregister() { m.Close() }

// Close ends the connection when requests have ended.
func (m *Module) Close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ops = nil
	m.link.Lock()
	s := m.s
	m.s = nil
	m.link.Unlock()
	if s != nil {
		_ = s.close() // no one to report to
	}
}

// Submit performs a request. After a lost connection it is performed again, with a new one.
func (m *Module) Submit(r *nvfs.Request) error {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.ops == nil || m.cfg.Fabrics == nil {
		return syscall.ENODEV
	}
	for try := 0; ; try++ {
		err := m.perform(r)
		if try == retries || !errors.Is(err, errLost) {
			return err
		}
		m.stats.retries.Add(1)
	}
}

// errLost is a request that may be performed again: the connection was lost.
var errLost = fmt.Errorf("nvme_rdma: the connection with the target was lost: %w", syscall.EIO)

// perform performs a request, once.
func (m *Module) perform(r *nvfs.Request) error {
	s, err := m.connect()
	if err != nil {
		return err
	}
	defer m.leave(s)
	f := <-s.idle
	f.admit(r.FD)
	err = m.split(s, f, r)
	cause := f.dismiss()
	s.idle <- f
	if errors.Is(err, errLost) {
		m.lose(s)
	} else if err != nil && cause != nil {
		return cause // what the file system reported: a status says less
	}
	return err
}

// split performs the commands of a request, several at a time, and returns when all have
// ended. A command that cannot be performed again counts more than a lost one.
func (m *Module) split(s *session, f *file, r *nvfs.Request) (first error) {
	size := s.ctrl.MaxTransfer() / blockSize
	var mu sync.Mutex
	var wg sync.WaitGroup
	failed := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return first != nil
	}
	free := make(chan struct{}, inFlight)
	for at := 0; at < len(r.Pages) && !failed(); at += size {
		c := &command{m: m, s: s, write: r.Write, off: r.Off + int64(at)*blockSize, pages: r.Pages[at:min(at+size, len(r.Pages))]}
		free <- struct{}{}
		wg.Go(func() {
			defer func() { <-free }()
			err := c.perform(f)
			mu.Lock()
			defer mu.Unlock()
			if err != nil && (first == nil || errors.Is(first, errLost)) {
				first = err
			}
		})
	}
	wg.Wait()
	return first
}

// do sends the command and waits for its completion.
func (c *command) do(f *file) error {
	if len(c.pages) == 0 {
		return nil
	}
	m := c.m
	m.at("nvmerdma.map", f)
	if err := c.mapData(); err != nil {
		return err
	}
	defer c.unmapData()
	m.at("nvmerdma.send", f)
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	status, err := c.s.ctrl.Move(ctx, f.id, c.write, c.mr, c.off)
	m.at("nvmerdma.done", f)
	// Without a completion the connection was lost. So it was if the target deletes its
	// queue: it may still answer the commands of one connection when another was cut.
	if err != nil || abi.Status(status).Code() == abi.ABORTED_SQ_DELETION {
		return errLost
	}
	if err := nvmestorage.BlockError(status); err != nil {
		return err
	}
	m.stats.moved(c.write, len(c.pages)*blockSize)
	return nil
}

func (m *Module) at(point string, f *file) { m.cfg.Points.At(point, uint64(f.id)) }

// connect returns a session, and counts its user.
func (m *Module) connect() (*session, error) {
	m.link.Lock()
	defer m.link.Unlock()
	if m.s == nil {
		s, err := m.open()
		if err != nil {
			return nil, fmt.Errorf("nvme_rdma: connect with the target: %w", errors.Join(syscall.EIO, err))
		}
		m.s = s
		m.stats.connections.Add(1)
	}
	m.s.users++
	return m.s, nil
}

func (m *Module) open() (*session, error) {
	if m.down.Load() {
		return nil, syscall.EHOSTUNREACH
	}
	var err error
	if m.nic == nil {
		if m.nic, err = m.cfg.NIC(); err != nil {
			return nil, err
		}
	}
	dev, err := m.nic.Open()
	if err != nil {
		return nil, err
	}
	return newSession(m.cfg.Fabrics, dev)
}

// lose has later requests open a new session.
func (m *Module) lose(s *session) {
	m.link.Lock()
	defer m.link.Unlock()
	if m.s == s {
		m.s = nil
	}
}

// leave counts a user of a session out. The last one closes a lost session.
func (m *Module) leave(s *session) {
	m.link.Lock()
	s.users--
	end := s.users == 0 && m.s != s
	m.link.Unlock()
	if end {
		_ = s.close() // the cause was reported
	}
}
