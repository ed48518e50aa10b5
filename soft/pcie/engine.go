package pcie

import "github.com/culvert-io/culvert/soft/pcie/syncpoint"

// An Engine is a device of somebody else that can do nothing but DMA: an FPGA
// with a list of addresses. Tests and examples drive it. It is safe for
// concurrent use.
type Engine struct {
	Port Port
	// Points, if any, are passed by every transfer: "engine.lent" before the
	// bytes move, "engine.moved" after.
	Points *syncpoint.Points
	ID     uint64 // for Points
}

// Write moves data to the bus ranges and returns how many bytes went: as many
// as there are data and room.
func (e *Engine) Write(sg []Range, data []byte) (int, error) {
	return e.move(sg, Write, func(seg []byte) (n int) {
		n = copy(seg, data)
		data = data[n:]
		return n
	})
}

// Read moves the bytes of the bus ranges to p and returns how many came: as
// many as there are bytes and room.
func (e *Engine) Read(sg []Range, p []byte) (int, error) {
	return e.move(sg, Read, func(seg []byte) (n int) {
		n = copy(p, seg)
		p = p[n:]
		return n
	})
}

func (e *Engine) move(sg []Range, d Dir, each func(seg []byte) int) (moved int, err error) {
	loan, err := e.Port.LendAll(sg, d)
	if err != nil {
		return 0, err
	}
	e.Points.At("engine.lent", e.ID)
	for _, seg := range loan.Segs() {
		moved += each(seg)
	}
	e.Points.At("engine.moved", e.ID)
	return moved, loan.Return(moved)
}
