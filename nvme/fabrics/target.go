package fabrics

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	nvme "github.com/culvert-io/culvert/internal/abi/nvme"
	abi "github.com/culvert-io/culvert/internal/abi/nvmf"
	"github.com/culvert-io/culvert/rdma"
)

// A Backing stores the blocks of a namespace. It is safe for concurrent use.
type Backing interface {
	io.ReaderAt
	io.WriterAt
	Sync() error
}

// A Drive is a namespace of a target.
type Drive struct {
	Backing Backing
	Blocks  uint64
	Shift   uint // of the block size: 9 or 12
}

// A TargetConfig describes a subsystem.
type TargetConfig struct {
	Device rdma.Device
	NQN    string
	Model  string
	Drives []Drive // namespaces 1, 2, …
	Queues int     // for I/O, of a controller; 0 means 8
	// Log is called for queues that begin and end; it may be nil.
	Log func(format string, args ...any)
}

// A Target serves a subsystem to hosts.
type Target struct {
	cfg TargetConfig

	mu          sync.Mutex
	last        uint16
	controllers map[uint16]*controller
	wg          sync.WaitGroup
}

// A controller is what a target has for one host.
type controller struct {
	id      uint16
	hostNQN string

	mu     sync.Mutex
	cc     uint32
	queues map[uint16]*targetQueue
}

const (
	maxDepth       = 128 // of a queue
	maxControllers = 64
	mdts           = 5 // 128 KiB
	maxData        = 4096 << mdts
)

// NewTarget returns a target. Serve starts it.
func NewTarget(cfg TargetConfig) (*Target, error) {
	cfg.Queues = cmp.Or(cfg.Queues, 8)
	if cfg.Log == nil {
		cfg.Log = func(string, ...any) {}
	}
	if _, err := abi.NQN(cfg.NQN); err != nil || cfg.NQN == "" {
		return nil, fmt.Errorf("target: name %q must have 1 to 223 bytes", cfg.NQN)
	}
	for i, d := range cfg.Drives {
		if d.Shift < 9 || d.Shift > 12 || d.Blocks == 0 || d.Blocks > 1<<62>>d.Shift {
			return nil, fmt.Errorf("target: namespace %d has %d blocks of 2^%d bytes; blocks must have 512 to 4096 bytes", i+1, d.Blocks, d.Shift)
		}
	}
	return &Target{cfg: cfg, controllers: map[uint16]*controller{}}, nil
}

// Serve accepts queues until ctx ends, and returns when all of them are gone.
func (t *Target) Serve(ctx context.Context, l net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	defer t.wg.Wait()
	defer cancel()
	for {
		conn, err := l.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("accept on %v: %w", l.Addr(), err)
		}
		t.wg.Go(func() {
			defer conn.Close()
			if err := t.queue(ctx, conn); err != nil && ctx.Err() == nil {
				t.cfg.Log("%v: %v, provider=%s", conn.RemoteAddr(), err, t.cfg.Device.Provider())
			}
		})
	}
}

// queue serves one queue of a host.
func (t *Target) queue(ctx context.Context, conn net.Conn) error {
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	if err := conn.SetDeadline(time.Now().Add(connectTime)); err != nil {
		return err
	}
	req, err := receive[abi.RDMARequest](conn, abi.RDMARequestSize)
	if err != nil {
		return err
	}
	if status := t.judge(&req); status != 0 {
		return reject(conn, status)
	}
	q, err := newTargetQueue(t, &req)
	if err != nil {
		return errors.Join(err, reject(conn, abi.RDMA_CM_NO_RSC))
	}
	defer q.end()
	if err := accept(conn, q.depth); err != nil {
		return err
	}
	if err := q.establish(ctx, conn); err != nil {
		return err
	}
	if err := conn.SetDeadline(time.Time{}); err != nil {
		return err
	}
	return q.run(ctx, conn)
}

// judge checks a connection request.
func (t *Target) judge(r *abi.RDMARequest) abi.RDMAStatus {
	switch {
	case r.RecFmt != abi.RDMA_CM_FMT_1_0:
		return abi.RDMA_CM_INVALID_RECFMT
	case int(r.QID) > t.cfg.Queues:
		return abi.RDMA_CM_INVALID_QID
	case r.HSQSize < 1 || r.HSQSize >= maxDepth:
		return abi.RDMA_CM_INVALID_HSQSIZE
	case r.HRQSize < r.HSQSize:
		return abi.RDMA_CM_INVALID_HRQSIZE
	}
	return 0
}

// enter adds a queue to its controller, which an admin queue creates. A wrong parameter
// is named by where it is: command or data, and the offset there.
func (t *Target) enter(q *targetQueue, c *abi.ConnectCommand, d *abi.ConnectData) (id uint16, where uint32, status nvme.Status) {
	const inData = abi.IATTR_DATA << 16
	bad := func(at uint32) (uint16, uint32, nvme.Status) {
		return 0, at, abi.CONNECT_INVALID_PARAMETERS | nvme.STATUS_DNR
	}
	host := abi.Name(&d.HOSTNQN)
	switch {
	case c.RecFmt != 0:
		return 0, 0, abi.CONNECT_INCOMPATIBLE_FORMAT | nvme.STATUS_DNR
	case c.QID != q.qid:
		return bad(42)
	case int(c.SQSize)+1 != q.depth:
		return bad(44)
	case abi.Name(&d.SUBNQN) != t.cfg.NQN:
		return bad(inData | 256)
	case host == "":
		return bad(inData | 512)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if q.qid == 0 {
		if d.CNTLID != abi.CNTLID_ANY {
			return bad(inData | 16)
		}
		if len(t.controllers) == maxControllers {
			return 0, 0, abi.CONNECT_CONTROLLER_BUSY
		}
		t.addControllerLocked(q, host)
		return q.ctl.id, 0, nvme.SUCCESS
	}
	ctl := t.controllers[d.CNTLID]
	if ctl == nil || ctl.hostNQN != host {
		return bad(inData | 16)
	}
	return t.addQueue(ctl, q)
}

func (t *Target) addControllerLocked(q *targetQueue, host string) {
	for t.last++; t.last == 0 || t.last >= 0xfff0 || t.controllers[t.last] != nil; {
		t.last++
	}
	q.ctl = &controller{id: t.last, hostNQN: host, queues: map[uint16]*targetQueue{0: q}}
	t.controllers[t.last] = q.ctl
}

func (t *Target) addQueue(ctl *controller, q *targetQueue) (uint16, uint32, nvme.Status) {
	ctl.mu.Lock()
	defer ctl.mu.Unlock()
	if ctl.cc&nvme.CC_EN == 0 || ctl.queues[q.qid] != nil {
		return 0, 42, abi.CONNECT_INVALID_PARAMETERS | nvme.STATUS_DNR
	}
	ctl.queues[q.qid], q.ctl = q, ctl
	return ctl.id, 0, nvme.SUCCESS
}

// leave takes a queue from its controller. An admin queue takes all others with it.
func (t *Target) leave(q *targetQueue) {
	if q.ctl == nil {
		return
	}
	if q.qid == 0 {
		t.mu.Lock()
		delete(t.controllers, q.ctl.id)
		t.mu.Unlock()
	}
	q.ctl.mu.Lock()
	defer q.ctl.mu.Unlock()
	delete(q.ctl.queues, q.qid)
	if q.qid == 0 {
		for _, other := range q.ctl.queues {
			other.stop()
		}
	}
}
