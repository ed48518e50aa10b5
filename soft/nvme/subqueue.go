package nvme

import (
	"sync"
	"sync/atomic"

	abi "github.com/culvert-io/culvert/internal/abi/nvme"
	"github.com/culvert-io/culvert/soft/internal/gate"
)

// A subQueue is a submission queue.
type subQueue struct {
	id       uint16
	base     uint64
	size     uint32
	doorbell uint64 // offset of the register
	cq       *compQueue

	queued atomic.Bool   // for a worker
	head   atomic.Uint32 // written with mu held

	mu      sync.Mutex
	workers gate.Gate // shut when the queue is deleted, or the controller reset
}

func newSubQueue(id uint16, base uint64, size uint32, stride uint8, cq *compQueue) *subQueue {
	return &subQueue{id: id, base: base, size: size, doorbell: abi.SQTDBL(id, stride), cq: cq}
}
