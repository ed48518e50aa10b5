package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/human"
	"github.com/culvert-io/culvert/internal/limit"
	"github.com/culvert-io/culvert/internal/vendor"
	"github.com/culvert-io/culvert/route"
)

// A Bench measures workloads on one GPU and one or more files or objects. Several take turns
// by blocks, and each is used up to the size of the smallest.
type Bench struct {
	drv     *cufile.Driver
	dev     gpu.Device
	targets []*target
	size    int64 // of the smallest
	soft    bool

	ceilings map[bool]float64 // pinned-copy rates, by "writes"
	// NoCeiling leaves the pinned-copy rate out: it needs 512 MiB and takes longer
	// than a short run.
	NoCeiling bool
}

// Open prepares files for measuring. flags are os.OpenFile's.
func Open(drv *cufile.Driver, dev int, names []string, flags int, soft bool) (*Bench, error) {
	return open(drv, dev, names, soft, func(name string) (*target, error) { return openFile(name, flags) })
}

// OpenObjects prepares the objects at URLs for measuring. Ending ctx ends their requests.
func OpenObjects(ctx context.Context, drv *cufile.Driver, dev int, urls []string, soft bool) (*Bench, error) {
	return open(drv, dev, urls, soft, func(url string) (*target, error) { return openObject(ctx, url) })
}

func open(drv *cufile.Driver, dev int, names []string, soft bool, one func(name string) (*target, error)) (*Bench, error) {
	g, err := drv.Device(dev)
	if err != nil {
		return nil, err
	}
	b := &Bench{drv: drv, dev: g, soft: soft, ceilings: map[bool]float64{}, size: math.MaxInt64}
	for _, name := range names {
		t, err := one(name)
		if err != nil {
			return nil, errors.Join(err, b.Close())
		}
		b.targets = append(b.targets, t)
		b.size = min(b.size, t.size)
	}
	return b, nil
}

// Size returns the size of the smallest file or object.
func (b *Bench) Size() int64 { return b.size }

// Close closes the files or objects.
func (b *Bench) Close() (err error) {
	for _, t := range b.targets {
		err = errors.Join(err, t.close())
	}
	return err
}

// Warm reads the files once, so that the page cache holds as much of them as fits.
func (b *Bench) Warm() error {
	for _, t := range b.targets {
		if err := t.warm(); err != nil {
			return err
		}
	}
	return nil
}

// register opens the files or objects for transfers.
func (b *Bench) register() (list []*cufile.File, close func(), err error) {
	close = func() {
		for _, f := range list {
			f.Close()
		}
	}
	for _, t := range b.targets {
		f, err := t.register(b.drv)
		if err != nil {
			close()
			return nil, nil, err
		}
		list = append(list, f)
	}
	return list, close, nil
}

// Routes lists the routes that all files or objects can use, best first.
func (b *Bench) Routes() (usable []route.ID, err error) {
	files, close, err := b.register()
	if err != nil {
		return nil, err
	}
	defer close()
	for i, f := range files {
		p, err := f.Plan(b.dev.Info().Index)
		if err != nil {
			return nil, err
		}
		if i == 0 {
			usable = p.Usable()
		}
		usable = slices.DeleteFunc(usable, func(id route.ID) bool { return !slices.Contains(p.Usable(), id) })
	}
	return usable, nil
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
		if o := b.targets[0]; o.object != nil {
			return nil, fmt.Errorf("%s: libcufile reads files, not objects", o.name)
		}
		e, err = b.libcufileEngine(libcufile, w.Register)
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

// CheckBlock reports a block that is larger than a file.
func (b *Bench) CheckBlock(n int64) error {
	for _, t := range b.targets {
		if n > t.size {
			return fmt.Errorf("%s: block of %s exceeds the size, %s (fix: a smaller block, or a larger file)", t.name, human.Size(n), human.Size(t.size))
		}
	}
	return nil
}

// names is what messages call the files.
func (b *Bench) names() string {
	if len(b.targets) == 1 {
		return b.targets[0].name
	}
	return fmt.Sprintf("%s and %s", b.targets[0].name, human.Count(len(b.targets)-1, "other"))
}

func (b *Bench) measure(ctx context.Context, w Workload, e *engine) (*Result, error) {
	size, err := b.fit(&w)
	if err != nil {
		return nil, err
	}
	var ceiling float64
	if !b.NoCeiling && !w.Pattern.Mixed() { // a link moves both directions at once: neither rate limits their sum
		if ceiling, err = b.ceiling(w.Pattern.Writes()); err != nil {
			return nil, err
		}
	}
	resident, err := b.prepareFiles(&w)
	if err != nil {
		return nil, err
	}
	r := &run{w: w, e: e, size: size, dev: b.dev, file: striped{b.targets, w.Block}, rate: limit.New(w.Limit)}
	res, err := r.do(ctx)
	if err == nil && res.Ops == 0 {
		err = errors.New("callers share the file's blocks, and no caller had enough for one call (fix: fewer threads or a smaller batch)")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", e.name, err)
	}
	res.Resident, res.Soft = resident, b.soft
	if o := b.targets[0].object; o != nil {
		res.Store = o.Store()
	}
	if ceiling > 0 {
		res.Ceiling = ceiling / 1e9
		res.Share = res.GBps / res.Ceiling
	}
	return res, nil
}

// fit checks a workload against the files, counts these, and returns the bytes of all of
// them that it uses.
func (b *Bench) fit(w *Workload) (size int64, err error) {
	if err := w.Check(); err != nil {
		return 0, err
	}
	if err := b.CheckBlock(w.Block); err != nil {
		return 0, err
	}
	if w.Region > b.size {
		return 0, fmt.Errorf("%s: size %s exceeds the file of %s", b.names(), human.Size(w.Region), human.Size(b.size))
	}
	size = cmp.Or(w.Region, b.size)
	if n := len(b.targets); n > 1 {
		w.Files = n
		size = size / w.Block * w.Block * int64(n)
	}
	if call := w.Block * int64(w.Batch); w.Cold && !w.Pattern.random() && call > size {
		return 0, fmt.Errorf("%s: one call of %s exceeds the file of %s, which a cold run reads once (fix: a smaller batch)", b.names(), human.Size(call), human.Size(size))
	}
	return size, nil
}

// prepareFiles makes the files clean, if the workload writes, and cold or warm. It returns
// how much of them is in the page cache.
func (b *Bench) prepareFiles(w *Workload) (resident float64, err error) {
	if w.Pattern.Writes() {
		// Dirty pages of an earlier run must not be written during this one.
		for _, t := range b.targets {
			if err := t.file.Sync(); err != nil {
				return 0, err
			}
		}
	}
	return b.setTemperature(w.Cold)
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

// setTemperature drops the files' pages for a cold run. It returns the fraction of
// the files that is resident, -1 if that is unknown, and fails if a cold file is not cold.
func (b *Bench) setTemperature(cold bool) (float64, error) {
	var cached, size int64
	known := true
	for _, t := range b.targets {
		n, err := t.resident(cold)
		if err != nil {
			return 0, err
		}
		known = known && n >= 0
		cached, size = cached+n, size+t.size
	}
	if !known {
		return -1, nil
	}
	return float64(cached) / float64(size), nil
}
