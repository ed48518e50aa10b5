package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/human"
	"github.com/culvert-io/culvert/internal/limit"
	"github.com/culvert-io/culvert/internal/object"
	"github.com/culvert-io/culvert/internal/storage"
	"github.com/culvert-io/culvert/internal/vendor"
	"github.com/culvert-io/culvert/route"
)

// A Bench measures workloads on one GPU and one file or object.
type Bench struct {
	drv    *cufile.Driver
	dev    gpu.Device
	name   string
	file   *os.File // nil if it is an object
	st     *storage.File
	object *object.File // nil if it is a file
	size   int64
	soft   bool

	ceilings map[bool]float64 // pinned-copy rates, by "writes"
	// NoCeiling leaves the pinned-copy rate out: it needs 512 MiB and takes longer
	// than a short run.
	NoCeiling bool
}

// Open prepares the file at name for measuring. flags are os.OpenFile's.
func Open(drv *cufile.Driver, dev int, name string, flags int, soft bool) (*Bench, error) {
	g, err := drv.Device(dev)
	if err != nil {
		return nil, err
	}
	// Checked first: opening a pipe would wait for its writer.
	if st, err := os.Stat(name); err == nil && st.Mode()&os.ModeNamedPipe != 0 {
		return nil, fmt.Errorf("%s: %w", name, storage.ErrFileType)
	}
	f, err := os.OpenFile(name, flags, 0)
	if err != nil {
		return nil, err
	}
	b := &Bench{drv: drv, dev: g, name: name, file: f, soft: soft, ceilings: map[bool]float64{}}
	if b.st, err = storage.Adopt(int(f.Fd())); err == nil {
		b.size, err = b.st.Size()
	}
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// Size returns the size of the file or object.
func (b *Bench) Size() int64 { return b.size }

// Close closes the file or object.
func (b *Bench) Close() error {
	if b.object != nil {
		return b.object.Close()
	}
	if b.st != nil {
		b.st.Close()
	}
	return b.file.Close()
}

// Warm reads a file once, so that the page cache holds as much of it as fits. Objects are
// in no cache of this host.
func (b *Bench) Warm() error {
	if b.object != nil {
		return nil
	}
	// io.Discard itself would read in small steps.
	_, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, io.NewSectionReader(cached{b.st}, 0, b.size), make([]byte, 4<<20))
	return err
}

// cached reads a file through the page cache, even if it was opened with O_DIRECT.
type cached struct{ st *storage.File }

func (c cached) ReadAt(p []byte, off int64) (int, error) {
	fd := c.st.Buffered()
	if fd < 0 {
		fd = c.st.FD()
	}
	return transferAll(unix.Pread, fd, c.st.Name, p, off)
}

// register opens the file or object for transfers.
func (b *Bench) register() (*cufile.File, error) {
	if b.object != nil {
		return b.drv.RegisterSource(b.object)
	}
	return b.drv.Register(b.file)
}

// contents are the bytes to compare with.
func (b *Bench) contents() io.ReaderAt {
	if b.object != nil {
		return b.object
	}
	return cached{b.st}
}

// Routes lists the routes that the file or object can use, best first.
func (b *Bench) Routes() ([]route.ID, error) {
	h, err := b.register()
	if err != nil {
		return nil, err
	}
	defer h.Close()
	p, err := h.Plan(b.dev.Info().Index)
	if err != nil {
		return nil, err
	}
	return p.Usable(), nil
}

// A Peer is a baseline: another method measured in the same run.
type Peer string

const (
	PeerLibcufile Peer = "libcufile"
	PeerPread     Peer = "pread"
	PeerMemory    Peer = "memory" // file I/O or requests alone, without the GPU
)

// Check reports an unknown peer.
func (p Peer) Check() error {
	switch p {
	case PeerLibcufile, PeerPread, PeerMemory:
		return nil
	}
	return fmt.Errorf("unknown peer %q (want libcufile, pread or memory)", p)
}

// A Method is what to measure: a baseline, or Culvert over one route or, if that is
// None, over the one that it chooses.
type Method struct {
	Peer  Peer // "" means Culvert
	Route route.ID
	Async bool // Culvert in streams: each caller has one
}

// FindLibcufile returns the path of NVIDIA's library; path, if it is not empty, or
// where it is usually installed.
func FindLibcufile(path string) (string, error) {
	if path != "" {
		_, err := os.Stat(path)
		return path, err
	}
	path, err := vendor.Find()
	if err != nil {
		err = fmt.Errorf("%w (fix: install it, set --libcufile, or omit --peer libcufile)", err)
	}
	return path, err
}

// Measure runs a workload. libcufile is the path of NVIDIA's library.
func (b *Bench) Measure(ctx context.Context, w Workload, m Method, libcufile string) (*Result, error) {
	var e *engine
	var err error
	switch m.Peer {
	case "":
		e, err = b.culvertEngine(m, w.Register)
	case PeerLibcufile:
		if b.object != nil {
			return nil, fmt.Errorf("%s: libcufile reads files, not objects", b.name)
		}
		e, err = libcufileEngine(b.dev, b.file, libcufile, w.Register)
	case PeerPread:
		e = preadEngine(b.blockIO(), b.dev)
	case PeerMemory:
		w.Verify = false // GPU memory does not get the data
		e = memoryEngine(b.blockIO())
	default:
		err = m.Peer.Check()
	}
	if err != nil {
		return nil, err
	}
	defer e.close()
	return b.measure(ctx, w, e)
}

// CheckBlock reports a block that is larger than the file.
func (b *Bench) CheckBlock(n int64) error {
	if n > b.size {
		return fmt.Errorf("%s: block of %s exceeds the size, %s (fix: a smaller block, or a larger file)", b.name, human.Size(n), human.Size(b.size))
	}
	return nil
}

func (b *Bench) measure(ctx context.Context, w Workload, e *engine) (*Result, error) {
	if err := w.Check(); err != nil {
		return nil, err
	}
	if err := b.CheckBlock(w.Block); err != nil {
		return nil, err
	}
	if w.Region > b.size {
		return nil, fmt.Errorf("%s: size %s exceeds the file of %s", b.name, human.Size(w.Region), human.Size(b.size))
	}
	size := cmp.Or(w.Region, b.size)
	if call := w.Block * int64(w.Batch); w.Cold && !w.Pattern.random() && call > size {
		return nil, fmt.Errorf("%s: one call of %s exceeds the file of %s, which a cold run reads once (fix: a smaller batch)", b.name, human.Size(call), human.Size(size))
	}
	var ceiling float64
	if !b.NoCeiling && !w.Pattern.Mixed() { // a link moves both directions at once: neither rate limits their sum
		var err error
		if ceiling, err = b.ceiling(w.Pattern.Writes()); err != nil {
			return nil, err
		}
	}
	if w.Pattern.Writes() {
		// Dirty pages of an earlier run must not be written during this one.
		if err := b.file.Sync(); err != nil {
			return nil, err
		}
	}
	resident, err := b.setTemperature(w.Cold)
	if err != nil {
		return nil, err
	}
	r := &run{w: w, e: e, size: size, dev: b.dev, file: b.contents(), rate: limit.New(w.Limit)}
	res, err := r.do(ctx)
	if err == nil && res.Ops == 0 {
		err = errors.New("callers share the file's blocks, and no caller had enough for one call (fix: fewer threads or a smaller batch)")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", e.name, err)
	}
	res.Resident, res.Soft = resident, b.soft
	if b.object != nil {
		res.Store = b.object.Store()
	}
	if ceiling > 0 {
		res.Ceiling = ceiling / 1e9
		res.Share = res.GBps / res.Ceiling
	}
	return res, nil
}

func (b *Bench) ceiling(writes bool) (float64, error) {
	if c, ok := b.ceilings[writes]; ok {
		return c, nil
	}
	c, err := PinnedCopyRate(b.dev, writes)
	b.ceilings[writes] = c
	dir := route.Read
	if writes {
		dir = route.Write
	}
	_ = b.drv.KeepCeiling(b.dev, dir, c)
	return c, err
}

// setTemperature drops the file's pages for a cold run. It returns the fraction of
// the file that is resident, -1 if that is unknown, and fails if a cold file is not cold.
func (b *Bench) setTemperature(cold bool) (float64, error) {
	if b.object != nil {
		return -1, nil
	}
	if cold {
		if err := b.st.DropCache(); err != nil {
			return 0, err
		}
	}
	n, err := b.st.Resident(0, b.size)
	if err != nil || b.size == 0 {
		return -1, nil
	}
	share := float64(n) / float64(b.size)
	if cold && share > 0.01 {
		return 0, fmt.Errorf("%s: cold run not possible: %.0f%% of the file is still in the page cache (in use elsewhere, or on tmpfs)", b.name, 100*share)
	}
	return share, nil
}
