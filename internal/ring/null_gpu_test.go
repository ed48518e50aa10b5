package ring

import (
	"context"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
)

// nullGPU pins memory and copies nothing: what is left is the ring's own cost.
// As on hardware, copies do not use the CPU.
type nullGPU struct {
	gpu.Device // nil: any other method is a bug of the test
	t          testing.TB
}

func (g *nullGPU) Info() gpu.Info { return gpu.Info{Name: "null"} }

func (g *nullGPU) Alloc(_ gpu.Kind, n uint64, _ gpu.Flags) (gpu.Addr, error) {
	m, err := unix.Mmap(-1, 0, int(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE|unix.MAP_POPULATE)
	if err != nil {
		return 0, err
	}
	g.t.Cleanup(func() { unix.Munmap(m) })
	return gpu.HostAddr(m), nil
}

func (g *nullGPU) Free(gpu.Addr) error { return nil }

func (g *nullGPU) Register(uintptr, uint64, gpu.Flags) error { return nil }
func (g *nullGPU) Unregister(uintptr) error                  { return nil }

func (g *nullGPU) NewStream() (gpu.Stream, error)        { return nullStream{}, nil }
func (g *nullGPU) NewEvent() (gpu.Event, error)          { return nullEvent{}, nil }
func (g *nullGPU) Bind() (func(), error)                 { return func() {}, nil }
func (g *nullGPU) Load([]byte) (gpu.Module, error)       { return nil, gpu.ErrNotSupported }
func (g *nullGPU) Pointer(gpu.Addr) (gpu.Pointer, error) { return gpu.Pointer{}, nil }

type nullStream struct{ gpu.Stream }

func (nullStream) Copy(_, _ gpu.Addr, _ uint64) error { return nil }
func (nullStream) Record(gpu.Event) error             { return nil }
func (nullStream) Synchronize() error                 { return nil }
func (nullStream) Close() error                       { return nil }

type nullEvent struct{ gpu.Event }

func (nullEvent) Done() (bool, error) { return true, nil }
func (nullEvent) Synchronize() error  { return nil }
func (nullEvent) Close() error        { return nil }

// A request allocates nothing, whichever way it goes.
func TestAllocs(t *testing.T) {
	if race {
		t.Skip("needs a build without the race detector, which allocates itself")
	}
	r, err := New(&nullGPU{t: t}, Config{Workers: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	f := newFile(t, noise(1, 8<<20))
	for _, write := range []bool{false, true} {
		for _, n := range []int64{4096, 128 << 10, 1 << 20, 8 << 20} {
			ctx := context.Background()
			reqs := []Request{{Write: write, Buffered: f.buffered, Direct: f.direct, Align: f.align, Addr: 4096, Len: n}}
			res := make([]Result, 1)
			most := 0.
			if write && f.direct < 0 { // on some file systems through a mapping, which package unix keeps a list of
				most = 1
			}
			if allocs := testing.AllocsPerRun(50, func() {
				if err := r.Run(ctx, reqs, res); err != nil {
					t.Fatal(err)
				}
			}); allocs > most {
				t.Errorf("write %v of %d bytes: %v allocations", write, n, allocs)
			}
		}
	}
}
