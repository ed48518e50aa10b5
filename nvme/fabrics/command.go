package fabrics

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	nvme "github.com/culvert-io/culvert/internal/abi/nvme"
	abi "github.com/culvert-io/culvert/internal/abi/nvmf"
	"github.com/culvert-io/culvert/rdma"
)

// A task is a command that a target executes.
type task struct {
	q        *targetQueue
	slot     int
	cmd      nvme.Command
	capsule  []byte // the command, then its data
	dw0, dw1 uint32
}

const dnr = nvme.STATUS_DNR

// connect executes the first command of a queue, which must be Connect.
func (r *task) connect(ctx context.Context) nvme.Status {
	c, err := abi.Decode[abi.ConnectCommand](r.capsule)
	if err != nil || c.Opcode != abi.OPCODE || c.FCType != abi.TYPE_CONNECT {
		return nvme.COMMAND_SEQUENCE_ERROR | dnr
	}
	data, status := r.connectData(ctx)
	if status != nvme.SUCCESS {
		return status
	}
	d, err := abi.Decode[abi.ConnectData](data)
	if err != nil {
		return nvme.INVALID_FIELD | dnr
	}
	var id uint16
	var where uint32
	id, where, status = r.q.t.enter(r.q, &c, &d)
	if r.dw0 = uint32(id); status != nvme.SUCCESS {
		r.dw0 = where
		return status
	}
	r.q.t.cfg.Log("%s: queue %d of controller %d, provider=%s", r.q.host, r.q.qid, id, r.q.Dev.Provider())
	return status
}

// connectData is the data of Connect: in the capsule, or in the host's memory, where Linux's
// host has it.
func (r *task) connectData(ctx context.Context) ([]byte, nvme.Status) {
	s := abi.SGLOf(&r.cmd)
	if s.Type == abi.SGL_DATA_BLOCK && s.Subtype == abi.SGL_OFFSET && s.Addr == 0 && s.Len == abi.ConnectDataSize && len(r.capsule) == capsuleSize {
		return r.capsule[nvme.CommandSize:], nvme.SUCCESS
	}
	if status := checkKeyed(s, abi.ConnectDataSize); status != nvme.SUCCESS {
		return nil, status
	}
	return r.q.bytes(r.q.data(r.slot), abi.ConnectDataSize), transferred(r.q.move(ctx, r.slot, rdma.OpRead, s))
}

// execute executes a command of a connected queue.
func (r *task) execute(ctx context.Context) nvme.Status {
	switch {
	case r.cmd.Opcode == abi.OPCODE && r.q.qid == 0:
		return r.property()
	case r.cmd.Opcode == abi.OPCODE:
		return nvme.INVALID_OPCODE | dnr
	case r.cmd.Flags&nvme.FLAGS_PSDT_MASK != abi.FLAGS_SGL || r.cmd.Flags&nvme.FLAGS_FUSE_MASK != 0:
		return nvme.INVALID_FIELD | dnr
	case r.q.qid == 0:
		return r.admin(ctx)
	}
	return r.io(ctx)
}

// property executes Property Get and Property Set.
func (r *task) property() nvme.Status {
	p, err := abi.Decode[abi.PropertyCommand](r.capsule)
	if err != nil {
		return nvme.INVALID_FIELD | dnr
	}
	ctl := r.q.ctl.Load()
	ctl.mu.Lock()
	defer ctl.mu.Unlock()
	switch {
	case p.FCType == abi.TYPE_PROPERTY_SET && p.Offset == nvme.REG_CC && p.Attrib == 0:
		ctl.cc = uint32(p.Value)
		return nvme.SUCCESS
	case p.FCType != abi.TYPE_PROPERTY_GET:
		return nvme.INVALID_FIELD | dnr
	case p.Offset == nvme.REG_CAP && p.Attrib == abi.PROPERTY_8:
		v := uint64(maxDepth-1) | nvme.CAP_CQR | 1<<nvme.CAP_TO_SHIFT | nvme.CAP_CSS_NVM
		r.dw0, r.dw1 = uint32(v), uint32(v>>32)
	case p.Offset == nvme.REG_VS && p.Attrib == 0:
		r.dw0 = 0x10400
	case p.Offset == nvme.REG_CC && p.Attrib == 0:
		r.dw0 = ctl.cc
	case p.Offset == nvme.REG_CSTS && p.Attrib == 0:
		r.dw0 = ctl.status()
	default:
		return nvme.INVALID_FIELD | dnr
	}
	return nvme.SUCCESS
}

// status is CSTS.
func (c *controller) status() uint32 {
	v := c.cc & nvme.CC_EN // ready as soon as it is enabled
	if c.cc&nvme.CC_SHN_MASK != 0 {
		v |= nvme.CSTS_SHST_COMPLETE
	}
	return v
}

func (r *task) enabled() bool {
	ctl := r.q.ctl.Load()
	ctl.mu.Lock()
	defer ctl.mu.Unlock()
	return ctl.cc&nvme.CC_EN != 0
}

func (r *task) admin(ctx context.Context) nvme.Status {
	if !r.enabled() {
		return nvme.COMMAND_SEQUENCE_ERROR | dnr
	}
	switch r.cmd.Opcode {
	case nvme.ADMIN_IDENTIFY:
		return r.identify(ctx)
	case nvme.ADMIN_SET_FEATURES, nvme.ADMIN_GET_FEATURES:
		return r.feature()
	case nvme.ADMIN_KEEP_ALIVE:
		ctl := r.q.ctl.Load()
		ctl.mu.Lock()
		defer ctl.mu.Unlock()
		ctl.alive.seen()
		return nvme.SUCCESS
	case nvme.ADMIN_ASYNC_EVENT:
		return r.awaitEvent(ctx)
	}
	return nvme.INVALID_OPCODE | dnr
}

// feature gets or sets a feature.
func (r *task) feature() nvme.Status {
	ctl := r.q.ctl.Load()
	ctl.mu.Lock()
	defer ctl.mu.Unlock()
	switch set := r.cmd.Opcode == nvme.ADMIN_SET_FEATURES; r.cmd.CDW10 & 0xff {
	case nvme.FEAT_NUM_QUEUES:
		n := uint32(r.q.t.cfg.Queues - 1)
		r.dw0 = n | n<<16
	case nvme.FEAT_KATO:
		if set {
			ctl.alive.set(r.cmd.CDW11, r.q.stop)
		} else {
			r.dw0 = uint32(ctl.alive.after.Milliseconds())
		}
	default:
		return nvme.INVALID_FIELD | dnr
	}
	return nvme.SUCCESS
}

// awaitEvent holds the one command that may wait for an event until the queue ends: there
// are no events.
func (r *task) awaitEvent(ctx context.Context) nvme.Status {
	ctl := r.q.ctl.Load()
	ctl.mu.Lock()
	more := ctl.events
	ctl.events = true
	ctl.mu.Unlock()
	if more {
		return nvme.ASYNC_EVENT_LIMIT_EXCEEDED | dnr
	}
	<-ctx.Done()
	return nvme.ABORTED_SQ_DELETION
}

func (r *task) identify(ctx context.Context) nvme.Status {
	b := r.q.bytes(r.q.data(r.slot), nvme.IdentifySize)
	clear(b)
	cfg := &r.q.t.cfg
	switch cns := r.cmd.CDW10 & 0xff; cns {
	case nvme.CNS_CONTROLLER:
		r.describeController(b)
	case nvme.CNS_NAMESPACE:
		d := r.drive()
		if d == nil {
			return nvme.INVALID_NAMESPACE | dnr
		}
		for _, at := range []int{0, 8, 16} { // size, capacity, use
			binary.LittleEndian.PutUint64(b[at:], d.Blocks)
		}
		b[30] = 1 // controllers share it
		b[128+2] = byte(d.Shift)
	case nvme.CNS_ACTIVE_NAMESPACE:
		for i, at := r.cmd.NSID, 0; int(i) < len(cfg.Drives) && at < len(b); i, at = i+1, at+4 {
			binary.LittleEndian.PutUint32(b[at:], i+1)
		}
	case nvme.CNS_NAMESPACE_IDS:
		if r.drive() == nil {
			return nvme.INVALID_NAMESPACE | dnr
		}
		describeIDs(b, cfg.NQN, r.cmd.NSID)
	default:
		return nvme.INVALID_FIELD | dnr
	}
	s := abi.SGLOf(&r.cmd)
	if status := checkKeyed(s, nvme.IdentifySize); status != nvme.SUCCESS {
		return status
	}
	return transferred(r.q.move(ctx, r.slot, rdma.OpWrite, s))
}

// describeIDs fills the list of identifiers of a namespace with a UUID: always the same for
// the same subsystem and number.
func describeIDs(b []byte, nqn string, nsid uint32) {
	const typeUUID, size, custom = 3, 16, 0x80 // a UUID of version 8 is what its maker wants
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %d", nqn, nsid))
	b[0], b[1] = typeUUID, size
	id := b[4 : 4+size]
	copy(id, sum[:])
	id[6], id[8] = id[6]&0xf|custom, id[8]&0x3f|0x80
}

func (r *task) describeController(b []byte) {
	cfg := &r.q.t.cfg
	pad := func(at, n int, s string) {
		for i := range n {
			b[at+i] = ' '
		}
		copy(b[at:at+n], s)
	}
	pad(4, 20, "culvert")
	pad(24, 40, cfg.Model)
	pad(64, 8, "1")
	b[76] = 1 << 1 // several controllers
	b[77] = mdts
	binary.LittleEndian.PutUint16(b[78:], r.q.ctl.Load().id)
	binary.LittleEndian.PutUint32(b[80:], 0x10400)
	b[111] = 1                                                                     // an I/O controller
	binary.LittleEndian.PutUint16(b[320:], uint16(katUnit/(100*time.Millisecond))) // Keep Alive Support
	b[512], b[513] = 0x66, 0x44
	binary.LittleEndian.PutUint16(b[514:], maxDepth)
	binary.LittleEndian.PutUint32(b[516:], uint32(len(cfg.Drives)))
	b[525] = 1 // a volatile write cache: Flush counts
	binary.LittleEndian.PutUint32(b[536:], abi.SGLS_SUPPORTED|abi.SGLS_KEYED|abi.SGLS_OFFSET)
	copy(b[768:1024], cfg.NQN)
	binary.LittleEndian.PutUint32(b[abi.IDENTIFY_IOCCSZ:], nvme.CommandSize/16) // no data in I/O capsules
	binary.LittleEndian.PutUint32(b[abi.IDENTIFY_IORCSZ:], nvme.CompletionSize/16)
	b[abi.IDENTIFY_MSDBD] = 1
}

// drive is the namespace of the command; nil if there is none.
func (r *task) drive() *Drive {
	if id := r.cmd.NSID; id >= 1 && int(id) <= len(r.q.t.cfg.Drives) {
		return &r.q.t.cfg.Drives[id-1]
	}
	return nil
}

func (r *task) io(ctx context.Context) nvme.Status {
	d := r.drive()
	if d == nil {
		return nvme.INVALID_NAMESPACE | dnr
	}
	switch r.cmd.Opcode {
	case nvme.NVM_FLUSH:
		if d.Backing.Sync() != nil {
			return nvme.WRITE_FAULT
		}
		return nvme.SUCCESS
	case nvme.NVM_READ, nvme.NVM_WRITE:
		return r.transfer(ctx, d)
	}
	return nvme.INVALID_OPCODE | dnr
}

// transfer executes Read and Write: file, slot, and the host's memory.
func (r *task) transfer(ctx context.Context, d *Drive) nvme.Status {
	lba := uint64(r.cmd.CDW10) | uint64(r.cmd.CDW11)<<32
	blocks := uint64(r.cmd.CDW12&0xffff) + 1
	n := blocks << d.Shift
	switch {
	case lba > d.Blocks || blocks > d.Blocks-lba:
		return nvme.LBA_OUT_OF_RANGE | dnr
	case n > maxData:
		return nvme.INVALID_FIELD | dnr
	}
	s := abi.SGLOf(&r.cmd)
	if status := checkKeyed(s, uint32(n)); status != nvme.SUCCESS {
		return status
	}
	b, off := r.q.bytes(r.q.data(r.slot), int(n)), int64(lba<<d.Shift)
	if r.cmd.Opcode == nvme.NVM_READ {
		if _, err := d.Backing.ReadAt(b, off); err != nil {
			return nvme.UNRECOVERED_READ
		}
		return transferred(r.q.move(ctx, r.slot, rdma.OpWrite, s))
	}
	if err := r.q.move(ctx, r.slot, rdma.OpRead, s); err != nil {
		return transferred(err)
	}
	if _, err := d.Backing.WriteAt(b, off); err != nil {
		return nvme.WRITE_FAULT
	}
	if r.cmd.CDW12&nvme.NVM_FUA != 0 && d.Backing.Sync() != nil {
		return nvme.WRITE_FAULT
	}
	return nvme.SUCCESS
}

// checkKeyed returns an error unless the SGL names n bytes of the host's memory.
func checkKeyed(s abi.SGL, n uint32) nvme.Status {
	switch {
	case s.Type != abi.SGL_KEYED_DATA_BLOCK || s.Subtype != abi.SGL_ADDRESS && s.Subtype != abi.SGL_INVALIDATE:
		return abi.SGL_TYPE_INVALID | dnr
	case s.Len != n:
		return abi.SGL_LENGTH_INVALID | dnr
	}
	return nvme.SUCCESS
}

func transferred(err error) nvme.Status {
	switch {
	case err == nil:
		return nvme.SUCCESS
	case errors.Is(err, errData):
		return nvme.DATA_TRANSFER_ERROR
	}
	return nvme.ABORTED_SQ_DELETION
}
