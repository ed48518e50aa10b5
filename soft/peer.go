package soft

import (
	"github.com/culvert-io/culvert/gpu"
	softgpu "github.com/culvert-io/culvert/soft/gpu"
	"github.com/culvert-io/culvert/soft/kernel/nvrm"
)

// A peerDevice is a software GPU that uses the memory of a real PCI device, so that
// the kernel's direct I/O reaches it. The ladder finds it by these methods.
type peerDevice struct {
	nvrm.Device
	card *softgpu.GPU
}

// PeerDevice returns the PCI address of the device.
func (d *peerDevice) PeerDevice() string { return d.card.Peer() }

// PeerBytes returns the memory at [a, a+n), valid until back is called.
func (d *peerDevice) PeerBytes(a gpu.Addr, n uint64) (b []byte, back func(), err error) {
	return d.card.AcquirePeer(a, n)
}
