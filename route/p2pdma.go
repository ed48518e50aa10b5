package route

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/internal/storage"
)

// A PeerMemory is a GPU whose memory the process can map in pages that the
// kernel knows as peer memory (ZONE_DEVICE pages of PCI_P2PDMA): direct I/O takes
// such a mapping as a buffer and has the drive's DMA go straight to the device.
type PeerMemory interface {
	// PeerDevice is the PCI address of the device that has the memory.
	PeerDevice() string
	// PeerBytes maps the memory at [a, a+n). It stays what it is until back is
	// called, also when its owner frees it. The CPU should not touch the bytes:
	// the device may be unplugged.
	PeerBytes(a gpu.Addr, n uint64) (b []byte, back func(), err error)
}

// A P2PDMARoute reads and writes files with O_DIRECT on peer memory: the drive
// moves the bytes, and they touch no host memory. What of a request is not
// aligned goes through the page cache.
type P2PDMARoute struct {
	dev  gpu.Device
	peer PeerMemory
	root fs.FS // with /proc and /sys

	mu   sync.Mutex // serialises changes of the two
	wins atomic.Pointer[map[gpu.Addr]*peerWindow]
	// known is what the kernel said about files of a device so far.
	known atomic.Pointer[map[deviceKey]*Decline]
}

// A peerWindow is a registered buffer as direct I/O takes it.
type peerWindow struct {
	bytes []byte
	back  func()
}

// A deviceKey names what files share that live side by side. A nil *Decline
// under it means that the kernel took a transfer.
type deviceKey struct{ fs, dev string }

func keyOf(f *storage.File) deviceKey { return deviceKey{f.Facts.FS, f.Facts.Dev} }

// newP2PDMA returns the route, or why this machine has none.
func newP2PDMA(device gpu.Device, os dev.OS) (*P2PDMARoute, *Decline) {
	peer, ok := device.(PeerMemory)
	if !ok {
		return nil, noP2PDMA(os)
	}
	p := &P2PDMARoute{dev: device, peer: peer, root: os.FS()}
	p.wins.Store(&map[gpu.Addr]*peerWindow{})
	p.known.Store(&map[deviceKey]*Decline{})
	return p, nil
}

// ID is P2PDMA.
func (p *P2PDMARoute) ID() ID { return P2PDMA }

// Scope says which requests the route is for.
func (p *P2PDMARoute) Scope() string {
	return "requests with whole blocks, between registered buffers and the file"
}

// holds says that a window keeps its memory.
func (p *P2PDMARoute) holds() {}

// Probe wants a file that takes direct I/O, on a drive (file systems in memory
// take it too, and copy), and for ragged ends a descriptor that goes through the
// page cache. Whether the kernel lets the drive reach the GPU
// cannot be told by looking (it depends on switches, their access control, and a
// list of host bridges), so that one block is read.
func (p *P2PDMARoute) Probe(f *storage.File) Verdict {
	switch {
	case f.Direct() < 0:
		return &Decline{P2PDMA, "O_DIRECT", f.Name + ": " + f.Facts.Direct.Source, "put the file on a file system with O_DIRECT (ext4, xfs)"}
	case f.Buffered() < 0:
		return &Decline{P2PDMA, "descriptor", f.Name + " has O_DIRECT and cannot be opened again without", "mount /proc, or open the file without O_DIRECT"}
	}
	if _, err := storage.FindBlockDevice(p.root, f.Facts.Dev); err != nil {
		return &Decline{P2PDMA, "block device", f.Facts.FS + ": " + err.Error(), "put the file on the file system of a drive (ext4, xfs)"}
	}
	if d, ok := (*p.known.Load())[keyOf(f)]; ok {
		return d
	}
	return p.try(f)
}

// try reads a block of the file into peer memory. Where there is none to read,
// the first transfer will tell.
func (p *P2PDMARoute) try(f *storage.File) *Decline {
	block := uint64(max(f.Facts.Direct.OffAlign, hostPage))
	if size, err := f.Size(); err != nil || uint64(size) < block || !f.Readable() {
		return nil
	}
	a, err := p.dev.Alloc(gpu.KindDevice, block, 0)
	if err != nil {
		return nil
	}
	defer p.dev.Free(a)
	b, back, err := p.peer.PeerBytes(a, block)
	if err != nil {
		return &Decline{P2PDMA, "peer memory", err.Error(), ""}
	}
	defer back()
	_, err = moveAll(unix.Pread, f.Direct(), b, 0, directUnit(f), new(int))
	if p.unplugged() {
		return &Decline{P2PDMA, "peer memory", "PCI device " + p.peer.PeerDevice() + " was removed", "plug it in and start again"}
	}
	if d := p.refusal(f, err); d != nil {
		p.learn(f, d)
		return d
	}
	if err == nil {
		p.learn(f, nil)
	}
	return nil
}

func (p *P2PDMARoute) learn(f *storage.File, d *Decline) {
	p.mu.Lock()
	defer p.mu.Unlock()
	next := maps.Clone(*p.known.Load())
	next[keyOf(f)] = d
	p.known.Store(&next)
}

// Register maps a buffer. A buffer that cannot be mapped is not an error: its
// requests take another route.
func (p *P2PDMARoute) Register(span gpu.Span, kind gpu.Kind) {
	if !kind.OnDevice() {
		return
	}
	b, back, err := p.peer.PeerBytes(span.Base, span.Len)
	if err != nil {
		return
	}
	p.change(func(m map[gpu.Addr]*peerWindow) { m[span.Base] = &peerWindow{b, back} })
}

// Deregister unmaps it.
func (p *P2PDMARoute) Deregister(span gpu.Span) {
	w, ok := (*p.wins.Load())[span.Base]
	if !ok {
		return
	}
	p.change(func(m map[gpu.Addr]*peerWindow) { delete(m, span.Base) })
	w.back()
}

func (p *P2PDMARoute) change(edit func(map[gpu.Addr]*peerWindow)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	next := maps.Clone(*p.wins.Load())
	edit(next)
	p.wins.Store(&next)
}

var (
	p2pdmaDeclineBuffer = &Decline{P2PDMA, "buffer", "the memory is not a registered buffer with a mapping for peers", "register the buffer"}
	p2pdmaDeclineSmall  = &Decline{P2PDMA, "alignment", "the request holds no whole block of the file", ""}
	p2pdmaDeclineRagged = &Decline{P2PDMA, "alignment", "the request is not in whole blocks of the file", "move whole blocks and truncate the file to its length, or do not require the route: ragged ends then take another"}
	p2pdmaDeclineMemory = &Decline{P2PDMA, "alignment", "the memory is not aligned as direct I/O wants it, relative to the file", "use buffer offsets that are congruent to the file's"}
)

// Takes takes what has at least one whole block for the drive to move.
func (p *P2PDMARoute) Takes(op *Op) *Decline {
	w := (*p.wins.Load())[op.Mem.Base]
	if op.Buf == nil || w == nil {
		return p2pdmaDeclineBuffer
	}
	if d := (*p.known.Load())[keyOf(op.File)]; d != nil {
		return d
	}
	c := cutDirect(op, op.Off+int64(op.Mem.Len))
	if c.empty() {
		return p2pdmaDeclineSmall
	}
	// Newer kernels take memory on a border of four bytes. Whole blocks are what
	// all kernels and drives agree on.
	want := uint64(max(op.File.Facts.Direct.MemAlign, op.File.Facts.Direct.OffAlign, 1))
	if at := uint64(gpu.HostAddr(w.bytes)) + op.Mem.Off + uint64(c.from-op.Off); at%want != 0 {
		return p2pdmaDeclineMemory
	}
	return nil
}

// A p2pdmaWhole is the route where no other is wanted: nothing goes through the
// page cache but what is left of the file's last block.
type p2pdmaWhole struct{ *P2PDMARoute }

// strict is the route without any other.
func (p *P2PDMARoute) strict() Route { return p2pdmaWhole{p} }

// Scope says which requests the route is for.
func (p p2pdmaWhole) Scope() string {
	return "requests in whole blocks, between registered buffers and the file"
}

// Takes takes whole blocks.
func (p p2pdmaWhole) Takes(op *Op) *Decline {
	if (uint64(op.Off)|op.Mem.Len)%uint64(max(op.File.Facts.Direct.OffAlign, 1)) != 0 {
		return p2pdmaDeclineRagged
	}
	return p.P2PDMARoute.Takes(op)
}

// Run moves one op after the other.
func (p *P2PDMARoute) Run(ctx context.Context, ops []Op, res []Receipt) error {
	for i := range ops {
		if err := p.run(ctx, &ops[i], &res[i]); err != nil {
			return p.explain(&ops[i], &res[i], err)
		}
	}
	return nil
}

// explain tells a refusal of the kernel, after which another route is taken,
// from an error.
func (p *P2PDMARoute) explain(op *Op, r *Receipt, err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	at := op.Off + r.Bytes
	if p.unplugged() {
		err = fmt.Errorf("the GPU's memory is gone: PCI device %s was removed: %w (%w)", p.peer.PeerDevice(), unix.ENODEV, err)
		return op.failAt(at, " by peer-to-peer DMA", err)
	}
	if d := p.refusal(op.File, err); d != nil {
		p.learn(op.File, d)
		return &Refusal{d, err}
	}
	return op.failAt(at, " by peer-to-peer DMA", err)
}

// Close gives all mappings back.
func (p *P2PDMARoute) Close() error {
	for _, w := range *p.wins.Load() {
		w.back()
	}
	p.wins.Store(&map[gpu.Addr]*peerWindow{})
	return nil
}
