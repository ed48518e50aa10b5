package tensor

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/culvert-io/culvert/gpu"
)

// A meeting is a place where steps wait until all of them have arrived. Steps that run
// one after the other never meet.
type meeting struct {
	t    *testing.T
	name string
	mu   sync.Mutex
	left map[string]bool
	met  chan struct{}
}

func meet(t *testing.T, name string, steps ...string) *meeting {
	m := &meeting{t: t, name: name, left: map[string]bool{}, met: make(chan struct{})}
	for _, s := range steps {
		m.left[s] = true
	}
	return m
}

func (m *meeting) arrive(step string) {
	m.mu.Lock()
	if delete(m.left, step); len(m.left) == 0 {
		select {
		case <-m.met:
		default:
			close(m.met)
		}
	}
	m.mu.Unlock()
	select {
	case <-m.met:
	case <-time.After(time.Minute): // only if the test fails
		m.t.Errorf("%s: %s waits for others that do not come", m.name, step)
	}
}

// A heldEngine makes the steps of a load wait for each other.
type heldEngine struct {
	engine
	opening, moving *meeting
}

func (e *heldEngine) open(path string) (reader, error) {
	e.opening.arrive("files")
	r, err := e.engine.open(path)
	return heldReader{r, e}, err
}

func (e *heldEngine) device(i int) (gpu.Device, error) {
	e.opening.arrive("GPUs")
	dev, err := e.engine.device(i)
	return heldDevice{dev, e}, err
}

func (e *heldEngine) prepare(i int) error {
	e.moving.arrive("pinned memory")
	return e.engine.prepare(i)
}

type heldReader struct {
	reader
	e *heldEngine
}

func (heldReader) direct(int) bool { return false }

func (r heldReader) start(off, n int64) error {
	r.e.moving.arrive("first reads")
	return r.reader.start(off, n)
}

type heldDevice struct {
	gpu.Device
	e *heldEngine
}

func (d heldDevice) Alloc(k gpu.Kind, n uint64, f gpu.Flags) (gpu.Addr, error) {
	d.e.moving.arrive("device memory")
	return d.Device.Alloc(k, n, f)
}

// TestPrepareTogether: files and GPUs are opened at the same time, and then device
// memory, pinned memory and the first reads are under way at the same time.
func TestPrepareTogether(t *testing.T) {
	m := savedModel(t, source("large", U8, 1, worthPreparing))
	e := &heldEngine{
		engine:  softEngine(t, 2*worthPreparing),
		opening: meet(t, "opening", "files", "GPUs"),
		moving:  meet(t, "moving", "device memory", "pinned memory", "first reads"),
	}
	l, err := newLoad(planFor(t, m, Selection{}, []int{0}, nil), e, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

var errBroken = errors.New("broken")

// A brokenEngine cannot open some of what a load needs.
type brokenEngine struct {
	engine
	files, gpus error
}

func (e brokenEngine) open(path string) (reader, error) {
	if e.files != nil {
		return nil, e.files
	}
	return e.engine.open(path)
}

func (e brokenEngine) device(i int) (gpu.Device, error) {
	if e.gpus != nil {
		return nil, e.gpus
	}
	return e.engine.device(i)
}

// TestPrepareFails: whatever fails, nothing waits for it, and of two errors the file's
// is reported.
func TestPrepareFails(t *testing.T) {
	m := savedModel(t, source("small", U8, 1, 1000))
	other := errors.New("other")
	for name, tt := range map[string]brokenEngine{
		"files": {files: errBroken}, "GPUs": {gpus: errBroken}, "both": {files: errBroken, gpus: other},
	} {
		tt.engine = softEngine(t, 4<<20)
		if _, err := newLoad(planFor(t, m, Selection{}, []int{0}, nil), tt, nil); !errors.Is(err, errBroken) || errors.Is(err, other) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
