package rm_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/gpu/cuda"
	"github.com/culvert-io/culvert/gpu/kernels"
	"github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/internal/rm"
	"github.com/culvert-io/culvert/internal/wc"
	softgpu "github.com/culvert-io/culvert/soft/gpu"
)

var (
	hwRounds  = flag.Int("rm.rounds", 10_000, "rounds of store and verify on the GPU, for each method of mapping")
	hwWindows = flag.Int("rm.windows", 5_000, "windows made and closed on the GPU, for each method of mapping")
)

// A hwReport is what TestHardware prints, as one line of JSON.
type hwReport struct {
	GPU     string             `json:"gpu"`
	Driver  string             `json:"driver"`
	UID     int                `json:"uid"`
	Rounds  map[string]int     `json:"rounds"`  // of store and verify, by way
	Kernel  map[string]int     `json:"kernel"`  // of store and compare by a kernel, by way and kind of store
	Windows map[string]int     `json:"windows"` // made and closed, by way
	Memory  [2]uint64          `json:"free_memory"`
	BAR1    [2]string          `json:"bar1_used"` // as nvidia-smi says it; empty without it
	Micros  map[string]float64 `json:"us"`
	Ratios  map[string]float64 `json:"ratios"`
}

// TestHardware maps memory of a real GPU in both ways, checks what is stored and
// loaded, looks for leaks and measures. As root it then runs itself once more as
// an ordinary user.
func TestHardware(t *testing.T) {
	drv, err := cuda.Open()
	if err != nil {
		t.Skipf("needs an NVIDIA GPU: %v", err)
	}
	d, err := drv.Open(0)
	if err != nil {
		t.Skipf("needs an NVIDIA GPU: %v", err)
	}
	defer d.Close()
	c, err := rm.Open(dev.Host())
	if err != nil {
		if _, ok := errors.AsType[*rm.Unavailable](err); ok {
			t.Skipf("needs a driver whose interface is known: %v", err)
		}
		t.Fatal(err)
	}
	r := newReport(d, c.Version())
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	r.run(t, dev.Host(), d)
	if b, err := json.Marshal(r); err != nil {
		t.Error(err)
	} else {
		fmt.Printf("%s\n", b)
	}
	if os.Getuid() == 0 {
		t.Run("as an ordinary user", asNobody)
	}
}

// TestHardwareSuite runs the suite on the software machine, so that it works
// when it meets hardware. What it measures there means nothing.
func TestHardwareSuite(t *testing.T) {
	m := newMachine(t, config{model: softgpu.H200()})
	d := m.device(t, 0)
	newReport(d, "").run(t, dev.Of(m.os), d)
}

func newReport(d gpu.Device, version string) *hwReport {
	return &hwReport{
		GPU: d.Info().Name, Driver: version, UID: os.Getuid(),
		Rounds: map[string]int{}, Kernel: map[string]int{}, Windows: map[string]int{}, Micros: map[string]float64{}, Ratios: map[string]float64{},
	}
}

func (r *hwReport) run(t *testing.T, o dev.OS, d gpu.Device) {
	mapper := newMapper(t, o, d, rm.NoBudget)
	if err := mapper.Probe(); err != nil {
		t.Fatal(err)
	}
	warmUp(t, d, mapper)
	r.Memory[0], r.BAR1[0] = memoryUse(t, d)
	for _, c := range []struct {
		kind   gpu.Kind
		method rm.Method
	}{{gpu.KindVirtual, rm.MethodImport}, {gpu.KindDevice, rm.MethodDuplicate}} {
		t.Run(string(c.method), func(t *testing.T) {
			r.Rounds[string(c.method)] = storeRounds(t, d, mapper, c.kind, c.method)
			for _, s := range stores {
				r.Kernel[string(c.method)+", "+s.name] = kernelRounds(t, d, mapper, c.kind, s)
			}
			r.Windows[string(c.method)] = windowRounds(t, d, mapper, c.kind)
		})
	}
	t.Run("latency", func(t *testing.T) { r.latency(t, d, mapper) })
	r.Memory[1], r.BAR1[1] = memoryUse(t, d)
	if r.Memory[0] != r.Memory[1] || r.BAR1[0] != r.BAR1[1] {
		t.Errorf("free memory was %d and is %d, BAR1 use was %q and is %q", r.Memory[0], r.Memory[1], r.BAR1[0], r.BAR1[1])
	}
}

// warmUp lets the driver make what it keeps.
func warmUp(t *testing.T, d gpu.Device, m *rm.Mapper) {
	t.Helper()
	for _, kind := range []gpu.Kind{gpu.KindVirtual, gpu.KindDevice} {
		a, err := d.Alloc(kind, 64<<20, 0)
		if err != nil {
			t.Fatal(err)
		}
		w, err := m.Map(a, 64<<20)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(d.CopyOut(make([]byte, 1<<20), a), w.Close(), d.Free(a)); err != nil {
			t.Fatal(err)
		}
	}
}

func memoryUse(t *testing.T, d gpu.Device) (free uint64, bar1 string) {
	t.Helper()
	free, _, err := d.MemInfo()
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("nvidia-smi", "-q", "-d", "MEMORY").Output()
	if err != nil {
		return free, ""
	}
	_, after, _ := strings.Cut(string(out), "BAR1 Memory Usage")
	if m := regexp.MustCompile(`Used\s*:\s*(.*)`).FindStringSubmatch(after); m != nil {
		bar1 = m[1]
	}
	return free, bar1
}

// storeRounds writes ranges by turns through the window and by the driver, and
// reads each the other way.
func storeRounds(t *testing.T, d gpu.Device, m *rm.Mapper, kind gpu.Kind, method rm.Method) int {
	const size = 8 << 20
	a := alloc(t, d, kind, size)
	odd := gpu.Addr(4321) // windows need not begin at pages
	w, err := m.Map(a+odd, size-4321)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if w.Method() != method {
		t.Fatalf("mapped by %v, want %v", w.Method(), method)
	}
	whole := content(t, d, a, size)
	if !bytes.Equal(whole, pattern(size, uint64(a))) {
		t.Fatal("mapping has changed the memory")
	}
	shown := whole[odd:]
	rng := rand.New(rand.NewPCG(1, uint64(len(method))))
	got := make([]byte, 64<<10)
	for i := range *hwRounds {
		n := 1 + rng.IntN(1<<rng.IntN(17))
		off := uint64(rng.IntN(len(shown) - n))
		fresh := pattern(n, rng.Uint64())
		copy(shown[off:], fresh)
		if i%2 == 0 {
			err = errors.Join(storeTo(w, off, fresh), d.CopyOut(got[:n], w.Base()+gpu.Addr(off)))
		} else {
			n = min(n, 4096) // loads are slow
			err = errors.Join(d.CopyIn(w.Base()+gpu.Addr(off), fresh), d.Synchronize(), loadFrom(w, got[:n], off))
		}
		if err != nil || !bytes.Equal(got[:n], fresh[:n]) {
			t.Fatalf("round %d, %d bytes at %d: other bytes than were written, %v", i, n, off, err)
		}
	}
	if err := d.Synchronize(); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(content(t, d, a, size), whole) {
		t.Fatal("bytes have changed that nobody wrote")
	}
	return *hwRounds
}

// A store is a way to put bytes into a window, some with the help of a file.
type store struct {
	name string
	put  func(w *rm.Mapping, off uint64, src []byte, f *os.File) error
}

// The stores that users of a window have.
var stores = []store{
	{"store", func(w *rm.Mapping, off uint64, src []byte, _ *os.File) error { return storeTo(w, off, src) }},
	{"pread", func(w *rm.Mapping, off uint64, src []byte, f *os.File) error {
		defer wc.Fence()
		if _, err := f.WriteAt(src, 0); err != nil {
			return err
		}
		_, err := f.ReadAt(w.Bytes()[off:off+uint64(len(src))], 0)
		return err
	}},
}

// kernelRounds stores through the window and has a kernel, launched right behind
// the store, compare the memory with what the driver has copied elsewhere.
func kernelRounds(t *testing.T, d gpu.Device, m *rm.Mapper, kind gpu.Kind, s store) int {
	const size, most = 8 << 20, 64 << 10
	a, ref, diff := alloc(t, d, kind, size), alloc(t, d, gpu.KindDevice, most), alloc(t, d, gpu.KindDevice, 8)
	w, err := m.Map(a, size)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	mod, err := d.Load(kernels.PTX)
	if err != nil {
		t.Fatal(err)
	}
	defer mod.Close()
	compare, err := mod.Func("culvert_compare")
	if err != nil {
		t.Fatal(err)
	}
	stream, err := d.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	rng := rand.New(rand.NewPCG(5, uint64(kind)))
	count, zero := make([]byte, 8), make([]byte, 8)
	for i := range *hwRounds {
		n := 1 + rng.IntN(1<<rng.IntN(17))
		off := uint64(rng.IntN(size - n))
		fresh := pattern(n, rng.Uint64())
		if err := errors.Join(d.CopyIn(ref, fresh), d.CopyIn(diff, zero)); err != nil {
			t.Fatal(err)
		}
		err := errors.Join(s.put(w, off, fresh, f),
			stream.Launch(compare, gpu.Dim{X: 4}, gpu.Dim{X: 128}, w.Base()+gpu.Addr(off), ref, uint64(n), diff),
			stream.Synchronize(), d.CopyOut(count, diff))
		if err != nil || !bytes.Equal(count, zero) {
			t.Fatalf("round %d: %d bytes at %d by %s: the kernel counts %x bytes that differ, %v", i, n, off, s.name, count, err)
		}
	}
	return *hwRounds
}

// windowRounds makes windows and closes them.
func windowRounds(t *testing.T, d gpu.Device, m *rm.Mapper, kind gpu.Kind) int {
	const size = 8 << 20
	a := alloc(t, d, kind, size)
	fds := descriptors(t)
	rng := rand.New(rand.NewPCG(3, 4))
	for range *hwWindows {
		n := 1 + rng.IntN(256<<10)
		w, err := m.Map(a+gpu.Addr(rng.IntN(size-n)), uint64(n))
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(storeTo(w, 0, []byte{1}), w.Close()); err != nil {
			t.Fatal(err)
		}
	}
	if n := descriptors(t); n != fds {
		t.Errorf("%d descriptors were open, %d are", fds, n)
	}
	return *hwWindows
}

// asNobody runs the test as uid 65534.
func asNobody(t *testing.T) {
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestHardware$", "-test.v",
		fmt.Sprint("-rm.rounds=", *hwRounds), fmt.Sprint("-rm.windows=", *hwWindows))
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), "HOME=/", "TMPDIR=/tmp", "CUDA_CACHE_DISABLE=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534, NoSetGroups: true}}
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Error(err)
	}
	if !bytes.Contains(out, []byte(`"uid":65534`)) {
		t.Error("the test did not run as uid 65534")
	}
}
