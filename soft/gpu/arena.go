package gpu

import (
	"bytes"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/soft/internal/cards"
	"github.com/culvert-io/culvert/soft/internal/shared"
)

// An arena is the memory of a card, as frames.
type arena struct {
	mapped []byte   // nil on the heap
	chunks [][]byte // Heap: blockSize each, made on first use
	used   []byte   // 1 for frames that were ever used, by number
	peer   bool     // the memory is a device's, slow to access
	zero   bool     // allocations are zero, not poisoned
	shared bool     // the memory belongs to a cards.Cards, which unmaps it
}

func newArena(index int, size uint64, cfg Config) (*arena, error) {
	if cfg.Peer != "" {
		a, err := newPeerArena(cfg.Peer, size)
		if err == nil {
			a.zero = cfg.Zero
		}
		return a, err
	}
	a := &arena{used: make([]byte, size/FrameSize), zero: cfg.Zero}
	if cfg.Backing == Heap {
		a.chunks = make([][]byte, size/blockSize)
		return a, nil
	}
	var err error
	a.mapped, err = shared.New(fmt.Sprintf("culvert-gpu%d", index), size)
	return a, err
}

// sharedArena returns the memory of a card that other processes use, too.
func sharedArena(c *cards.Card, cfg Config) *arena {
	return &arena{mapped: c.Memory, used: c.Used, zero: cfg.Zero, shared: true}
}

// mappable reports whether frames can be mapped a second time: not on the heap, and
// not in peer memory.
func (a *arena) mappable() bool { return a.mapped != nil && !a.peer }

// closeAfter closes c after an error, which is the one to report.
func closeAfter(c io.Closer, err error) error {
	_ = c.Close()
	return err
}

// joins reports whether frame f+1 follows frame f in memory.
func (a *arena) joins(f uint64) bool {
	return a.chunks == nil || (f+1)%blockFrames != 0
}

// bytes returns n frames from f on, which must be joined.
func (a *arena) bytes(f, n uint64) []byte {
	if a.chunks == nil {
		return a.mapped[f*FrameSize : (f+n)*FrameSize : (f+n)*FrameSize]
	}
	c := f / blockFrames
	if a.chunks[c] == nil {
		a.chunks[c] = make([]byte, blockSize)
	}
	off := f % blockFrames * FrameSize
	return a.chunks[c][off : off+n*FrameSize : off+n*FrameSize]
}

// poison is the content of frames that were never used.
var poison = bytes.Repeat([]byte{0xa5}, FrameSize)

const (
	// poisonWhole is the size up to which all bytes of fresh frames are poisoned. Beyond
	// it only the first page of each frame is: enough to find software that relies on
	// zeros, while a GPU's worth of memory can be allocated without using as much memory
	// of this machine (the arena is sparse).
	poisonWhole = 16 << 20
	poisonPage  = 4 << 10
)

// prepare gives frames the contents of fresh memory: zeros, or poison if they were never
// used.
func (a *arena) prepare(frames []uint64) {
	if a.zero {
		a.clear(frames)
	} else {
		a.dirty(frames)
	}
}

// clear zeroes frames. Those that were never used are zero, unless they are a device's.
func (a *arena) clear(frames []uint64) {
	for _, f := range frames {
		if a.used[f] != 0 || a.peer {
			clear(a.bytes(f, 1))
		}
		a.used[f] = 1
	}
}

// dirty poisons frames that were never used.
func (a *arena) dirty(frames []uint64) {
	n := FrameSize
	if a.peer || uint64(len(frames))*FrameSize > poisonWhole {
		n = poisonPage
	}
	for _, f := range frames {
		if a.used[f] == 0 {
			a.used[f] = 1
			copy(a.bytes(f, 1), poison[:n])
		}
	}
}

// Close unmaps the memory.
func (a *arena) Close() error {
	if a.mapped == nil || a.shared {
		return nil
	}
	if a.peer {
		return os.NewSyscallError("munmap", unix.Munmap(a.mapped))
	}
	return shared.Unmap(a.mapped)
}
