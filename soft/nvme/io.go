package nvme

import (
	abi "github.com/culvert-io/culvert/internal/abi/nvme"
	"github.com/culvert-io/culvert/soft/pcie"
)

// execute executes a command and completes it, or parks it.
func (w *worker) execute(sq *subQueue, cmd *abi.Command) {
	var dw0 uint32
	var s abi.Status
	switch {
	case cmd.Flags&(abi.FLAGS_FUSE_MASK|abi.FLAGS_PSDT_MASK) != 0:
		s = abi.INVALID_FIELD | abi.STATUS_DNR
	case sq.id == 0:
		dw0, s = w.admin(cmd)
	case w.c.park(sq, cmd.CID):
		return
	default:
		s = w.io(sq, cmd)
	}
	w.c.complete(sq, cmd.CID, dw0, s)
}

func (w *worker) io(sq *subQueue, cmd *abi.Command) abi.Status {
	if cmd.Opcode == abi.NVM_FLUSH && cmd.NSID == abi.NSID_ALL {
		return w.c.flushAll()
	}
	ns := w.c.namespace(cmd.NSID)
	if ns == nil {
		return abi.INVALID_NAMESPACE | abi.STATUS_DNR
	}
	switch cmd.Opcode {
	case abi.NVM_FLUSH:
		return flush(ns)
	case abi.NVM_READ:
		return w.transfer(sq, cmd, ns, Read)
	case abi.NVM_WRITE:
		return w.transfer(sq, cmd, ns, Write)
	case abi.NVM_WRITE_ZEROES:
		return w.zero(cmd, ns)
	}
	return abi.INVALID_OPCODE | abi.STATUS_DNR
}

// namespace returns the namespace with an id, or nil.
func (c *Controller) namespace(nsid uint32) *namespace {
	if nsid == 0 || uint64(nsid) > uint64(len(c.spaces)) {
		return nil
	}
	return c.spaces[nsid-1]
}

func flush(ns *namespace) abi.Status {
	if ns.Flush() != nil {
		return abi.INTERNAL_ERROR
	}
	return abi.SUCCESS
}

func (c *Controller) flushAll() abi.Status {
	for _, ns := range c.spaces {
		if s := flush(ns); s != abi.SUCCESS {
			return s
		}
	}
	return abi.SUCCESS
}

// blockRange returns the blocks of a command.
func blockRange(cmd *abi.Command) (lba, n uint64) {
	return uint64(cmd.CDW10) | uint64(cmd.CDW11)<<32, uint64(cmd.CDW12&0xffff) + 1
}

// transfer is Read or Write.
func (w *worker) transfer(sq *subQueue, cmd *abi.Command, ns *namespace, op Op) abi.Status {
	lba, blocks := blockRange(cmd)
	n := int(blocks << ns.shift)
	switch {
	case w.c.cfg.MaxTransfer > 0 && n > w.c.cfg.MaxTransfer:
		return abi.INVALID_FIELD | abi.STATUS_DNR
	case !ns.holds(lba, blocks):
		return abi.LBA_OUT_OF_RANGE | abi.STATUS_DNR
	}
	if s := w.prps(cmd, n); s != abi.SUCCESS {
		return s
	}
	if w.c.bad(cmd.NSID, lba, blocks, op) {
		return mediumError(op)
	}
	dir := pcie.Write
	if op == Write {
		dir = pcie.Read
	}
	liar := w.c.liar.Load()
	if liar != nil {
		w.c.late.deliver(w.c)
	}
	access, err := w.c.fn.AcquireAll(w.ranges, dir)
	if err != nil {
		return abi.DATA_TRANSFER_ERROR
	}
	w.c.cfg.Points.At("nvme.acquired", uint64(sq.id))
	var s abi.Status
	if lie, dice, ok := liar.pick(liar != nil && access.Peer()); ok {
		s = w.tell(liar, lie, dice, ns, access.Segs(), int64(lba<<ns.shift), n, op)
	} else {
		s = w.move(ns, access.Segs(), int64(lba<<ns.shift), n, op)
	}
	w.c.cfg.Points.At("nvme.moved", uint64(sq.id))
	moved := n
	if s != abi.SUCCESS {
		moved = 0
	}
	if access.Release(moved) != nil && s == abi.SUCCESS {
		return abi.DATA_TRANSFER_ERROR
	}
	return s
}

func mediumError(op Op) abi.Status {
	if op == Write {
		return abi.WRITE_FAULT
	}
	return abi.UNRECOVERED_READ
}

// move moves bytes between the medium and memory.
func (w *worker) move(ns *namespace, segs [][]byte, off int64, n int, op Op) abi.Status {
	if op == Write {
		if k, err := ns.WriteV(segs, off); err != nil || k < n {
			return abi.WRITE_FAULT
		}
		w.c.stats.in.Add(uint64(n))
		return abi.SUCCESS
	}
	k, err := ns.ReadV(segs, off)
	if err != nil {
		return abi.UNRECOVERED_READ
	}
	if k < n {
		// The medium ends in the last block of this transfer, or was truncated.
		if end, err := ns.blocks(); err != nil || uint64(off)+uint64(n) > end<<ns.shift {
			return abi.LBA_OUT_OF_RANGE | abi.STATUS_DNR
		}
		clearFrom(segs, k)
	}
	w.c.stats.out.Add(uint64(n))
	return abi.SUCCESS
}

// clearFrom zeroes the segments from byte n on.
func clearFrom(segs [][]byte, n int) {
	for _, seg := range segs {
		k := min(n, len(seg))
		clear(seg[k:])
		n -= k
	}
}

func (w *worker) zero(cmd *abi.Command, ns *namespace) abi.Status {
	lba, n := blockRange(cmd)
	switch {
	case !ns.holds(lba, n):
		return abi.LBA_OUT_OF_RANGE | abi.STATUS_DNR
	case w.c.bad(cmd.NSID, lba, n, Write), ns.Zero(int64(lba<<ns.shift), int64(n<<ns.shift)) != nil:
		return abi.WRITE_FAULT
	}
	return abi.SUCCESS
}
