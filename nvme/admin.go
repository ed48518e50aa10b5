package nvme

import (
	"context"
	"fmt"

	abi "github.com/culvert-io/culvert/internal/abi/nvme"
)

// identify reads a data structure.
func identify[T abi.IdentifyController | abi.IdentifyNamespace | abi.NamespaceList](c *Controller, what string, cns, nsid uint32) (*T, error) {
	c.pageMu.Lock()
	defer c.pageMu.Unlock()
	clear(c.page.host)
	cmd := abi.Command{Opcode: abi.ADMIN_IDENTIFY, NSID: nsid, CDW10: cns, PRP1: c.page.table.at(0)}
	if _, err := c.do(context.Background(), what, &cmd, false); err != nil {
		return nil, err
	}
	return view[T](c.page.host), nil
}

// grant requests queues and returns the number of pairs that the controller
// granted. The caller holds resetting.
func (c *Controller) grant() (int, error) {
	cmd := abi.Command{Opcode: abi.ADMIN_SET_FEATURES, CDW10: abi.FEAT_NUM_QUEUES, CDW11: (maxQueues-1)<<16 | (maxQueues - 1)}
	dw0, err := c.do(context.Background(), "set number of queues", &cmd, true)
	if err != nil {
		return 0, err
	}
	n := min(int(dw0&0xffff), int(dw0>>16)) + 1
	for n = min(n, maxQueues); abi.CQHDBL(uint16(n), c.cap.DSTRD())+4 > c.t.BARSize(); {
		n--
	}
	return n, nil
}

// create creates a queue pair in the controller: the completion queue first. The
// caller holds resetting.
func (c *Controller) create(q *Queue) error {
	vector := -1
	if q.irq != nil {
		vector = int(q.id)
	}
	cq := abi.CreateCQ(q.id, q.n, q.cqBus, vector)
	if _, err := c.do(context.Background(), "create completion queue", &cq, true); err != nil {
		return err
	}
	sq := abi.CreateSQ(q.id, q.n, q.sqBus)
	if _, err := c.do(context.Background(), "create submission queue", &sq, true); err != nil {
		if derr := c.delete(abi.ADMIN_DELETE_CQ, q.id); derr != nil && !c.halted {
			c.halt(derr) // the controller would keep using the memory
		}
		return err
	}
	return nil
}

// remove deletes a queue pair in the controller: the submission queue first. The
// caller holds resetting.
func (c *Controller) remove(q *Queue) error {
	if err := c.delete(abi.ADMIN_DELETE_SQ, q.id); err != nil {
		return err
	}
	return c.delete(abi.ADMIN_DELETE_CQ, q.id)
}

func (c *Controller) delete(opcode uint8, id uint16) error {
	cmd := abi.Command{Opcode: opcode, CDW10: uint32(id)}
	_, err := c.do(context.Background(), fmt.Sprintf("delete queue %d", id), &cmd, true)
	return err
}
