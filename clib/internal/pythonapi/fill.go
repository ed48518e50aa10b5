package pythonapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/clib/internal/cmem"
	"github.com/culvert-io/culvert/clib/internal/handle"
	"github.com/culvert-io/culvert/internal/crc32c"
	"github.com/culvert-io/culvert/route"
	"github.com/culvert-io/culvert/tensor"
)

// maxFillers bounds the threads that copy out of the page cache: beyond it they
// wait for the same memory.
const maxFillers = 16

// A filler reads the tensors of a plan into memory of the caller.
type filler struct {
	plan  *tensor.Plan
	to    []uint64 // addresses of the plan's tensors
	files []*os.File

	mu    sync.Mutex
	start time.Time
	left  []int // reads that each tensor still waits for
	rep   tensor.Report
}

type fillRequest struct {
	Plan      handle.ID `json:"plan"`
	Addresses []uint64  `json:"addresses"` // where its tensors go
	Verify    bool      `json:"verify"`
}

// fill carries a plan for the host out.
func (d *API) fill(ctx context.Context, q *fillRequest) (*finishAnswer, error) {
	p, _, err := lookup[*planned](d, q.Plan)
	if err != nil {
		return nil, err
	}
	if !p.host || len(q.Addresses) != len(p.plan.Tensors) {
		return nil, fmt.Errorf("%d addresses for a plan of %d tensors", len(q.Addresses), len(p.plan.Tensors))
	}
	f := &filler{plan: p.plan, to: q.Addresses, start: time.Now()}
	r := &receipt{Op: "load", Model: p.plan.Model, GPUs: []int{}}
	err = f.run(ctx)
	if err == nil && q.Verify {
		r.Verified, err = f.verify(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("load %s: %w", p.plan.Model, err)
	}
	r.report(&f.rep)
	r.Seconds = time.Since(f.start).Seconds()
	return &finishAnswer{r}, nil
}

func (f *filler) run(ctx context.Context) error {
	defer f.closeFiles()
	if err := f.open(); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	queue := make(chan *tensor.Read)
	g.Go(func() error {
		defer close(queue)
		for i := range f.plan.Reads {
			select {
			case queue <- &f.plan.Reads[i]:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
	for range min(runtime.GOMAXPROCS(0), maxFillers) {
		g.Go(func() error {
			for r := range queue {
				if err := f.carry(ctx, r); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// open opens the files that are read and prepares the report.
func (f *filler) open() error {
	f.rep.Wanted = f.plan.Totals().Wanted
	f.left = make([]int, len(f.plan.Tensors))
	f.files = make([]*os.File, len(f.plan.Files))
	for i := range f.plan.Reads {
		f.left[f.plan.Reads[i].First]++
	}
	for i := range f.left {
		if f.left[i] == 0 { // empty
			f.rep.Tensors++
		}
	}
	for _, path := range f.plan.Files {
		f.rep.Files = append(f.rep.Files, tensor.FileReport{Path: path})
	}
	for i := range f.plan.Reads {
		n := f.plan.Reads[i].File
		if f.files[n] != nil {
			continue
		}
		file, err := os.Open(f.plan.Files[n])
		if err != nil {
			return err
		}
		f.files[n] = file
		if err := f.plan.Check(n); err != nil {
			return err
		}
	}
	return nil
}

func (f *filler) closeFiles() {
	for _, file := range f.files {
		if file != nil {
			_ = file.Close() // only read
		}
	}
}

// carry makes one read of the plan, run by run.
func (f *filler) carry(ctx context.Context, r *tensor.Read) error {
	start := time.Now()
	t := &f.plan.Tensors[r.First]
	dst := cmem.Ptr(f.to[r.First]) + cmem.Ptr(r.Dst-t.Off)
	for i := range r.Count {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := pread(f.files[r.File], cmem.Slice[byte](dst+cmem.Ptr(i*r.Len), int(r.Len)), r.Off+i*r.Stride); err != nil {
			return fmt.Errorf("loading %s: %w", t.Name, err)
		}
	}
	rec := route.Receipt{Dir: route.Read, Bytes: r.Size(), Host: route.ByteCount{Bytes: r.Size()}, Time: time.Since(start)}
	rec.By[route.Host] = r.Size()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rep.Bytes += rec.Bytes
	f.rep.Files[r.File].Receipt.Add(&rec)
	if f.left[r.First]--; f.left[r.First] == 0 {
		since := time.Since(f.start)
		if f.rep.First == 0 {
			f.rep.First = since
		}
		f.rep.Last = since
		f.rep.Tensors++
	}
	return nil
}

// pread fills p. The memory is the caller's: if it is not there, the kernel says
// so, and nothing faults.
func pread(f *os.File, p []byte, off int64) error {
	for len(p) > 0 {
		n, err := unix.Pread(int(f.Fd()), p, off)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return &os.PathError{Op: "pread", Path: f.Name(), Err: err}
		case n == 0:
			return fmt.Errorf("%s is shorter than when it was opened: %w", f.Name(), io.ErrUnexpectedEOF)
		}
		p, off = p[n:], off+int64(n)
	}
	return nil
}

// verify compares whole tensors with the manifests beside their files.
func (f *filler) verify(ctx context.Context) (int, error) {
	sums := map[int]map[string]tensor.Sum{}
	for i := range f.plan.Tensors {
		n := f.plan.Tensors[i].File
		if sums[n] != nil {
			continue
		}
		m, err := tensor.ReadManifest(f.plan.Files[n])
		if err != nil {
			return 0, err
		}
		sums[n] = make(map[string]tensor.Sum, len(m.Tensors))
		for _, s := range m.Tensors {
			sums[n][s.Name] = s.Sum
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(runtime.GOMAXPROCS(0))
	verified := 0
	for i := range f.plan.Tensors {
		t := &f.plan.Tensors[i]
		if t.Whole != nil {
			continue
		}
		verified++
		g.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			return f.compare(i, sums[t.File])
		})
	}
	return verified, g.Wait()
}

func (f *filler) compare(i int, sums map[string]tensor.Sum) error {
	t := &f.plan.Tensors[i]
	want, ok := sums[t.Name]
	if !ok {
		return &tensor.ChecksumError{File: f.plan.Files[t.File], Tensor: t.Name, Detail: "the manifest does not have it"}
	}
	var p []byte
	if t.Len > 0 {
		p = cmem.Slice[byte](cmem.Ptr(f.to[i]), int(t.Len))
	}
	if got := tensor.Sum(crc32c.Sum(p)); got != want {
		return &tensor.ChecksumError{File: f.plan.Files[t.File], Tensor: t.Name, Detail: fmt.Sprintf("CRC-32C in memory is %v, the manifest says %v", got, want)}
	}
	return nil
}
