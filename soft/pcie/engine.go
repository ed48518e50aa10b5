package pcie

import "github.com/culvert-io/culvert/soft/pcie/syncpoint"

// An Engine copies between memory of the program and bus addresses, as the DMA engine of
// a device does. It is safe for concurrent use.
type Engine struct {
	Port *Function
	// Points, if not nil, are passed by every transfer: "engine.acquired" before the
	// bytes move, "engine.moved" after.
	Points *syncpoint.Points
	ID     uint64 // for Points
}

// Write moves data to the bus ranges, up to the shorter of the two, and returns the
// number of bytes.
func (e *Engine) Write(sg []Range, data []byte) (int, error) {
	return e.move(sg, Write, func(seg []byte) (n int) {
		n = copy(seg, data)
		data = data[n:]
		return n
	})
}

// Read moves the bytes of the bus ranges to p, up to the shorter of the two, and
// returns the number of bytes.
func (e *Engine) Read(sg []Range, p []byte) (int, error) {
	return e.move(sg, Read, func(seg []byte) (n int) {
		n = copy(p, seg)
		p = p[n:]
		return n
	})
}

func (e *Engine) move(sg []Range, d Dir, each func(seg []byte) int) (moved int, err error) {
	access, err := e.Port.AcquireAll(sg, d)
	if err != nil {
		return 0, err
	}
	e.Points.At("engine.acquired", e.ID)
	for _, seg := range access.Segs() {
		moved += each(seg)
	}
	e.Points.At("engine.moved", e.ID)
	return moved, access.Release(moved)
}
