package gpu

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
)

// peerDir is where the kernel shows the peer memory of a PCI device.
func peerDir(pci string) string {
	return filepath.Join("/sys/bus/pci/devices", filepath.Base(pci), "p2pmem")
}

// peerFree is how much peer memory of a device nobody has taken.
func peerFree(pci string) (uint64, error) {
	text, err := os.ReadFile(filepath.Join(peerDir(pci), "available"))
	if errors.Is(err, os.ErrNotExist) {
		return 0, fmt.Errorf("PCI device %s has no peer memory, or the kernel no CONFIG_PCI_P2PDMA: %w", pci, err)
	}
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", peerDir(pci), err)
	}
	if n < blockSize {
		return 0, fmt.Errorf("PCI device %s has %d bytes of peer memory left: a block has %d: %w", pci, n, blockSize, gpu.ErrOutOfMemory)
	}
	return n, nil
}

// newPeerArena takes the memory of a card from a real device. The kernel has
// page structures for it, so that direct I/O accepts it as a buffer and the
// drive's DMA goes there without touching host memory.
func newPeerArena(pci string, size uint64) (*arena, error) {
	f, err := os.OpenFile(filepath.Join(peerDir(pci), "allocate"), os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	a := freshArena(size / FrameSize)
	a.peer = true
	a.mapped, err = unix.Mmap(int(f.Fd()), 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, &os.PathError{Op: "mmap", Path: f.Name(), Err: err}
	}
	return a, nil
}

// Peer is the PCI device that the card's memory was taken from; "" where it is
// memory of this machine.
func (g *GPU) Peer() string { return g.drv.cfg.Peer }

// ErrScattered means that bytes do not lie side by side.
var ErrScattered = errors.New("the memory does not lie in one piece")

// AcquirePeer is Acquire for memory that real devices can reach and that lies in one
// piece.
func (g *GPU) AcquirePeer(a gpu.Addr, n uint64) (b []byte, back func(), err error) {
	if !g.arena.peer {
		return nil, nil, gpu.Fail("lend peer memory", gpu.ErrNotSupported, "the GPU's memory is memory of this machine")
	}
	l, err := g.Acquire(a, n)
	if err != nil {
		return nil, nil, err
	}
	if len(l.Segs()) != 1 {
		l.Release()
		return nil, nil, fmt.Errorf("%d bytes at %v: %d pieces: %w", n, a, len(l.Segs()), ErrScattered)
	}
	return l.Segs()[0], l.Release, nil
}
