package soft_test

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/gpumem"
	"github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/internal/dev/gdrdrv"
	"github.com/culvert-io/culvert/machine"
	"github.com/culvert-io/culvert/soft"
	softgpu "github.com/culvert-io/culvert/soft/gpu"
	"github.com/culvert-io/culvert/soft/internal/topology"
	"github.com/culvert-io/culvert/soft/pcie"
)

const rw = unix.PROT_READ | unix.PROT_WRITE

func build(t *testing.T, cfg soft.Config) (*soft.Machine, gpu.Device, gpu.Addr) {
	t.Helper()
	if cfg.Memory == 0 {
		cfg.Memory = 64 << 20
	}
	m, err := soft.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	d, err := m.GPU.Open(max(cfg.GPUs, 1) - 1)
	if err != nil {
		t.Fatal(err)
	}
	a, err := d.Alloc(gpu.KindDevice, 1<<20, 0)
	if err != nil {
		t.Fatal(err)
	}
	return m, d, a
}

func down(t *testing.T, m *soft.Machine, d gpu.Device, a gpu.Addr) {
	t.Helper()
	if err := errors.Join(d.Free(a), d.Close(), m.GPU.Close(), m.GPU.Close()); err != nil {
		t.Error(err)
	}
	for _, path := range []string{"/dev/gdrdrv", "/dev/gpumem", "/dev/nvidia-fs0", "/dev/nvidiactl"} {
		if _, err := dev.Of(m).Open(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s after the end of the machine: %v", path, err)
		}
	}
}

// The CPU, the GPU and a device beside it see the same bytes, on the last of
// several GPUs too.
func TestModulesShowTheGPUsMemory(t *testing.T) {
	for name, cfg := range map[string]soft.Config{
		"H200":      {},
		"scattered": {Scatter: true, Seed: 3},
		"small BAR": {Model: "small-bar", Memory: 512 << 20},
		"two GPUs":  {GPUs: 2},
	} {
		t.Run(name, func(t *testing.T) {
			m, d, a := build(t, cfg)
			c, err := gdrdrv.Open(dev.Of(m))
			if err != nil {
				t.Fatal(err)
			}
			p, err := c.Pin(uint64(a), 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			w, err := p.Map(1<<20, rw)
			if err != nil {
				t.Fatal(err)
			}
			copy(dev.Bytes(w), "by the CPU")
			got := make([]byte, 10)
			if err := d.CopyOut(got, a); err != nil || string(got) != "by the CPU" {
				t.Errorf("the GPU has %q, %v", got, err)
			}
			engineWrites(t, m, max(cfg.GPUs, 1)-1, a)
			if got := string(dev.Bytes(w)[:10]); got != "the engine" {
				t.Errorf("the CPU sees %q", got)
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
			down(t, m, d, a)
		})
	}
}

// engineWrites locks memory by gpumem and has an engine write its first page.
func engineWrites(t *testing.T, m *soft.Machine, i int, a gpu.Addr) {
	t.Helper()
	c, err := gpumem.Open(dev.With(&machine.Machine{}, dev.Of(m)))
	if err != nil {
		t.Fatal(err)
	}
	l, err := c.Lock(a, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	text, err := fs.ReadFile(dev.Of(m).FS(), "proc/gpumem")
	if err != nil || !strings.Contains(string(text), "Number of pages - 16") {
		t.Errorf("/proc/gpumem is %q, %v", text, err)
	}
	pages, err := l.Pages()
	if err != nil {
		t.Fatal(err)
	}
	port, err := m.Plug(i)
	if err != nil {
		t.Fatal(err)
	}
	e := pcie.Engine{Port: port}
	if n, err := e.Write([]pcie.Range{{Bus: pages[0], Len: gpumem.PageSize}}, []byte("the engine")); n != 10 || err != nil {
		t.Errorf("the engine wrote %d bytes, %v", n, err)
	}
	if up, host := port.Traffic().Up, port.Fabric().HostTraffic().Written; up != 10 || host != 0 {
		t.Errorf("%d bytes crossed the engine's link and %d went to host memory, want 10 and 0", up, host)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

func TestPlugHasLimits(t *testing.T) {
	m, d, a := build(t, soft.Config{GPUs: 16, Memory: 2 << 20})
	for _, i := range []int{-2, 16} {
		if _, err := m.Plug(i); err == nil {
			t.Errorf("a device was plugged in beside GPU %d", i)
		}
	}
	for i := range 16 {
		free := topology.Slots - 1
		if i == 0 {
			free-- // the drive under nvidia-fs has one
		}
		for range free {
			if _, err := m.Plug(i); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := m.Plug(i); err == nil || !strings.Contains(err.Error(), "taken") {
			t.Errorf("one device too many beside GPU %d: %v", i, err)
		}
	}
	down(t, m, d, a)
}

// Memory on the heap can be pinned and reached by devices, but not mapped.
func TestHeapDeclinesMappings(t *testing.T) {
	m, d, a := build(t, soft.Config{Heap: true})
	engineWrites(t, m, 0, a)
	c, err := gdrdrv.Open(dev.Of(m))
	if err != nil {
		t.Fatal(err)
	}
	p, err := c.Pin(uint64(a), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Map(1<<20, rw); !errors.Is(err, syscall.ENODEV) {
		t.Errorf("map: %v", err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	down(t, m, d, a)
}

// The machine goes down under clients that have not closed their nodes.
func TestCloseUnderPins(t *testing.T) {
	m, d, a := build(t, soft.Config{})
	g, err := gdrdrv.Open(dev.Of(m))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.Pin(uint64(a), 1<<20); err != nil {
		t.Fatal(err)
	}
	l, err := gpumem.Open(dev.With(&machine.Machine{}, dev.Of(m)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Lock(a, 1<<20); err != nil {
		t.Fatal(err)
	}
	down(t, m, d, a)
}

// Machines that are opened and closed leave no descriptors, and what is around
// the GPUs takes little while nobody uses it: every command opens a machine.
func TestMachinesAreCheap(t *testing.T) {
	gpus := allocated(t, func() (io.Closer, error) { return softgpu.New(softgpu.Config{}) })
	before := descriptors(t)
	whole := allocated(t, func() (io.Closer, error) {
		m, err := soft.New(soft.Config{})
		if err != nil {
			return nil, err
		}
		return m.GPU, nil
	})
	if n := descriptors(t); n != before {
		t.Errorf("%d descriptors are open, %d were before", n, before)
	}
	if whole > gpus+128<<10 {
		t.Errorf("a machine that does nothing allocates %d bytes, its GPUs alone %d", whole, gpus)
	}
}

// allocated is how many bytes one opening and closing allocates.
func allocated(t *testing.T, open func() (io.Closer, error)) uint64 {
	t.Helper()
	const rounds = 20
	var was, is runtime.MemStats
	runtime.ReadMemStats(&was)
	for range rounds {
		c, err := open()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	runtime.ReadMemStats(&is)
	return (is.TotalAlloc - was.TotalAlloc) / rounds
}

func descriptors(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

func BenchmarkNew(b *testing.B) {
	for b.Loop() {
		m, err := soft.New(soft.Config{})
		if err != nil {
			b.Fatal(err)
		}
		if err := m.GPU.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

// A machine without drives has one behind /dev/libnvm0, from when that is first opened; one
// that was added before is behind it instead.
func TestFirstDrive(t *testing.T) {
	for name, add := range map[string]bool{"none": false, "one": true} {
		t.Run(name, func(t *testing.T) {
			m, err := soft.New(soft.Config{Memory: 16 << 20})
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			if add {
				if _, err := m.AddDrive(soft.Drive{Size: 1 << 20}); err != nil {
					t.Fatal(err)
				}
			}
			for range 2 {
				n, err := dev.Of(m).Open("/dev/libnvm0")
				if err != nil {
					t.Fatal(err)
				}
				if len(m.Drives()) != 1 {
					t.Errorf("%d drives", len(m.Drives()))
				}
				if err := n.Close(); err != nil {
					t.Error(err)
				}
			}
			if _, err := dev.Of(m).Open("/dev/libnvm1"); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("a second node: %v", err)
			}
			if _, err := m.AddDrive(soft.Drive{Size: 1 << 20}); err != nil {
				t.Fatal(err)
			}
			n, err := dev.Of(m).Open("/dev/libnvm1")
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(n.Close(), m.InUse()); err != nil {
				t.Error(err)
			}
		})
	}
}
