package route

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
	abi "github.com/culvert-io/culvert/internal/abi/cuda"
	"github.com/culvert-io/culvert/internal/storage"
)

// mappedWindow is how much of a file is mapped and pinned at a time. Pinning
// costs by the page, so a window is large enough for the copy engine to run at
// full speed and small enough that a cancelled transfer ends soon.
const mappedWindow = 64 << 20

// A MappedRoute pins pages of the page cache where they are and lets the GPU
// copy from them: the CPU touches no byte. Pinning costs more than it saves for
// data that is read once (the ring is two to three times as fast on an H200), so
// it stands below the ring and is taken when it is asked for, or where there is
// no ring.
type MappedRoute struct {
	dev     gpu.Device
	absent  *Decline // why this GPU cannot
	refused sync.Map // from *storage.File to *Decline
}

// NewMapped returns the mapped route to a GPU.
func NewMapped(dev gpu.Device) *MappedRoute {
	m := &MappedRoute{dev: dev}
	if v, err := dev.Attribute(abi.AttrReadOnlyHostRegister); err != nil || v == 0 {
		m.absent = &Decline{Mapped, "GPU", "READ_ONLY_HOST_REGISTER_SUPPORTED is 0", ""}
	}
	return m
}

// ID is Mapped.
func (m *MappedRoute) ID() ID { return Mapped }

// Probe wants a file that can be mapped for reading.
func (m *MappedRoute) Probe(f *storage.File) Verdict {
	if m.absent != nil {
		return m.absent
	}
	if f.Buffered() < 0 || !f.Readable() {
		return &Decline{Mapped, "descriptor", f.Name + " cannot be mapped for reading", "open it readable and without O_DIRECT"}
	}
	return nil
}

var (
	mappedDeclineWrite  = &Decline{Mapped, "direction", "pinned page-cache pages are read-only to the GPU", ""}
	mappedDeclineMemory = &Decline{Mapped, "memory", "not device memory", ""}
)

// Takes takes reads into device memory.
func (m *MappedRoute) Takes(op *Op) *Decline {
	switch {
	case op.Dir != Read:
		return mappedDeclineWrite
	case !op.Kind.OnDevice():
		return mappedDeclineMemory
	}
	if d, ok := m.refused.Load(op.File); ok {
		return d.(*Decline)
	}
	return nil
}

// explain tells a file whose pages cannot be mapped or pinned, which is left to the
// rungs below, from an error.
func (m *MappedRoute) explain(op *Op, err error) error {
	if _, ok := errors.AsType[*unpinnable](err); !ok {
		return err
	}
	f, d := op.File, &Decline{Mapped, "pinning", err.Error(), ""}
	if _, known := m.refused.LoadOrStore(f, d); !known {
		f.OnClose(func() { m.refused.Delete(f) })
	}
	return &Refusal{d, err}
}

// Close has nothing to give back.
func (m *MappedRoute) Close() error { return nil }

// Run maps, pins and copies window by window.
func (m *MappedRoute) Run(ctx context.Context, ops []Op, res []Receipt) error {
	for i := range ops {
		if err := m.run(ctx, &ops[i], &res[i]); err != nil {
			return ops[i].fail(fmt.Errorf("by mapping: %w", err))
		}
	}
	return nil
}

// mappedRetries is how often a window is tried again, half as large each time:
// pages that vanish under it, because the file shrinks, make pinning or copying
// fail.
const mappedRetries = 12

func (m *MappedRoute) run(ctx context.Context, op *Op, r *Receipt) error {
	window, tries := int64(mappedWindow), 0
	for r.Bytes < int64(op.Mem.Len) {
		if err := ctx.Err(); err != nil {
			return err
		}
		size, err := op.File.Size()
		if err != nil {
			return err
		}
		n := min(window, int64(op.Mem.Len)-r.Bytes, size-op.Off-r.Bytes)
		if n <= 0 {
			break
		}
		err = m.window(op.File, op.Off+r.Bytes, n, op.Mem.Addr()+gpu.Addr(r.Bytes))
		if _, bad := errors.AsType[*unreadable](err); bad {
			return err
		}
		if err != nil {
			if tries++; tries > mappedRetries {
				return m.explain(op, fmt.Errorf("offset %d: %w", op.Off+r.Bytes, err))
			}
			r.Retries++
			window = max(n/2, 1)
			continue
		}
		window, tries = mappedWindow, 0
		r.Bytes += n // from the page cache, which does not count as host memory on the way
	}
	return nil
}

func (m *MappedRoute) window(f *storage.File, off, n int64, to gpu.Addr) (err error) {
	page := int64(os.Getpagesize())
	start := off / page * page
	length := (off + n - start + page - 1) / page * page
	mem, err := unix.Mmap(f.Buffered(), start, int(length), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return &unpinnable{fmt.Errorf("mmap: %w", err)}
	}
	defer func() { err = errors.Join(err, unix.Munmap(mem)) }()
	if err := m.bring(f, mem, start); err != nil {
		return err
	}
	host := gpu.HostAddr(mem)
	if err := m.dev.Register(uintptr(host), uint64(length), gpu.RegisterReadOnly|gpu.RegisterDeviceMap); err != nil {
		return &unpinnable{err}
	}
	defer func() { err = errors.Join(err, m.dev.Unregister(uintptr(host))) }()
	return m.dev.Copy(to, host+gpu.Addr(off-start), uint64(n))
}

// bring reads what is missing of a mapping into the page cache. To let pinning
// do that would never end at a page that cannot be read: the kernel tries again
// for ever. A read says what is wrong.
func (m *MappedRoute) bring(f *storage.File, mem []byte, start int64) error {
	marks, err := uptodate(mem)
	if err != nil {
		return err
	}
	page := os.Getpagesize()
	var one [1]byte
	for i, there := range marks {
		if there&1 != 0 {
			continue
		}
		switch _, err := preadFull(f, one[:], start+int64(i*page)); err {
		case nil:
		case io.EOF: // the file has shrunk, or the drive was pulled out
			return io.ErrUnexpectedEOF
		default:
			return &unreadable{start + int64(i*page), err}
		}
	}
	return nil
}

// An unreadable page is not a matter of trying again.
type unreadable struct {
	off int64
	err error
}

func (u *unreadable) Error() string { return fmt.Sprintf("offset %d: %v", u.off, u.err) }
func (u *unreadable) Unwrap() error { return u.err }

// An unpinnable window cannot be mapped or pinned.
type unpinnable struct{ err error }

func (u *unpinnable) Error() string { return u.err.Error() }
func (u *unpinnable) Unwrap() error { return u.err }
