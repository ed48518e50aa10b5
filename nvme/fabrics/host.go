package fabrics

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	nvme "github.com/culvert-io/culvert/internal/abi/nvme"
	abi "github.com/culvert-io/culvert/internal/abi/nvmf"
	"github.com/culvert-io/culvert/internal/endpoint"
	"github.com/culvert-io/culvert/rdma"
)

// A Config says how a host connects.
type Config struct {
	Device  rdma.Device
	NQN     string // of the subsystem
	HostNQN string // "" means a name that says nothing about the host
	Queues  int    // for I/O; 0 means 1
	Depth   int    // commands of a queue; 0 means 32
	// Dial makes a stream connection to the target, once for each queue.
	Dial func(ctx context.Context) (net.Conn, error)
	// Addr, if valid, is where the target listens with the kernel's connection manager,
	// as Linux's does. Dial is not used then, and Device must be of rdma/ibverbs.
	Addr netip.AddrPort
}

// A Controller is a connection of a host to a subsystem. It is safe for concurrent use.
type Controller struct {
	cfg    Config
	pd     rdma.PD
	admin  *queue
	queues []*queue
	next   atomic.Uint32

	model       string
	maxTransfer int
	namespaces  []*Namespace
}

// connectTime is how long connecting may take.
const connectTime = 10 * time.Second

// Connect connects to a subsystem and enables its controller.
func Connect(ctx context.Context, cfg Config) (c *Controller, err error) {
	cfg.Queues = cmp.Or(cfg.Queues, 1)
	cfg.Depth = cmp.Or(cfg.Depth, 32)
	cfg.HostNQN = cmp.Or(cfg.HostNQN, "nqn.2014-08.org.nvmexpress:uuid:00000000-0000-0000-0000-000000000001")
	if cfg.Depth < 2 || cfg.Depth > 1024 {
		return nil, fmt.Errorf("connect to %s: depth %d must be 2 to 1024", cfg.NQN, cfg.Depth)
	}
	ctx, cancel := context.WithTimeout(ctx, connectTime)
	defer cancel()
	c = &Controller{cfg: cfg}
	defer func() {
		if err != nil {
			err = fmt.Errorf("connect to %s: %w", cfg.NQN, errors.Join(err, c.Close()))
			c = nil
		}
	}()
	if c.pd, err = cfg.Device.AllocPD(); err != nil {
		return c, err
	}
	var id uint16
	if c.admin, id, err = c.connect(ctx, 0, abi.CNTLID_ANY); err != nil {
		return c, err
	}
	if err := c.enable(ctx); err != nil {
		return c, err
	}
	if err := c.identify(ctx); err != nil {
		return c, err
	}
	return c, c.connectQueues(ctx, id)
}

// connect makes a queue and sends its Connect command.
func (c *Controller) connect(ctx context.Context, qid, cntlid uint16) (*queue, uint16, error) {
	q, err := newQueue(ctx, c, qid, cntlid)
	if err != nil {
		return nil, 0, fmt.Errorf("queue %d: %w", qid, err)
	}
	answer, err := c.sendConnect(ctx, q, qid, cntlid)
	if err != nil {
		q.close(err)
		return nil, 0, err
	}
	return q, answer, nil
}

// sendConnect sends the Connect command of a queue and returns the controller's number.
func (c *Controller) sendConnect(ctx context.Context, q *queue, qid, cntlid uint16) (uint16, error) {
	data := abi.ConnectData{CNTLID: cntlid}
	var err error
	if data.SUBNQN, err = abi.NQN(c.cfg.NQN); err == nil {
		data.HOSTNQN, err = abi.NQN(c.cfg.HostNQN)
	}
	if err != nil {
		return 0, err
	}
	sgl, inline := abi.InCapsule(0, abi.ConnectDataSize), abi.Encode(&data)
	if c.cfg.Addr.IsValid() {
		// Linux's target takes no data in a capsule of the admin queue.
		m, err := endpoint.NewMemory(c.pd, len(inline), memoryAccess)
		if err != nil {
			return 0, err
		}
		defer m.Close()
		copy(m.Bytes, inline)
		sgl, inline = abi.Keyed(m.Addr(), abi.ConnectDataSize, m.RKey()), nil
	}
	fab := abi.ConnectCommand{Opcode: abi.OPCODE, FCType: abi.TYPE_CONNECT, SGL: sgl.Bytes(), QID: qid, SQSize: uint16(c.cfg.Depth - 1)}
	cmd, err := abi.Decode[nvme.Command](abi.Encode(&fab))
	if err != nil {
		return 0, err
	}
	cmd.Flags |= abi.FLAGS_SGL
	cqe, err := q.do(ctx, fmt.Sprintf("connect queue %d", qid), cmd, inline)
	return uint16(cqe.DW0), err
}

func (c *Controller) connectQueues(ctx context.Context, id uint16) error {
	want := uint32(c.cfg.Queues - 1)
	cqe, err := c.admin.do(ctx, "set the number of queues", nvme.Command{
		Opcode: nvme.ADMIN_SET_FEATURES, Flags: abi.FLAGS_SGL, CDW10: nvme.FEAT_NUM_QUEUES, CDW11: want | want<<16,
	}, nil)
	if err != nil {
		return err
	}
	for i := range min(c.cfg.Queues, int(cqe.DW0&0xffff)+1) {
		q, _, err := c.connect(ctx, uint16(i+1), id)
		if err != nil {
			return err
		}
		c.queues = append(c.queues, q)
	}
	return nil
}

// property sends Property Get, or Property Set if set is true.
func (c *Controller) property(ctx context.Context, off uint32, set bool, value uint64) (uint64, error) {
	p := abi.PropertyCommand{Opcode: abi.OPCODE, FCType: abi.TYPE_PROPERTY_GET, Offset: off, Value: value}
	name := fmt.Sprintf("get property %#x", off)
	if set {
		p.FCType, name = abi.TYPE_PROPERTY_SET, fmt.Sprintf("set property %#x", off)
	}
	if off == nvme.REG_CAP {
		p.Attrib = abi.PROPERTY_8
	}
	cmd, err := abi.Decode[nvme.Command](abi.Encode(&p))
	if err != nil {
		return 0, err
	}
	cmd.Flags |= abi.FLAGS_SGL
	cqe, err := c.admin.do(ctx, name, cmd, nil)
	return uint64(cqe.DW0) | uint64(cqe.DW1)<<32, err
}

// enable enables the controller and waits until it is ready.
func (c *Controller) enable(ctx context.Context) error {
	if _, err := c.property(ctx, nvme.REG_CAP, false, 0); err != nil {
		return err
	}
	if _, err := c.property(ctx, nvme.REG_CC, true, enableBits); err != nil {
		return err
	}
	for {
		csts, err := c.property(ctx, nvme.REG_CSTS, false, 0)
		if err != nil {
			return err
		}
		if csts&nvme.CSTS_RDY != 0 {
			return nil
		}
		if csts&nvme.CSTS_CFS != 0 {
			return errors.New("the controller reports a fatal status")
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

// memoryAccess lets the target write and read the data of commands.
const memoryAccess = rdma.LocalWrite | rdma.RemoteWrite | rdma.RemoteRead

// identifyData sends Identify and returns its data, which the target writes into
// registered memory.
func (c *Controller) identifyData(ctx context.Context, cns uint32, nsid uint32) ([]byte, error) {
	m, err := endpoint.NewMemory(c.pd, nvme.IdentifySize, memoryAccess)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	cmd := nvme.Command{Opcode: nvme.ADMIN_IDENTIFY, NSID: nsid, CDW10: cns}
	if err := abi.Keyed(m.Addr(), nvme.IdentifySize, m.RKey()).Put(&cmd); err != nil {
		return nil, err
	}
	if _, err := c.admin.do(ctx, "identify", cmd, nil); err != nil {
		return nil, err
	}
	return bytes.Clone(m.Bytes), nil
}

// identify finds the limits of the controller, and its namespaces.
func (c *Controller) identify(ctx context.Context) error {
	b, err := c.identifyData(ctx, nvme.CNS_CONTROLLER, 0)
	if err != nil {
		return err
	}
	c.model = string(bytes.Trim(b[24:64], " \x00"))
	c.maxTransfer = 1 << 20
	if mdts := b[77]; mdts != 0 && mdts < 9 {
		c.maxTransfer = 4096 << mdts
	}
	list, err := c.identifyData(ctx, nvme.CNS_ACTIVE_NAMESPACE, 0)
	if err != nil {
		return err
	}
	for i := 0; i < len(list); i += 4 {
		id := binary.LittleEndian.Uint32(list[i:])
		if id == 0 {
			break
		}
		if err := c.addNamespace(ctx, id); err != nil {
			return err
		}
	}
	return nil
}

// Model is the model number.
func (c *Controller) Model() string { return c.model }

// PD is the protection domain in which memory for commands must be registered.
func (c *Controller) PD() rdma.PD { return c.pd }

// MaxTransfer is how many bytes a command can move.
func (c *Controller) MaxTransfer() int { return c.maxTransfer }

// Namespaces lists the namespaces.
func (c *Controller) Namespaces() []*Namespace { return c.namespaces }

// io is the queue for the next command.
func (c *Controller) io() *queue { return c.queues[int(c.next.Add(1))%len(c.queues)] }

// Close ends all queues. Memory must have been deregistered.
func (c *Controller) Close() error {
	for _, q := range append(c.queues, c.admin) {
		if q != nil {
			q.close(net.ErrClosed)
		}
	}
	if c.pd == nil {
		return nil
	}
	return c.pd.Close()
}
