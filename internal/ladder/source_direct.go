package ladder

import (
	"context"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/route"
)

// A DirectSource is a Source with a device of its own that reaches GPU memory: a drive
// without a file system (nvme), a network adapter (rdma).
type DirectSource interface {
	Source
	// Route is the route that the device is: route.NVMe or route.RDMA.
	Route() route.ID
	// Path names what is between the bytes and the GPU. What proofs of arrival have shown
	// holds for all sources with the same path.
	Path() string
	// Alignment is the unit of offsets and lengths, and that of memory addresses.
	Alignment() (block, memory uint64)
	// Map lets the device reach a registered buffer, and returns the part that it does
	// reach. Unmap ends that; no Move may use the buffer.
	Map(dev gpu.Device, buf gpu.Span) (gpu.Span, error)
	Unmap(buf gpu.Span) error
	// Move has the device move bytes between the source at off and mapped memory. When it
	// returns, nothing touches the memory any more, and the GPU sees what was read.
	Move(ctx context.Context, dir route.Dir, mem gpu.Span, off int64) (int64, error)
	// OnClose has f called when the source is closed. No transfer uses it then.
	OnClose(f func())
}

// directSource is the source as a DirectSource of a route.
func directSource(src Source, id route.ID) (DirectSource, bool) {
	s, ok := src.(DirectSource)
	return s, ok && s.Route() == id
}
