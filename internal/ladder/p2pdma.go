package ladder

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/internal/storage"
	"github.com/culvert-io/culvert/route"
)

// A PeerMemory is a GPU whose memory a process can map as P2PDMA pages (ZONE_DEVICE
// pages of the kernel's PCI_P2PDMA): direct I/O accepts such a mapping as a buffer,
// and the drive's DMA goes to the device.
type PeerMemory interface {
	// PeerDevice is the PCI address of the device that has the memory.
	PeerDevice() string
	// PeerBytes maps the memory at [a, a+n). The memory stays allocated until release
	// is called, also if its owner frees it. The CPU should not access the bytes: the
	// device may be unplugged.
	PeerBytes(a gpu.Addr, n uint64) (b []byte, release func(), err error)
}

// A p2pdmaRoute reads and writes files with O_DIRECT on peer memory: the drive moves
// the bytes, and they do not enter host memory. Unaligned ends go through the page
// cache.
type p2pdmaRoute struct {
	basic
	dev  gpu.Device
	peer PeerMemory
	os   dev.OS
	root fs.FS // of os, with /proc and /sys

	maps table[peerMapping]
	// known has a *route.Decline per device that the kernel has answered for; nil
	// means that it accepted a transfer.
	known sync.Map // by deviceKey
}

// A peerMapping is a registered buffer as direct I/O uses it.
type peerMapping struct {
	bytes   []byte
	release func()
}

// A deviceKey identifies the device below files.
type deviceKey struct{ fs, dev string }

func keyOf(f *storage.File) deviceKey { return deviceKey{f.Facts.FS, f.Facts.Dev} }

// findP2PDMA returns the route, or why this machine does not have it.
func findP2PDMA(device gpu.Device, os dev.OS) (Route, *route.Decline) {
	peer, ok := device.(PeerMemory)
	if !ok {
		return nil, noP2PDMA(os)
	}
	return &p2pdmaRoute{dev: device, peer: peer, os: os, root: os.FS()}, nil
}

var p2pdmaTexts = [numReasons]*route.Decline{
	hostMemory:   decline(route.P2PDMA, "buffer", "not device memory", ""),
	unregistered: decline(route.P2PDMA, "buffer", "memory is not a registered buffer", "register the buffer"),
	unprepared:   decline(route.P2PDMA, "buffer", "the registered buffer cannot be mapped as P2PDMA pages", ""),
	noWholeBlock: decline(route.P2PDMA, "alignment", "request contains no whole block of the file", ""),
	partialBlock: decline(route.P2PDMA, "alignment", "the request is not in whole blocks of the file", "use whole blocks and truncate the file to its length, or do not require the route: unaligned ends then use another"),
	phase:        decline(route.P2PDMA, "alignment", "memory address and file offset differ modulo the block size", "use buffer offsets that are congruent to the file's"),
}

// Traits needs a file that supports direct I/O, on a drive (file systems in memory
// support it too, and copy), and for unaligned ends a descriptor that goes through
// the page cache.
func (p *p2pdmaRoute) Traits(src Source) (t Traits, d *route.Decline) {
	if d := needsBuffered(route.P2PDMA, src); d != nil {
		return t, d
	}
	if d := needsDirect(route.P2PDMA, src); d != nil {
		return t, d
	}
	f := src.File()
	if d := declineStack(route.P2PDMA, p.os, f, nil); d != nil {
		return t, d
	}
	return Traits{
		ID: route.P2PDMA, Scope: "requests with whole blocks, between registered buffers and the file",
		Direct: true, Reads: true, Writes: true, Registered: true, KeepsMemory: true,
		Block: uint64(max(f.Facts.Direct.OffAlign, 1)), texts: &p2pdmaTexts,
	}, p.learned(f)
}

// learned is what the kernel has answered for files of the same device.
func (p *p2pdmaRoute) learned(f *storage.File) *route.Decline {
	if d, ok := p.known.Load(keyOf(f)); ok {
		return d.(*route.Decline)
	}
	return nil
}

func (p *p2pdmaRoute) learn(f *storage.File, d *route.Decline) { p.known.Store(keyOf(f), d) }

// State looks up the mapping of a buffer. Newer kernels accept memory aligned to four
// bytes; whole blocks are what all kernels and drives accept.
func (p *p2pdmaRoute) State(op *Op) State {
	s := State{Learned: p.learned(op.file())}
	m, ok := p.maps.get(op.Mem.Base)
	if !ok {
		return s
	}
	s.Prepared = true
	align := uint64(max(op.file().Facts.Direct.MemAlign, op.file().Facts.Direct.OffAlign, 1))
	first := cutDirect(op, op.end()).from
	s.Misaligned = (uint64(gpu.HostAddr(m.bytes))+op.Mem.Off+uint64(first-op.Off))%align != 0
	return s
}

// Try reads one block of a file into peer memory. Whether the kernel lets the drive
// reach the GPU depends on switches, their access control and a list of host bridges,
// so only a transfer can tell. If there is nothing to read, the first transfer will.
func (p *p2pdmaRoute) Try(src Source) *route.Decline {
	f := src.File()
	if d, ok := p.known.Load(keyOf(f)); ok {
		return d.(*route.Decline)
	}
	block := uint64(max(f.Facts.Direct.OffAlign, hostPage))
	if size, err := f.Size(); err != nil || uint64(size) < block || !f.Readable() {
		return nil
	}
	a, err := p.dev.Alloc(gpu.KindDevice, block, 0)
	if err != nil {
		return nil
	}
	defer p.dev.Free(a)
	b, release, err := p.peer.PeerBytes(a, block)
	if err != nil {
		return decline(route.P2PDMA, "peer memory", err.Error(), "")
	}
	defer release()
	_, err = moveAll(unix.Pread, f.Direct(), b, 0, directUnit(f), new(int))
	if p.unplugged() {
		return decline(route.P2PDMA, "peer memory", "PCI device "+p.peer.PeerDevice()+" was removed", "plug it in and start again")
	}
	if d := p.rejection(f, err); d != nil {
		p.learn(f, d)
		return d
	}
	if err == nil {
		p.learn(f, nil)
	}
	return nil
}

// Register maps a buffer.
func (p *p2pdmaRoute) Register(span gpu.Span, kind gpu.Kind) {
	if !kind.OnDevice() {
		return
	}
	if b, release, err := p.peer.PeerBytes(span.Base, span.Len); err == nil {
		p.maps.set(span.Base, peerMapping{b, release})
	}
}

// Deregister unmaps it.
func (p *p2pdmaRoute) Deregister(span gpu.Span) {
	if m, ok := p.maps.remove(span.Base); ok {
		m.release()
	}
}

// Mapping is a buffer as direct I/O uses it. The CPU accesses few bytes of it, as of a
// BAR.
func (p *p2pdmaRoute) Mapping(base gpu.Addr) []byte {
	m, _ := p.maps.get(base)
	return m.bytes
}

// Run moves one op after the other.
func (p *p2pdmaRoute) Run(ctx context.Context, ops []Op, res []route.Receipt) error {
	for i := range ops {
		if err := p.run(ctx, &ops[i], &res[i]); err != nil {
			return p.explain(ops, i, &res[i], err)
		}
	}
	return nil
}

// explain distinguishes a rejection by the kernel, after which another route is used,
// from an error.
func (p *p2pdmaRoute) explain(ops []Op, i int, r *route.Receipt, err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	op := &ops[i]
	at := op.Off + r.Bytes
	if p.unplugged() {
		err = fmt.Errorf("GPU memory is gone: PCI device %s was removed: %w (%w)", p.peer.PeerDevice(), unix.ENODEV, err)
		return op.failAt(at, " by peer-to-peer DMA", err)
	}
	if d := p.rejection(op.file(), err); d != nil {
		p.learn(op.file(), d)
		return &RejectedError{d, err}
	}
	return ambiguousToNextRoute(route.P2PDMA, ops, op.failAt(at, " by peer-to-peer DMA", err))
}

// Close unmaps all buffers.
func (p *p2pdmaRoute) Close() error {
	for _, m := range p.maps.clear() {
		m.release()
	}
	return nil
}
