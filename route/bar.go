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
	"github.com/culvert-io/culvert/internal/rm"
	"github.com/culvert-io/culvert/internal/storage"
	"github.com/culvert-io/culvert/internal/wc"
)

const (
	// barMax is the largest request that is read through BAR1, where nothing was
	// measured. Above it the ring's copy engine wins as soon as several callers
	// share the link.
	barMax = 256 << 10
	// barBudget is how much registered memory is kept mapped. A mapping costs
	// page tables (2 MiB per GiB) and 2 ms per GiB to make.
	barBudget = 16 << 30
)

// A BarRoute reads files straight into GPU memory: the registered buffer is
// mapped through BAR1, and pread copies from the page cache into the mapping.
// No staging, no stream, no CUDA call: for small requests nothing is faster.
//
// CPU stores are not ordered with streams. As with every cuFile read, no GPU
// work may use the range meanwhile; work submitted after the read sees it.
type BarRoute struct {
	dev    gpu.Device
	root   fs.FS // with /proc and /sys
	mapper *rm.Mapper

	crowd crowd

	mu      sync.Mutex // serialises changes of wins, and guards borders
	wins    atomic.Pointer[map[gpu.Addr]*rm.Window]
	borders map[string]*borderFinder // by file system
}

// NewBar returns the route, or why this machine has none.
func NewBar(device gpu.Device, os dev.OS) (*BarRoute, *Decline) {
	m := rm.NewMapper(os, device, barBudget)
	if err := m.Probe(); err != nil {
		m.Close()
		if d := onWSL(Bar, os); d != nil {
			return nil, d
		}
		return nil, barDecline(err)
	}
	b := &BarRoute{dev: device, root: os.FS(), mapper: m, borders: map[string]*borderFinder{}}
	b.wins.Store(&map[gpu.Addr]*rm.Window{})
	return b, nil
}

func barDecline(err error) *Decline {
	d := &Decline{Route: Bar, Test: "mapping", Evidence: err.Error()}
	if u, ok := errors.AsType[*rm.Unavailable](err); ok {
		d.Test, d.Evidence, d.Fix = u.Test, u.Err.Error(), u.Fix
	}
	return d
}

// ID is Bar.
func (b *BarRoute) ID() ID { return Bar }

// Scope says which requests the route is for.
func (b *BarRoute) Scope() string {
	return fmt.Sprintf("reads up to %d KiB into registered buffers", barMax>>10)
}

// holds says that a window keeps its memory, see holder.
func (b *BarRoute) holds() {}

// Probe wants a descriptor that goes through the page cache: O_DIRECT cannot
// write into a mapping of a device.
func (b *BarRoute) Probe(f *storage.File) Verdict {
	if f.Buffered() < 0 || !f.Readable() {
		return &Decline{Bar, "descriptor", f.Name + " cannot be read through the page cache", "open it readable and without O_DIRECT"}
	}
	return nil
}

// Register maps a buffer. A buffer that cannot be mapped is not an error: its
// requests take another route.
func (b *BarRoute) Register(span gpu.Span, kind gpu.Kind) {
	if !kind.OnDevice() {
		return
	}
	w, err := b.mapper.Map(span.Base, span.Len)
	if err != nil {
		return
	}
	b.change(func(m map[gpu.Addr]*rm.Window) { m[span.Base] = w })
}

// Deregister unmaps it.
func (b *BarRoute) Deregister(span gpu.Span) {
	w, ok := (*b.wins.Load())[span.Base]
	if !ok {
		return
	}
	b.change(func(m map[gpu.Addr]*rm.Window) { delete(m, span.Base) })
	w.Close()
}

func (b *BarRoute) change(edit func(map[gpu.Addr]*rm.Window)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	next := maps.Clone(*b.wins.Load())
	edit(next)
	b.wins.Store(&next)
}

var (
	barDeclineWrite    = &Decline{Bar, "direction", "CPU loads through BAR1 are slower than a copy by the GPU", ""}
	barDeclineSize     = &Decline{Bar, "size", fmt.Sprintf("the request is larger than %d KiB", barMax>>10), ""}
	barDeclineUnmapped = &Decline{Bar, "buffer", "the memory is not a registered buffer with a BAR1 mapping", "register the buffer"}
	barDeclineCold     = &Decline{Bar, "page cache", "the file was opened with O_DIRECT and the range is not in the page cache", ""}
)

// Takes takes small reads of what is likely to be in the page cache, into
// buffers that are mapped.
func (b *BarRoute) Takes(op *Op) *Decline { return b.takes(op, defaultBorder) }

func (b *BarRoute) takes(op *Op, border *knownBorder) *Decline {
	switch {
	case op.Dir != Read:
		return barDeclineWrite
	case op.Mem.Len > border.max:
		return border.why
	case op.Buf == nil || (*b.wins.Load())[op.Mem.Base] == nil:
		return barDeclineUnmapped
	case op.File.CallerDirect() && !resident(op):
		return barDeclineCold
	}
	return nil
}

func resident(op *Op) bool {
	n, err := op.File.Resident(op.Off, int64(op.Mem.Len))
	return err == nil && n >= int64(op.Mem.Len)
}

// Run reads each op with one pread.
func (b *BarRoute) Run(ctx context.Context, ops []Op, res []Receipt) error {
	for i := range ops {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := b.run(&ops[i], &res[i]); err != nil {
			return ops[i].failAt(ops[i].Off, " through BAR1", err)
		}
	}
	return nil
}

func (b *BarRoute) run(op *Op, r *Receipt) error {
	w := (*b.wins.Load())[op.Mem.Base]
	if w == nil {
		return rm.ErrClosed
	}
	// The buffer stays registered while a transfer uses it, so the window needs no
	// lock of its own here.
	dst := w.Bytes()[op.Mem.Off : op.Mem.Off+op.Mem.Len]
	for len(dst) > 0 {
		n, err := unix.Pread(op.File.Buffered(), dst, op.Off+r.Bytes)
		if errors.Is(err, unix.EINTR) {
			r.Retries++
			continue
		}
		if err != nil {
			wc.Fence() // some may have come
			return err
		}
		if n == 0 {
			break
		}
		r.Bytes += int64(n)
		dst = dst[n:]
	}
	wc.Fence()
	return nil
}

// Close unmaps everything.
func (b *BarRoute) Close() error {
	var errs []error
	for _, w := range *b.wins.Load() {
		errs = append(errs, w.Close())
	}
	b.wins.Store(&map[gpu.Addr]*rm.Window{})
	return errors.Join(append(errs, b.mapper.Close())...)
}
