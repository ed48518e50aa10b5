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

// peerDir returns the directory of the peer memory of a PCI device.
func peerDir(pci string) string {
	return filepath.Join("/sys/bus/pci/devices", filepath.Base(pci), "p2pmem")
}

// peerFree returns the size of the free peer memory of a device.
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

// newPeerArena allocates the memory of a card in a real device. The kernel has page
// structures for it, so that O_DIRECT accepts it as a buffer and the drive's DMA bypasses
// host memory.
func newPeerArena(pci string, size uint64) (*arena, error) {
	f, err := os.OpenFile(filepath.Join(peerDir(pci), "allocate"), os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	a := &arena{used: make([]byte, size/FrameSize), peer: true}
	a.mapped, err = unix.Mmap(int(f.Fd()), 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, &os.PathError{Op: "mmap", Path: f.Name(), Err: err}
	}
	return a, nil
}

// Peer returns the PCI device that has the card's memory; "" for memory of this machine.
func (g *GPU) Peer() string { return g.drv.cfg.Peer }

// ErrScattered means that memory is not contiguous.
var ErrScattered = errors.New("the memory is not contiguous")

// AcquirePeer is Acquire for contiguous memory that real devices can reach.
func (g *GPU) AcquirePeer(a gpu.Addr, n uint64) (b []byte, release func(), err error) {
	if !g.arena.peer {
		return nil, nil, gpu.Fail("acquire peer memory", gpu.ErrNotSupported, "the GPU's memory is memory of this machine")
	}
	access, err := g.Acquire(a, n)
	if err != nil {
		return nil, nil, err
	}
	segs := access.Segs()
	if len(segs) != 1 {
		access.Release()
		return nil, nil, fmt.Errorf("acquire %d bytes at %v: %d segments: %w", n, a, len(segs), ErrScattered)
	}
	return segs[0], access.Release, nil
}
