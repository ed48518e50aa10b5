package gpu

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/soft/internal/cards"
)

// share opens the memory that processes share.
func (d *Driver) share() error {
	cfg := cards.Config{Unit: unitFrames(d.cfg.Scatter) * FrameSize, Frame: FrameSize}
	var text strings.Builder
	for _, m := range d.cfg.Models {
		cfg.Sizes = append(cfg.Sizes, memoryOf(m))
		fmt.Fprintf(&text, "%s, %d MiB; ", m.Name, memoryOf(m)>>20)
	}
	fmt.Fprintf(&text, "scatter=%t zero=%t seed=%d", d.cfg.Scatter, d.cfg.Zero, d.cfg.Seed)
	cfg.Settings = text.String()
	var err error
	if d.cards, err = cards.Open(d.cfg.Shared, cfg); err != nil {
		return fmt.Errorf("software GPU: %w", err)
	}
	d.commitment.used = d.cards.Committed()
	return nil
}

// Shared reports whether other processes can use the memory of the GPUs.
func (d *Driver) Shared() bool { return d.cards != nil }

// Leave is for a process that is about to end: it removes what would remain of shared memory.
// Nothing else changes.
func (d *Driver) Leave() error {
	if d.cards == nil {
		return nil
	}
	return d.cards.Leave()
}

// An object is memory that processes share: a card and its first unit.
type object struct{ card, unit uint32 }

// name returns the name by which other processes find a block. Call with Driver.mu held.
func (d *Driver) name(b *block) cards.Name {
	f := b.card.frames
	defer f.lock()()
	n := d.cards.Share(f.card, f.unitsOf(b.frames))
	b.object = &object{n.Card, n.Unit}
	d.known[*b.object] = b
	return n
}

// join returns the block that another process shares by name, or that this one has
// already. Call with Driver.mu held.
func (d *Driver) join(n cards.Name, owned bool) (*block, error) {
	if n.Card >= uint32(len(d.gpus)) {
		return nil, cards.ErrStale
	}
	g := d.gpus[n.Card]
	defer g.frames.lock()()
	units, err := d.cards.Join(n, owned)
	if err != nil {
		return nil, err
	}
	o := object{n.Card, n.Unit}
	if b := d.known[o]; b != nil {
		return b, nil
	}
	b := g.blockOf(g.frames.of(units))
	b.object = &o
	d.known[o] = b
	return b, nil
}

// A label is what the pipe of an export contains, so that other processes can tell what
// memory it is.
type label struct {
	Magic [8]byte
	Name  cards.Name
}

var labelMagic = [8]byte([]byte("culvert\n"))

// label returns the label of a block. Call with Driver.mu held.
func (d *Driver) label(b *block) []byte {
	var out bytes.Buffer
	_ = binary.Write(&out, binary.NativeEndian, label{labelMagic, d.name(b)}) // a Buffer returns no error
	return out.Bytes()
}

// joinLabel returns the block that another process exported as fd, or nil if fd is
// something else. Call with Driver.mu held.
func (d *Driver) joinLabel(fd int) (*block, error) {
	text, err := peek(fd)
	if err != nil {
		return nil, nil
	}
	var l label
	if n, err := binary.Decode(text, binary.NativeEndian, &l); err != nil || n != len(text) || l.Magic != labelMagic {
		return nil, nil
	}
	const fix = "(fix: start both processes under one culvert run, or with the same CULVERT_SHARED)"
	if d.cards == nil {
		return nil, errors.New("another process exported it, and this one shares GPU memory with no other " + fix)
	}
	b, err := d.join(l.Name, false)
	if errors.Is(err, cards.ErrStale) {
		err = fmt.Errorf("%w, or other processes share it %s", err, fix)
	}
	return b, err
}

// peek returns what a pipe contains, and leaves it there for others.
func peek(fd int) ([]byte, error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return nil, os.NewSyscallError("pipe2", err)
	}
	defer unix.Close(p[0])
	defer unix.Close(p[1])
	b := make([]byte, 256)
	n, err := unix.Tee(fd, p[1], len(b), unix.SPLICE_F_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("tee", err)
	}
	if n == 0 {
		return nil, nil
	}
	k, err := unix.Read(p[0], b)
	return b[:max(k, 0)], os.NewSyscallError("read", err)
}

// fromImport returns the block of a descriptor that Export made, here or in a process with
// the same memory, and holds it. Call with Driver.mu held.
func (d *Driver) fromImport(fd int) (*block, error) {
	e, err := d.exportOf(fd)
	switch {
	case err != nil:
		return nil, refuse(gpu.ErrInvalidValue, "%v", err)
	case e != nil && e.form != gpu.ExportPosixFD:
		return nil, refuse(gpu.ErrUnknown, "a dma-buf cannot be imported")
	case e != nil:
		e.blk.holds++
		return e.blk, nil
	}
	b, err := d.joinLabel(fd)
	switch {
	case err != nil:
		return nil, refuse(gpu.ErrUnknown, "%v", err)
	case b == nil:
		return nil, refuse(gpu.ErrUnknown, notExported)
	}
	b.holds++
	return b, nil
}
