package soft

import (
	"github.com/culvert-io/culvert/gpu"
	softgpu "github.com/culvert-io/culvert/soft/gpu"
	"github.com/culvert-io/culvert/soft/kernel/nvrm"
)

// A peerDevice is a software GPU whose memory a real PCI device lends it, so
// that the kernel's direct I/O reaches it: package route finds it by these
// methods.
type peerDevice struct {
	nvrm.Device
	card *softgpu.GPU
}

// PeerDevice is the PCI address of the device that has the memory.
func (d *peerDevice) PeerDevice() string { return d.card.Peer() }

// PeerBytes lends the memory at [a, a+n) until back is called.
func (d *peerDevice) PeerBytes(a gpu.Addr, n uint64) (b []byte, back func(), err error) {
	return d.card.AcquirePeer(a, n)
}
