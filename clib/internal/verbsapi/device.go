package verbsapi

import (
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"

	"github.com/culvert-io/culvert/clib/internal/cmem"
	"github.com/culvert-io/culvert/clib/internal/handle"
	"github.com/culvert-io/culvert/rdma"
)

// Structs are written in the byte order of the only platform.
var le = binary.LittleEndian

// nameSize is the room for a name, as in struct ibv_device.
const nameSize = 64

// Devices stores the adapters as struct culvert_ibv_device: name and GUID.
func (a *API) Devices(list cmem.Ptr, room int32) (int64, error) {
	p, err := a.provider()
	if err != nil {
		return 0, err
	}
	all, err := p.Devices()
	if err != nil {
		return 0, err
	}
	n := min(len(all), int(max(room, 0)))
	const size = nameSize + 8
	for i, d := range all[:n] {
		var b [size]byte
		copy(b[:nameSize-1], d.Name)
		binary.BigEndian.PutUint64(b[nameSize:], d.GUID) // GUIDs are in network order
		cmem.Store(list+cmem.Ptr(i*size), b)
	}
	return int64(n), nil
}

// Open opens a device by name.
func (a *API) Open(name, out cmem.Ptr) error {
	n, ok := cmem.String(name, nameSize)
	if !ok {
		return syscall.EINVAL
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	d := a.open[n]
	if d == nil {
		p, err := a.provider()
		if err != nil {
			return err
		}
		x, err := p.Open(n)
		if err != nil {
			return err
		}
		d = &device{Device: x, name: n}
		a.open[n] = d
	}
	d.users++
	return add(a.contexts, out, d, func() error { return a.drop(d) })
}

// Close closes a context. What the program left in it ends first, as when the kernel
// closes its descriptor.
func (a *API) Close(id handle.ID) error {
	d, ok := a.contexts.Remove(id)
	if !ok {
		return fmt.Errorf("there is no such context: %w", syscall.EINVAL)
	}
	err := errors.Join(sweep(a.pairs, id), sweep(a.regions, id), sweep(a.queues, id), sweep(a.domains, id))
	a.mu.Lock()
	defer a.mu.Unlock()
	return errors.Join(err, a.drop(d))
}

// drop closes a device with its last context.
func (a *API) drop(d *device) error {
	d.users--
	if d.users > 0 {
		return nil
	}
	delete(a.open, d.name)
	return d.Device.Close()
}

// Sizes of structs.
const (
	deviceAttrSize = 232
	portAttrSize   = 52
	gidEntrySize   = 32
)

// softVendor is the vendor of adapters that are software, as of Soft-RoCE.
const softVendor = 0xffffff

// QueryDevice stores struct ibv_device_attr.
func (a *API) QueryDevice(id handle.ID, out cmem.Ptr) error {
	d, err := find(a.contexts, id, "context")
	if err != nil {
		return err
	}
	attr, err := d.Attr()
	if err != nil {
		return err
	}
	var b [deviceAttrSize]byte
	copy(b[:63], attr.Firmware)
	binary.BigEndian.PutUint64(b[64:], d.Info().GUID)
	le.PutUint64(b[80:], attr.MaxMRSize)
	le.PutUint64(b[88:], ^uint64(4095)) // page sizes: 4 KiB and all larger ones
	le.PutUint32(b[96:], softVendor)
	const enough = 1 << 16 // of objects that only memory limits
	for off, v := range map[int]int{
		108: attr.MaxQP, 112: attr.MaxQPWR, 120: attr.MaxSGE, 124: attr.MaxSGE, 128: enough, 132: attr.MaxCQE, 136: enough, 140: enough,
		144: attr.MaxRDAtomic, 152: attr.MaxRDAtomic * attr.MaxQP, 156: attr.MaxRDAtomic,
	} {
		le.PutUint32(b[off:], uint32(v))
	}
	if attr.Atomics {
		le.PutUint32(b[164:], 1) // among the adapter's own operations
	}
	le.PutUint16(b[224:], 1) // partition keys
	b[227] = uint8(attr.Ports)
	return cmem.Answer(out, b)
}

// QueryPort stores struct ibv_port_attr.
func (a *API) QueryPort(id handle.ID, port int32, out cmem.Ptr) error {
	d, err := find(a.contexts, id, "context")
	if err != nil {
		return err
	}
	p, err := d.Port(int(port))
	if err != nil {
		return err
	}
	var b [portAttrSize]byte
	for off, v := range map[int]uint32{
		0: uint32(p.State), 4: uint32(p.MaxMTU), 8: uint32(p.ActiveMTU), 12: uint32(p.GIDs), 16: 1 << 16, 20: p.MaxMsg,
	} {
		le.PutUint32(b[off:], v)
	}
	le.PutUint16(b[32:], 1) // partition keys
	le.PutUint16(b[34:], p.LID)
	b[39] = 1 // virtual lanes
	b[43], b[44] = linkRate(p.Gbps)
	const linkUp = 5
	b[45] = linkUp
	b[46] = uint8(p.Link)
	return cmem.Answer(out, b)
}

// linkRate is a rate as a code for four lanes and the code of their speed: the first of
// SDR, DDR, QDR … that is enough.
func linkRate(gbps float64) (width, speed uint8) {
	const lanes4 = 2
	for _, s := range [...]struct {
		code uint8
		gbps float64
	}{{1, 10}, {2, 20}, {4, 40}, {16, 56}, {32, 100}, {64, 200}} {
		if gbps <= s.gbps {
			return lanes4, s.code
		}
	}
	return lanes4, 128
}

// QueryGIDs stores the GID table of a port as struct ibv_gid_entry.
func (a *API) QueryGIDs(id handle.ID, port int32, list cmem.Ptr, room uint64) (int64, error) {
	d, err := find(a.contexts, id, "context")
	if err != nil {
		return 0, err
	}
	table, err := d.GIDs(int(port))
	if err != nil {
		return 0, err
	}
	if uint64(len(table)) > room {
		return 0, fmt.Errorf("%d GIDs, room for %d: %w", len(table), room, syscall.EINVAL)
	}
	for i, e := range table {
		cmem.Store(list+cmem.Ptr(i*gidEntrySize), gidEntry(e))
	}
	return int64(len(table)), nil
}

func gidEntry(e rdma.GIDEntry) (b [gidEntrySize]byte) {
	copy(b[:], e.GID[:])
	le.PutUint32(b[16:], uint32(e.Index))
	le.PutUint32(b[20:], uint32(e.Port))
	le.PutUint32(b[24:], uint32(e.Type))
	return b
}
