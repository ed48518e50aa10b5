package tensor

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/route"
)

// A meteredEngine counts how often each byte of each file is read.
type meteredEngine struct {
	engine
	mu    sync.Mutex
	times map[string]map[int64]int
}

func (e *meteredEngine) open(path string) (reader, error) {
	r, err := e.engine.open(path)
	return meteredReader{r, e, path}, err
}

type meteredReader struct {
	reader
	engine *meteredEngine
	path   string
}

func (r meteredReader) read(ctx context.Context, segments []segment) (route.Receipt, error) {
	r.engine.mu.Lock()
	if r.engine.times[r.path] == nil {
		r.engine.times[r.path] = map[int64]int{}
	}
	for _, s := range segments {
		for i := range s.dst.Len {
			r.engine.times[r.path][s.off+int64(i)]++
		}
	}
	r.engine.mu.Unlock()
	return r.reader.read(ctx, segments)
}

// Four GPUs read each byte of a model once, also what all of them get.
func TestGPUsReadOnce(t *testing.T) {
	m := transformer(t)
	for name, sel := range map[string]Selection{
		"tensor parallel": {Tensor: Rank{eachDevice, 4}},
		"replicas":        {Replicas: 4},
		"both":            {Tensor: Rank{eachDevice, 2}, Replicas: 2},
	} {
		t.Run(name, func(t *testing.T) {
			e := &meteredEngine{engine: softEngine(t, 64<<20), times: map[string]map[int64]int{}}
			p := planFor(t, m, sel, []int{0, 1, 2, 3}, nil)
			l, err := newLoad(p, e, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			for i, err := range l.Tensors(t.Context()) {
				if err != nil {
					t.Fatal(i, err)
				}
			}
			for _, info := range m.Tensors {
				for i := range info.Len {
					if n := e.times[m.Files[info.File].Path][info.Off+i]; n != 1 {
						t.Fatalf("byte %d of %s is read %d times", i, info.Name, n)
					}
				}
			}
			if r := l.Report(); r.Copied == 0 || l.Progress() < r.Wanted {
				t.Errorf("%d bytes copied, progress %d of %d", r.Copied, l.Progress(), r.Wanted)
			}
		})
	}
}

// Replicas share the reads, so that the links of all GPUs are busy.
func TestReplicasShareTheReads(t *testing.T) {
	p := planFor(t, transformer(t), Selection{Replicas: 4}, []int{0, 1, 2, 3}, nil)
	read := map[int]int64{}
	for _, r := range p.Reads {
		read[p.Buffers[r.Buffer].Device] += r.Size()
	}
	all := p.Totals().Read
	for device := range 4 {
		if n := read[device]; n < all/8 || n > all/2 {
			t.Errorf("gpu:%d reads %d of %d bytes", device, n, all)
		}
	}
}

// A tensor that is yielded may be changed: its copies are made before.
func TestCopiesComeBeforeTheirSource(t *testing.T) {
	m, e := transformer(t), softEngine(t, 64<<20)
	p := planFor(t, m, Selection{Replicas: 2}, []int{0, 1}, nil)
	l, err := newLoad(p, e, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	places := map[gpu.Addr]int{}
	for i := range p.Tensors {
		places[l.Tensor(i).Span.Addr()] = i
	}
	copyOf := map[int]int{}
	for _, c := range p.Copies {
		copyOf[c.From] = c.To
	}
	for x, err := range l.Tensors(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		to, ok := copyOf[places[x.Span.Addr()]]
		if !ok || x.Span.Len == 0 {
			continue
		}
		other := l.Tensor(to)
		if !bytes.Equal(onDevice(t, e, x), onDevice(t, e, &other)) {
			t.Errorf("%s is there before its copy", x.Name)
		}
	}
}

// A copyEngine copies to GPU 1 in a way of its own.
type copyEngine struct {
	engine
	copy func(s gpu.Stream, dst, src gpu.Addr, n uint64) error
}

func (e copyEngine) device(i int) (gpu.Device, error) {
	d, err := e.engine.device(i)
	if i == 1 && err == nil {
		d = copyDevice{d, e.copy}
	}
	return d, err
}

type copyDevice struct {
	gpu.Device
	copy func(s gpu.Stream, dst, src gpu.Addr, n uint64) error
}

func (d copyDevice) NewStream() (gpu.Stream, error) {
	s, err := d.Device.NewStream()
	return copyStream{s, d.copy}, err
}

type copyStream struct {
	gpu.Stream
	copy func(s gpu.Stream, dst, src gpu.Addr, n uint64) error
}

func (s copyStream) Copy(dst, src gpu.Addr, n uint64) error { return s.copy(s.Stream, dst, src, n) }

// A copy is verified where it is, not where it came from.
func TestCopiesAreVerified(t *testing.T) {
	machine := softEngine(t, 64<<20)
	dev, err := machine.device(1)
	if err != nil {
		t.Fatal(err)
	}
	short := func(s gpu.Stream, dst, src gpu.Addr, n uint64) error {
		if p, err := dev.Pointer(src); err == nil && p.Kind == gpu.KindDevice && p.Device == 0 {
			n-- // not the copies that verify
		}
		return s.Copy(dst, src, n)
	}
	e := copyEngine{machine, short}
	l, err := newLoad(planFor(t, transformer(t), Selection{Replicas: 2}, []int{0, 1}, nil), e, &LoadOptions{Verify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, err = range l.Tensors(t.Context()) {
	}
	if ce, ok := errors.AsType[*ChecksumError](err); !ok || !strings.Contains(ce.Detail, "on gpu:1") {
		t.Errorf("error %v", err)
	}
}

func TestCopyErrors(t *testing.T) {
	m, e := transformer(t), softEngine(t, 64<<20)
	fails := func(gpu.Stream, gpu.Addr, gpu.Addr, uint64) error { return gpu.ErrUnknown }
	l, err := newLoad(planFor(t, m, Selection{Replicas: 3}, []int{0, 1, 2}, nil), copyEngine{e, fails}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, err = range l.Tensors(t.Context()) {
	}
	if !errors.Is(err, gpu.ErrUnknown) || !strings.Contains(err.Error(), "to gpu:1") {
		t.Errorf("error %v", err)
	}
	p := planFor(t, m, Selection{Replicas: 2}, []int{0, 1}, &PlanOptions{PerTensor: true})
	if _, err := newLoad(p, e, &LoadOptions{Window: 1 << 20}); err == nil || !strings.Contains(err.Error(), "Apart") {
		t.Errorf("window: %v", err)
	}
}

// A loop that ends early leaves no goroutine waiting for a copy.
func TestCopiesStopWithTheLoop(t *testing.T) {
	l, err := newLoad(planFor(t, transformer(t), Selection{Replicas: 4}, []int{0, 1, 2, 3}, nil), softEngine(t, 64<<20), nil)
	if err != nil {
		t.Fatal(err)
	}
	for range l.Tensors(t.Context()) {
		break
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}
