package fabrics

import (
	"cmp"
	"fmt"
	"io"
	"sync"

	nvme "github.com/culvert-io/culvert/internal/abi/nvme"
	abi "github.com/culvert-io/culvert/internal/abi/nvmf"
	"github.com/culvert-io/culvert/rdma"
)

// A Backing stores the blocks of a namespace. It is safe for concurrent use. What it gets
// begins at a page boundary, as direct I/O needs.
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
	alive  keepAlive
	events bool // a command waits for events, of which there are none
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
		if d.Shift < 9 || d.Shift > 12 || d.Blocks == 0 || d.Blocks > 1<<63>>d.Shift {
			return nil, fmt.Errorf("target: namespace %d has %d blocks of 2^%d bytes; blocks must have 512 to 4096 bytes", i+1, d.Blocks, d.Shift)
		}
	}
	return &Target{cfg: cfg, controllers: map[uint16]*controller{}}, nil
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
		return t.addControllerLocked(q, host, c.KATO), 0, nvme.SUCCESS
	}
	ctl := t.controllers[d.CNTLID]
	if ctl == nil || ctl.hostNQN != host {
		return bad(inData | 16)
	}
	return t.addQueue(ctl, q)
}

func (t *Target) addControllerLocked(q *targetQueue, host string, kato uint32) uint16 {
	for t.last++; t.last == 0 || t.last >= 0xfff0 || t.controllers[t.last] != nil; {
		t.last++
	}
	ctl := &controller{id: t.last, hostNQN: host, queues: map[uint16]*targetQueue{0: q}}
	ctl.alive.set(kato, q.stop)
	q.ctl.Store(ctl)
	t.controllers[ctl.id] = ctl
	return ctl.id
}

func (t *Target) addQueue(ctl *controller, q *targetQueue) (uint16, uint32, nvme.Status) {
	ctl.mu.Lock()
	defer ctl.mu.Unlock()
	if ctl.cc&nvme.CC_EN == 0 || ctl.queues[q.qid] != nil {
		return 0, 42, abi.CONNECT_INVALID_PARAMETERS | nvme.STATUS_DNR
	}
	ctl.queues[q.qid] = q
	q.ctl.Store(ctl)
	return ctl.id, 0, nvme.SUCCESS
}

// leave takes a queue from its controller. An admin queue takes all others with it.
func (t *Target) leave(q *targetQueue) {
	ctl := q.ctl.Load()
	if ctl == nil {
		return
	}
	if q.qid == 0 {
		t.mu.Lock()
		delete(t.controllers, ctl.id)
		t.mu.Unlock()
	}
	ctl.mu.Lock()
	defer ctl.mu.Unlock()
	delete(ctl.queues, q.qid)
	if q.qid == 0 {
		ctl.alive.set(0, nil)
		for _, other := range ctl.queues {
			other.stop()
		}
	}
}
