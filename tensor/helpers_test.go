package tensor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/machine"
	"github.com/culvert-io/culvert/route"
	"github.com/culvert-io/culvert/soft"
)

// softEngine is a software machine with four GPUs of the given memory. When the
// test ends it checks that loads have closed and freed what they took.
func softEngine(t testing.TB, memory uint64) engine {
	t.Helper()
	drv, err := cufile.Open(softMachine(t, memory))
	if err != nil {
		t.Fatal(err)
	}
	e := &countingEngine{engine: cufileEngine{drv: drv}, devices: map[int]*countingDevice{}}
	t.Cleanup(func() {
		for i, d := range e.devices {
			if n := d.live.Load(); n != 0 {
				t.Errorf("gpu:%d: %d allocations were not freed", i, n)
			}
		}
		if n := e.files.Load(); n != 0 {
			t.Errorf("%d files were not closed", n)
		}
		if err := drv.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

func softMachine(t testing.TB, memory uint64) *machine.Machine {
	t.Helper()
	cfg, err := soft.ParseConfig(os.Getenv("CULVERT_SOFT"))
	if err != nil {
		t.Fatal(err)
	}
	cfg.Zero = false // poison finds what relies on zeros
	cfg.GPUs, cfg.Memory = 4, memory
	m, err := machine.FromSoft(cfg, "test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// A countingEngine knows what a load has opened and not closed, allocated and
// not freed.
type countingEngine struct {
	engine
	devices map[int]*countingDevice
	files   atomic.Int64
}

type countingReader struct {
	reader
	files *atomic.Int64
}

func (e *countingEngine) open(path string) (reader, error) {
	r, err := e.engine.open(path)
	if err != nil {
		return nil, err
	}
	e.files.Add(1)
	return countingReader{r, &e.files}, nil
}

func (r countingReader) Close() error {
	r.files.Add(-1)
	return r.reader.Close()
}

type countingDevice struct {
	gpu.Device
	live atomic.Int64
}

func (e *countingEngine) device(i int) (gpu.Device, error) {
	if d, ok := e.devices[i]; ok {
		return d, nil
	}
	dev, err := e.engine.device(i)
	if err != nil {
		return nil, err
	}
	e.devices[i] = &countingDevice{Device: dev}
	return e.devices[i], nil
}

func (d *countingDevice) Alloc(k gpu.Kind, n uint64, f gpu.Flags) (gpu.Addr, error) {
	a, err := d.Device.Alloc(k, n, f)
	if err == nil {
		d.live.Add(1)
	}
	return a, err
}

func (d *countingDevice) Free(a gpu.Addr) error {
	d.live.Add(-1)
	return d.Device.Free(a)
}

// A hookedEngine asks before every read.
type hookedEngine struct {
	engine
	before func(ctx context.Context, segments []segment) error
}

type hookedReader struct {
	reader
	before func(ctx context.Context, segments []segment) error
}

func (h hookedEngine) open(path string) (reader, error) {
	r, err := h.engine.open(path)
	return hookedReader{r, h.before}, err
}

func (h hookedReader) read(ctx context.Context, segments []segment) (route.Receipt, error) {
	if err := h.before(ctx, segments); err != nil {
		return route.Receipt{}, err
	}
	return h.reader.read(ctx, segments)
}

// transformer is a small sharded model: two files and an index.
func transformer(t testing.TB) *Model {
	t.Helper()
	dir := t.TempDir()
	shards := [][]Source{
		{source("model.embed_tokens.weight", BF16, 1, 128, 64)},
		{source("model.norm.weight", BF16, 2, 64), source("lm_head.weight", BF16, 3, 128, 64)},
	}
	for i := range 4 {
		p := fmt.Sprintf("model.layers.%d.", i)
		seed := uint64(10 * (i + 1))
		shards[i/2] = append(shards[i/2],
			source(p+"norm.weight", F32, seed, 33),
			source(p+"self_attn.q_proj.weight", BF16, seed+1, 64, 64),
			source(p+"self_attn.o_proj.weight", BF16, seed+2, 64, 64),
			source(p+"mlp.gate_up_proj.weight", F8_E4M3, seed+3, 256, 64),
			source(p+"mlp.down_proj.weight", F8_E4M3, seed+4, 64, 128),
			source(p+"empty", F32, seed+5, 0),
		)
	}
	for i, s := range shards {
		if _, err := Save(t.Context(), filepath.Join(dir, fmt.Sprintf("%d.safetensors", i)), s, nil); err != nil {
			t.Fatal(err)
		}
	}
	m, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

const (
	BOOL    Dtype = "BOOL"
	F4      Dtype = "F4"
	F6_E2M3 Dtype = "F6_E2M3"
	F6_E3M2 Dtype = "F6_E3M2"
	U8      Dtype = "U8"
	I8      Dtype = "I8"
	F8_E4M3 Dtype = "F8_E4M3"
	I16     Dtype = "I16"
	F16     Dtype = "F16"
	BF16    Dtype = "BF16"
	I32     Dtype = "I32"
	F32     Dtype = "F32"
	F64     Dtype = "F64"
	C64     Dtype = "C64"
	I64     Dtype = "I64"
	U64     Dtype = "U64"
)

// A brokenRule is what isError looks for in a FormatError.
type brokenRule string

func (r brokenRule) Error() string { return string(r) }

func isError(err, want error) bool {
	if r, ok := want.(brokenRule); ok {
		fe, ok := errors.AsType[*FormatError](err)
		return ok && fe.Rule == string(r)
	}
	return errors.Is(err, want)
}

// sizeOf returns the size of a tensor that the format allows.
func sizeOf(d Dtype, shape []int64) int64 {
	n, err := d.Size(shape)
	if err != nil {
		panic(err)
	}
	return n
}

func bytesOf(m *Model) (n int64) {
	for _, info := range m.Tensors {
		n += info.Len
	}
	return n
}

// latestStep returns the step that the link to the latest one points to.
func latestStep(c *Checkpoints) (step int64, err error) {
	to, err := os.Readlink(filepath.Join(c.Dir, latestName))
	if err != nil {
		return 0, err
	}
	_, err = fmt.Sscanf(to, stepPrefix+"%d", &step)
	return step, err
}

// numbers returns the steps by number.
func numbers(c *Checkpoints) (list []int64, err error) {
	steps, err := c.Steps(context.Background())
	for _, s := range steps {
		list = append(list, s.Number)
	}
	slices.Sort(list)
	return list, err
}
