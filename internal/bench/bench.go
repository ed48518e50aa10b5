package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/human"
	"github.com/culvert-io/culvert/internal/storage"
	"github.com/culvert-io/culvert/internal/vendor"
	"github.com/culvert-io/culvert/route"
)

// A Bench measures workloads on one file and one GPU.
type Bench struct {
	drv  *cufile.Driver
	dev  gpu.Device
	file *os.File
	st   *storage.File
	size int64
	soft bool

	ceilings map[bool]float64 // by "writes"
}

// Open prepares the file at name for measuring. flags are os.OpenFile's.
func Open(drv *cufile.Driver, dev int, name string, flags int, soft bool) (*Bench, error) {
	g, err := drv.Device(dev)
	if err != nil {
		return nil, err
	}
	// Looked at first, because to open a pipe waits for its writer.
	if st, err := os.Stat(name); err == nil && st.Mode()&os.ModeNamedPipe != 0 {
		return nil, fmt.Errorf("%s: %w", name, storage.ErrFileType)
	}
	f, err := os.OpenFile(name, flags, 0)
	if err != nil {
		return nil, err
	}
	b := &Bench{drv: drv, dev: g, file: f, soft: soft, ceilings: map[bool]float64{}}
	if b.st, err = storage.Adopt(int(f.Fd())); err == nil {
		b.size, err = b.st.Size()
	}
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// Close closes the file.
func (b *Bench) Close() error {
	if b.st != nil {
		b.st.Close()
	}
	return b.file.Close()
}

// Warm reads the file once, so that the page cache holds it as far as it can.
func (b *Bench) Warm() error {
	_, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, io.NewSectionReader(cached{b.st}, 0, b.size), make([]byte, 4<<20)) // Discard alone would take small steps
	return err
}

// cached reads a file through the page cache, however it was opened.
type cached struct{ st *storage.File }

func (c cached) ReadAt(p []byte, off int64) (int, error) {
	fd := c.st.Buffered()
	if fd < 0 {
		fd = c.st.FD()
	}
	return transferAll(unix.Pread, fd, c.st.Name, p, off)
}

// Routes lists the routes that the file can use, best first.
func (b *Bench) Routes() ([]route.ID, error) {
	h, err := b.drv.Register(b.file)
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

// A Peer is an engine other than Culvert.
type Peer string

const (
	PeerLibcufile Peer = "libcufile"
	PeerPread     Peer = "pread"
	// PeerMemory leaves the GPU out: what reading and writing alone cost.
	PeerMemory Peer = "memory"
)

// Check tells whether there is such a peer.
func (p Peer) Check() error {
	switch p {
	case PeerLibcufile, PeerPread, PeerMemory:
		return nil
	}
	return fmt.Errorf("no peer %q: want libcufile, pread or memory", p)
}

// Find sets the path of NVIDIA's library, where the peer is that and the path is
// empty, so that a missing one is noticed before anything is measured.
func (p Peer) Find(libcufile *string) (err error) {
	if p != PeerLibcufile {
		return nil
	}
	if *libcufile != "" {
		_, err := os.Stat(*libcufile)
		return err
	}
	if *libcufile, err = vendor.Find(); err != nil {
		return fmt.Errorf("%w (install it, name it with --libcufile, or leave out --peer libcufile)", err)
	}
	return nil
}

// Culvert measures a workload by the ladder, or by one route.
func (b *Bench) Culvert(ctx context.Context, w Workload, only route.ID) (*Result, error) {
	e, err := newCulvert(b.drv, b.file, b.dev.Info().Index, only, w.Register)
	if err != nil {
		return nil, err
	}
	return b.measure(ctx, w, e)
}

// Peer measures a workload by a peer. libcufile is the path of NVIDIA's library;
// empty means the usual places.
func (b *Bench) Peer(ctx context.Context, w Workload, p Peer, libcufile string) (*Result, error) {
	switch p {
	case PeerLibcufile:
		e, err := newLibcufile(b.dev, b.file, libcufile, w.Register)
		if err != nil {
			return nil, err
		}
		return b.measure(ctx, w, e)
	case PeerPread:
		return b.measure(ctx, w, &pread{b.file, b.dev})
	case PeerMemory:
		w.Verify = false // no memory of ours has the bytes
		return b.measure(ctx, w, &memory{b.file})
	}
	return nil, p.Check()
}

func (b *Bench) measure(ctx context.Context, w Workload, e engine) (*Result, error) {
	defer e.close()
	if w.Block > b.size {
		return nil, fmt.Errorf("%s has %s: a block of %s does not fit", b.file.Name(), human.Size(b.size), human.Size(w.Block))
	}
	if call := w.Block * int64(w.Batch); w.Cold && !w.Pattern.random() && call > b.size {
		return nil, fmt.Errorf("%s has %s, which a cold run reads once, and one call moves %s: take a smaller batch", b.file.Name(), human.Size(b.size), human.Size(call))
	}
	ceiling, err := b.ceiling(w.Pattern.Writes())
	if err != nil {
		return nil, err
	}
	if w.Pattern.Writes() {
		// What an earlier run has left to the kernel to write is not this run's.
		if err := b.file.Sync(); err != nil {
			return nil, err
		}
	}
	resident, err := b.setTemperature(w.Cold)
	if err != nil {
		return nil, err
	}
	r := &run{w: w, e: e, size: b.size, dev: b.dev, file: cached{b.st}}
	res, err := r.do(ctx)
	if err == nil && res.Ops == 0 {
		err = errors.New("the callers share the file's blocks, and none of them had enough for one call: take fewer callers or a smaller batch")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", e.name(), err)
	}
	res.Resident, res.Soft = resident, b.soft
	res.Ceiling = ceiling / 1e9
	res.Share = res.GBps / res.Ceiling
	return res, nil
}

func (b *Bench) ceiling(writes bool) (float64, error) {
	if c, ok := b.ceilings[writes]; ok {
		return c, nil
	}
	c, err := Ceiling(b.dev, writes)
	b.ceilings[writes] = c
	dir := route.Read
	if writes {
		dir = route.Write
	}
	_ = b.drv.KeepCeiling(b.dev, dir, c)
	return c, err
}

// setTemperature drops the file's pages for a cold run and returns the share that
// is resident now: what is called cold has been looked at.
func (b *Bench) setTemperature(cold bool) (float64, error) {
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
		return 0, fmt.Errorf("%s: %.0f%% of the file is still in the page cache: it is in use elsewhere, or on tmpfs; a cold run is not possible", b.file.Name(), 100*share)
	}
	return share, nil
}
