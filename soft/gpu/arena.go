package gpu

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// An arena is the memory of a card, as frames.
type arena struct {
	file   *os.File // nil where frames cannot be mapped a second time: on the heap and in peer memory
	mapped []byte
	chunks [][]byte // Heap: blockSize each, made on first use
	fresh  []bool   // frames that were never used, by number
	peer   bool     // the memory is a device's, slow to touch
}

func newArena(index int, size uint64, cfg Config) (*arena, error) {
	if cfg.Peer != "" {
		return newPeerArena(cfg.Peer, size)
	}
	n := size / FrameSize
	a := freshArena(n)
	if cfg.Backing == Heap {
		a.chunks = make([][]byte, size/blockSize)
		return a, nil
	}
	name := fmt.Sprintf("culvert-gpu%d", index)
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	a.file = os.NewFile(uintptr(fd), name)
	if err := a.file.Truncate(int64(size)); err != nil {
		return nil, closeAfter(a.file, err)
	}
	a.mapped, err = unix.Mmap(fd, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_NORESERVE)
	if err != nil {
		return nil, closeAfter(a.file, os.NewSyscallError("mmap", err))
	}
	return a, nil
}

func freshArena(frames uint64) *arena {
	a := &arena{fresh: make([]bool, frames)}
	for i := range a.fresh {
		a.fresh[i] = true
	}
	return a
}

func closeAfter(f *os.File, err error) error {
	_ = f.Close() // the first error is the one to report
	return err
}

// joins reports whether frame f+1 follows frame f in memory.
func (a *arena) joins(f uint64) bool {
	return a.chunks == nil || (f+1)%blockFrames != 0
}

// bytes are n frames from f on, which must be joined.
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

// poison is what frames hold that were never used.
var poison = bytes.Repeat([]byte{0xa5}, FrameSize)

const (
	// poisonWhole is the size up to which all bytes of fresh frames are
	// poisoned. Beyond it only the first page of each frame is: enough for
	// software that relies on zeroes to be found out, while a GPU's worth of
	// memory can be allocated without being paid for in memory of this machine
	// (the arena is sparse until it is touched).
	poisonWhole = 16 << 20
	poisonPage  = 4 << 10
)

// dirty makes frames that were never used look as if they had been.
func (a *arena) dirty(frames []uint64) {
	n := FrameSize
	if a.peer || uint64(len(frames))*FrameSize > poisonWhole {
		n = poisonPage
	}
	for _, f := range frames {
		if !a.fresh[f] {
			continue
		}
		a.fresh[f] = false
		copy(a.bytes(f, 1), poison[:n])
	}
}

func (a *arena) close() error {
	if a.mapped == nil {
		return nil
	}
	err := os.NewSyscallError("munmap", unix.Munmap(a.mapped))
	if a.file != nil {
		err = errors.Join(err, a.file.Close())
	}
	return err
}
