package nvme

import abi "github.com/culvert-io/culvert/internal/abi/nvme"

func (w *worker) admin(cmd *abi.Command) (dw0 uint32, s abi.Status) {
	c := w.c
	switch cmd.Opcode {
	case abi.ADMIN_IDENTIFY:
		return 0, w.identify(cmd)
	case abi.ADMIN_CREATE_CQ:
		return 0, c.createCQ(cmd)
	case abi.ADMIN_CREATE_SQ:
		return 0, c.createSQ(cmd)
	case abi.ADMIN_DELETE_SQ:
		return 0, c.deleteSQ(uint16(cmd.CDW10))
	case abi.ADMIN_DELETE_CQ:
		return 0, c.deleteCQ(uint16(cmd.CDW10))
	case abi.ADMIN_SET_FEATURES:
		return c.setFeatures(cmd)
	case abi.ADMIN_GET_FEATURES:
		return c.getFeatures(cmd)
	case abi.ADMIN_ABORT:
		return c.abort(uint16(cmd.CDW10), uint16(cmd.CDW10>>16)), abi.SUCCESS
	}
	return 0, abi.INVALID_OPCODE | abi.STATUS_DNR
}

func (c *Controller) abort(sqid, cid uint16) uint32 {
	if c.unpark(abi.ABORT_REQUESTED, func(p parked) bool { return p.sq.id == sqid && p.cid == cid }) == 0 {
		return abi.ABORT_NOT_DONE
	}
	return 0
}

// queueArgs checks the arguments common to both kinds of queue.
func (c *Controller) queueArgs(cmd *abi.Command) (id uint16, size uint32, s abi.Status) {
	id, size = uint16(cmd.CDW10), cmd.CDW10>>abi.QUEUE_SIZE_SHIFT+1
	switch {
	case id == 0 || int(id) >= len(c.sqs):
		s = abi.INVALID_QUEUE_ID
	case size < 2 || size > uint32(c.cfg.Entries):
		s = abi.INVALID_QUEUE_SIZE
	case cmd.PRP1 == 0 || cmd.PRP1%c.page.Load() != 0:
		s = abi.PRP_OFFSET_INVALID
	case cmd.CDW11&abi.QUEUE_PC == 0:
		s = abi.INVALID_FIELD
	default:
		return id, size, abi.SUCCESS
	}
	return id, size, s | abi.STATUS_DNR
}

func (c *Controller) createCQ(cmd *abi.Command) abi.Status {
	id, size, s := c.queueArgs(cmd)
	if s != abi.SUCCESS {
		return s
	}
	vector := int(cmd.CDW11 >> abi.CQ_IV_SHIFT)
	if vector >= len(c.vectors) {
		return abi.INVALID_INTERRUPT_VECTOR | abi.STATUS_DNR
	}
	if cmd.CDW11&abi.CQ_IEN == 0 {
		vector = -1
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cqs[id].Load() != nil {
		return abi.INVALID_QUEUE_ID | abi.STATUS_DNR
	}
	c.queues = true
	c.regs.store32(abi.CQHDBL(id, c.cfg.Stride), 0)
	c.cqs[id].Store(newCompQueue(id, cmd.PRP1, size, c.cfg.Stride, vector))
	return abi.SUCCESS
}

func (c *Controller) createSQ(cmd *abi.Command) abi.Status {
	id, size, s := c.queueArgs(cmd)
	if s != abi.SUCCESS {
		return s
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	cq := c.cq(uint16(cmd.CDW11 >> abi.SQ_CQID_SHIFT))
	switch {
	case cq == nil:
		return abi.CQ_INVALID | abi.STATUS_DNR
	case c.sqs[id].Load() != nil:
		return abi.INVALID_QUEUE_ID | abi.STATUS_DNR
	}
	cq.users++
	c.regs.store32(abi.SQTDBL(id, c.cfg.Stride), 0)
	c.sqs[id].Store(newSubQueue(id, cmd.PRP1, size, c.cfg.Stride, cq))
	return abi.SUCCESS
}

// deleteSQ returns when all commands of the queue are completed.
func (c *Controller) deleteSQ(id uint16) abi.Status {
	if id == 0 || int(id) >= len(c.sqs) {
		return abi.INVALID_QUEUE_ID | abi.STATUS_DNR
	}
	c.mu.Lock()
	sq := c.sqs[id].Swap(nil)
	c.mu.Unlock()
	if sq == nil {
		return abi.INVALID_QUEUE_ID | abi.STATUS_DNR
	}
	sq.workers.Shut()
	c.unpark(abi.ABORTED_SQ_DELETION, func(p parked) bool { return p.sq == sq })
	c.mu.Lock()
	defer c.mu.Unlock()
	sq.cq.users--
	return abi.SUCCESS
}

// cq returns a completion queue for I/O, or nil.
func (c *Controller) cq(id uint16) *compQueue {
	if id == 0 || int(id) >= len(c.cqs) {
		return nil
	}
	return c.cqs[id].Load()
}

func (c *Controller) deleteCQ(id uint16) abi.Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	cq := c.cq(id)
	switch {
	case cq == nil:
		return abi.INVALID_QUEUE_ID | abi.STATUS_DNR
	case cq.users > 0:
		return abi.INVALID_QUEUE_DELETION | abi.STATUS_DNR
	}
	c.cqs[id].Store(nil)
	return abi.SUCCESS
}

// granted is dword 0 of the completion of Number of Queues.
func (c *Controller) granted() uint32 {
	n := uint32(c.cfg.Queues - 1)
	return n | n<<16
}

func (c *Controller) setFeatures(cmd *abi.Command) (uint32, abi.Status) {
	switch cmd.CDW10 & 0xff {
	case abi.FEAT_NUM_QUEUES:
		if cmd.CDW11&0xffff == 0xffff || cmd.CDW11>>16 == 0xffff {
			return 0, abi.INVALID_FIELD | abi.STATUS_DNR
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.queues {
			return 0, abi.COMMAND_SEQUENCE_ERROR | abi.STATUS_DNR
		}
		return c.granted(), abi.SUCCESS
	case abi.FEAT_ARBITRATION, abi.FEAT_VWC:
		return 0, abi.SUCCESS // there is nothing to set
	}
	return 0, abi.INVALID_FIELD | abi.STATUS_DNR
}

func (c *Controller) getFeatures(cmd *abi.Command) (uint32, abi.Status) {
	switch cmd.CDW10 & 0xff {
	case abi.FEAT_NUM_QUEUES:
		return c.granted(), abi.SUCCESS
	case abi.FEAT_ARBITRATION:
		return 0, abi.SUCCESS
	case abi.FEAT_VWC:
		return 1, abi.SUCCESS
	}
	return 0, abi.INVALID_FIELD | abi.STATUS_DNR
}

// answer writes a data structure to the memory of a command.
func (w *worker) answer(cmd *abi.Command, data []byte) abi.Status {
	if s := w.prps(cmd, len(data)); s != abi.SUCCESS {
		return s
	}
	if _, err := w.c.dma.Write(w.ranges, data); err != nil {
		return abi.DATA_TRANSFER_ERROR
	}
	w.c.stats.out.Add(uint64(len(data)))
	return abi.SUCCESS
}
