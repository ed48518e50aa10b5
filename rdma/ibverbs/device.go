package ibverbs

import (
	"bytes"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"syscall"

	abi "github.com/culvert-io/culvert/internal/abi/ibverbs"
	"github.com/culvert-io/culvert/internal/dl"
	"github.com/culvert-io/culvert/rdma"
)

// A Device is an open adapter: struct ibv_context.
type Device struct {
	provider *Provider
	lib      *library
	info     rdma.DeviceInfo
	ctx      uintptr
	fatal    atomic.Bool // the adapter reported that it failed
	events   *asyncEvents

	mu      sync.Mutex
	objects int
	closed  bool
	queues  map[uintptr]*CQ // by struct ibv_cq
}

func (p *Provider) openDevice(dev uintptr, info rdma.DeviceInfo) (*Device, error) {
	ctx, err := object(p.lib.openDevice, dev)
	if err != nil {
		return nil, fmt.Errorf("provider ibverbs: open %s: %w (fix: check the permissions of /dev/infiniband/uverbs*)", info.Name, err)
	}
	d := &Device{provider: p, lib: p.lib, info: info, ctx: ctx, queues: map[uintptr]*CQ{}}
	if d.events, err = watch(d); err != nil {
		p.lib.closeDevice.Call(ctx)
		return nil, fmt.Errorf("provider ibverbs: open %s: %w", info.Name, err)
	}
	p.count(1)
	return d, nil
}

// Info implements rdma.Device.
func (d *Device) Info() rdma.DeviceInfo { return d.info }

// Provider implements rdma.Device.
func (d *Device) Provider() string { return Name }

// Attr implements rdma.Device. Inline data has no limit of the device: a queue pair
// tells when it is created.
func (d *Device) Attr() (rdma.DeviceAttr, error) {
	a := new(abi.DeviceAttr)
	if err := d.call(d.lib.queryDevice, dl.Ref(a)); err != nil {
		return rdma.DeviceAttr{}, fmt.Errorf("query %s: %w", d.info.Name, err)
	}
	firmware, _, _ := bytes.Cut(a.Firmware[:], []byte{0})
	return rdma.DeviceAttr{
		Firmware: string(firmware), Ports: int(a.Ports), MaxMRSize: a.MaxMRSize,
		MaxQP: int(a.MaxQP), MaxQPWR: int(a.MaxQPWR), MaxSGE: int(a.MaxSGE), MaxCQE: int(a.MaxCQE),
		MaxRDAtomic: int(min(a.MaxRDAtomic, a.MaxInitRD)), Atomics: a.AtomicCap != 0,
	}, nil
}

// call calls a function of the context while the device is open.
func (d *Device) call(f dl.Func, args ...uintptr) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return fmt.Errorf("the device is closed: %w", syscall.EINVAL)
	}
	return status(f, append([]uintptr{d.ctx}, args...)...)
}

// Port implements rdma.Device.
func (d *Device) Port(n int) (rdma.PortAttr, error) {
	// A newer library has a longer struct.
	raw := new([abi.PortRoom / 8]uint64)
	if n < 1 || n > 255 {
		return rdma.PortAttr{}, fmt.Errorf("query port %d of %s: %w", n, d.info.Name, syscall.EINVAL)
	}
	if err := d.call(d.lib.queryPort, uintptr(n), dl.Ref(raw)); err != nil {
		return rdma.PortAttr{}, fmt.Errorf("query port %d of %s: %w", n, d.info.Name, err)
	}
	a := at[abi.PortAttr](dl.Ref(raw))
	return rdma.PortAttr{
		State: rdma.PortState(a.State), ActiveMTU: rdma.MTU(a.ActiveMTU), MaxMTU: rdma.MTU(a.MaxMTU),
		MaxMsg: a.MaxMsg, LID: a.LID, Link: rdma.LinkLayer(a.Link), Gbps: gbps(a.Width, a.Speed), GIDs: int(a.GIDTableLen),
	}, nil
}

// lanes and lane are the width of a link and the speed of one of its lanes, by the codes
// of verbs.
var (
	lanes = map[uint8]float64{1: 1, 2: 4, 4: 8, 8: 12, 16: 2}
	lane  = map[uint8]float64{1: 2.5, 2: 5, 4: 10, 8: 10, 16: 14.0625, 32: 25.78125, 64: 53.125, 128: 106.25}
)

func gbps(width, speed uint8) float64 { return lanes[width] * lane[speed] }

// GIDs implements rdma.Device.
func (d *Device) GIDs(port int) ([]rdma.GIDEntry, error) {
	attr, err := d.Port(port)
	if err != nil {
		return nil, err
	}
	if d.lib.queryGIDTable == 0 {
		return d.gidsOneByOne(port, attr)
	}
	dev, err := d.Attr()
	if err != nil {
		return nil, err
	}
	// The table has the entries of all ports that are not empty.
	return d.gidTable(port, attr.GIDs*max(dev.Ports, 1))
}

func (d *Device) gidTable(port, room int) ([]rdma.GIDEntry, error) {
	if room == 0 {
		return nil, nil
	}
	entries := make([]abi.GIDEntry, room)
	const entrySize = 32
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, fmt.Errorf("read the GIDs of %s: the device is closed: %w", d.info.Name, syscall.EINVAL)
	}
	r, errno := d.lib.queryGIDTable.CallErrno(d.ctx, dl.Ref(&entries[0]), uintptr(room), 0, entrySize)
	n := int(int64(r)) // ssize_t
	if n < 0 || n > room {
		return nil, fmt.Errorf("read the GIDs of %s: %w", d.info.Name, result(int32(n), errno))
	}
	var list []rdma.GIDEntry
	for _, e := range entries[:n] {
		if g := (rdma.GIDEntry{GID: e.GID, Index: int(e.Index), Port: int(e.Port), Type: rdma.GIDType(e.Type), NetDev: netDev(int(e.IfIndex))}); g.Port == port && !g.GID.IsZero() {
			list = append(list, g)
		}
	}
	return list, nil
}

// netDev is the name of a network interface; "" if it has none, or is in another
// namespace.
func netDev(index int) string {
	if i, err := net.InterfaceByIndex(index); index > 0 && err == nil {
		return i.Name
	}
	return ""
}

// AllocPD implements rdma.Device.
func (d *Device) AllocPD() (rdma.PD, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, fmt.Errorf("allocate a protection domain of %s: the device is closed: %w", d.info.Name, syscall.EINVAL)
	}
	p, err := object(d.lib.allocPD, d.ctx)
	if err != nil {
		return nil, fmt.Errorf("allocate a protection domain of %s: %w", d.info.Name, err)
	}
	d.objects++
	return &PD{dev: d, pd: p}, nil
}

func (d *Device) drop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.objects--
}

// Close implements rdma.Device.
func (d *Device) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.closed:
		return fmt.Errorf("close %s: it is closed: %w", d.info.Name, syscall.EINVAL)
	case d.objects > 0:
		return fmt.Errorf("close %s: it has %d domains and completion queues: %w", d.info.Name, d.objects, syscall.EBUSY)
	}
	d.closed = true
	d.mu.Unlock() // a handler of an event may need it
	d.events.stop()
	d.mu.Lock()
	if err := status(d.lib.closeDevice, d.ctx); err != nil {
		return fmt.Errorf("close %s: %w", d.info.Name, err)
	}
	d.provider.count(-1)
	return nil
}
