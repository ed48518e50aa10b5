package ladder

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/abi/cuda"
	"github.com/culvert-io/culvert/internal/storage"
	"github.com/culvert-io/culvert/route"
)

// mappedWindow is how much of a file is mapped and pinned at a time. Pinning costs
// by the page: a window is large enough for the copy engine to run at full speed,
// and small enough that a cancelled transfer ends soon.
const mappedWindow = 64 << 20

// A mappedRoute pins pages of the page cache in place and lets the GPU copy from
// them: the CPU touches no byte. Pinning costs more than it saves for data that is
// read once (the ring is two to three times as fast on an H200), so the route is
// used on request, or if the ring cannot pin memory.
type mappedRoute struct {
	basic
	dev      gpu.Device
	rejected sync.Map // from *storage.File to *route.Decline
}

// newMapped returns the route, or why the GPU does not have it.
func newMapped(dev gpu.Device) (Route, *route.Decline) {
	if v, err := dev.Attribute(cuda.AttrReadOnlyHostRegister); err != nil || v == 0 {
		return nil, decline(route.Mapped, "GPU", "READ_ONLY_HOST_REGISTER_SUPPORTED is 0", "")
	}
	return &mappedRoute{dev: dev}, nil
}

var mappedTexts = [numReasons]*route.Decline{
	badDirection: decline(route.Mapped, "direction", "pinned page-cache pages are read-only to the GPU", ""),
	hostMemory:   decline(route.Mapped, "memory", "not device memory", ""),
	notCached:    decline(route.Mapped, "page cache", "the range is not in the page cache, which this file must not fill", ""),
}

// Traits needs a file that can be mapped for reading.
func (m *mappedRoute) Traits(src Source) (Traits, *route.Decline) {
	f := src.File()
	if f == nil {
		return Traits{}, needsBuffered(route.Mapped, src)
	}
	if f.Buffered() < 0 || !f.Readable() {
		return Traits{}, decline(route.Mapped, "descriptor", src.Name()+" cannot be mapped for reading", "open it readable and without O_DIRECT")
	}
	return Traits{ID: route.Mapped, Reads: true, texts: &mappedTexts}, nil
}

// mappedInStream is why an op in a stream is declined: unpinning waits for streams.
var mappedInStream = decline(route.Mapped, "stream", "the transfer is part of a stream, and unpinning would wait for that stream", "")

// State says whether pages of the file could not be pinned before, and whether they would
// have to be read into a page cache that is to be left alone.
func (m *mappedRoute) State(op *Op) State {
	if op.InStream {
		return State{Learned: mappedInStream}
	}
	if d, ok := m.rejected.Load(op.file()); ok {
		return State{Learned: d.(*route.Decline)}
	}
	return State{NotCached: sparesCache(op)}
}

// explain distinguishes a file whose pages cannot be mapped or pinned, which the next
// routes get, from an error.
func (m *mappedRoute) explain(op *Op, err error) error {
	if _, ok := errors.AsType[*unpinnable](err); !ok {
		return err
	}
	f, d := op.file(), decline(route.Mapped, "pinning", err.Error(), "")
	if _, known := m.rejected.LoadOrStore(f, d); !known {
		f.OnClose(func() { m.rejected.Delete(f) })
	}
	return &RejectedError{d, err}
}

// Run maps, pins and copies window by window.
func (m *mappedRoute) Run(ctx context.Context, ops []Op, res []route.Receipt) error {
	for i := range ops {
		if err := m.run(ctx, &ops[i], &res[i]); err != nil {
			return ops[i].fail(fmt.Errorf("by mapping: %w", err))
		}
	}
	return nil
}

// mappedRetries is how often a window is retried, half as large each time. Pinning
// or copying fails if the file shrinks meanwhile.
const mappedRetries = 12

func (m *mappedRoute) run(ctx context.Context, op *Op, r *route.Receipt) error {
	window, tries := int64(mappedWindow), 0
	for r.Bytes < int64(op.Mem.Len) {
		if err := ctx.Err(); err != nil {
			return err
		}
		size, err := op.file().Size()
		if err != nil {
			return err
		}
		n := min(window, int64(op.Mem.Len)-r.Bytes, size-op.Off-r.Bytes)
		if n <= 0 {
			break
		}
		err = m.window(op.file(), op.Off+r.Bytes, n, op.Mem.Addr()+gpu.Addr(r.Bytes))
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
		r.Bytes += n // from the page cache, which does not count as host memory
		countCached(op, n, r)
	}
	return nil
}

func (m *mappedRoute) window(f *storage.File, off, n int64, to gpu.Addr) (err error) {
	page := int64(os.Getpagesize())
	start := off / page * page
	length := (off + n - start + page - 1) / page * page
	mem, err := unix.Mmap(f.Buffered(), start, int(length), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return &unpinnable{fmt.Errorf("mmap: %w", err)}
	}
	defer func() { err = errors.Join(err, unix.Munmap(mem)) }()
	if err := m.populate(f, mem, start); err != nil {
		return err
	}
	host := gpu.HostAddr(mem)
	if err := m.dev.Register(uintptr(host), uint64(length), gpu.RegisterReadOnly|gpu.RegisterDeviceMap); err != nil {
		return &unpinnable{err}
	}
	defer func() { err = errors.Join(err, m.dev.Unregister(uintptr(host))) }()
	return m.dev.Copy(to, host+gpu.Addr(off-start), uint64(n))
}

// populate reads what is missing of a mapping into the page cache. Pinning would do
// that too, but retries forever at a page that cannot be read; a read returns the
// error.
func (m *mappedRoute) populate(f *storage.File, mem []byte, start int64) error {
	page := os.Getpagesize()
	marks := make([]byte, (len(mem)+page-1)/page)
	if err := storage.Mincore(mem, marks); err != nil {
		return err
	}
	var one [1]byte
	for i, there := range marks {
		if there&1 != 0 {
			continue
		}
		switch _, err := preadFull(f, one[:], start+int64(i*page)); err {
		case nil:
		case io.EOF: // the file was truncated, or the drive removed
			return io.ErrUnexpectedEOF
		default:
			return &unreadable{start + int64(i*page), err}
		}
	}
	return nil
}

// An unreadable error is not retried.
type unreadable struct {
	off int64
	err error
}

func (u *unreadable) Error() string { return fmt.Sprintf("offset %d: %v", u.off, u.err) }
func (u *unreadable) Unwrap() error { return u.err }

// An unpinnable error means that a window cannot be mapped or pinned.
type unpinnable struct{ err error }

func (u *unpinnable) Error() string { return u.err.Error() }
func (u *unpinnable) Unwrap() error { return u.err }
