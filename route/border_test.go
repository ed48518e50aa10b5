package route

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/internal/storage"
	"github.com/culvert-io/culvert/machine"
	"github.com/culvert-io/culvert/soft"
)

func TestBorderFollowsTheSpeeds(t *testing.T) {
	id := Identity{FS: "ext4", Callers: 8}
	for name, c := range map[string]struct {
		speeds []BorderSpeeds
		max    uint64
		says   string
	}{
		"the ring wins early":   {[]BorderSpeeds{{256 << 10, 20e9, 30e9}, {512 << 10, 20e9, 40e9}}, borderLow, "larger than 128 KiB; measured on ext4 with 8 callers: at 256 KiB ring moves 30GB/s, bar 20GB/s"},
		"the ring wins late":    {[]BorderSpeeds{{256 << 10, 33e9, 30e9}, {512 << 10, 33e9, 42e9}}, 256 << 10, "at 512 KiB ring moves 42GB/s, bar 33GB/s"},
		"bar wins":              {[]BorderSpeeds{{256 << 10, 33e9, 30e9}, {512 << 10, 33e9, 31e9}, {1 << 20, 3, 2}}, borderHigh, "larger than 1024 KiB"},
		"noise behind the ring": {[]BorderSpeeds{{256 << 10, 20e9, 30e9}, {512 << 10, 50e9, 40e9}}, borderLow, "at 256 KiB"},
		"the ring failed":       {[]BorderSpeeds{{256 << 10, 20e9, 0}, {512 << 10, 20e9, 40e9}}, 256 << 10, "at 512 KiB"},
	} {
		b := newBorder(id, c.speeds)
		if b.Max != c.max || !strings.Contains(b.decline().Evidence, c.says) {
			t.Errorf("%s: border %d, %q; want %d, %q", name, b.Max, b.decline().Evidence, c.max, c.says)
		}
	}
}

// What was measured is known to the next process, as long as it is about the
// same thing.
func TestBordersAreKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "culvert", "borders.json")
	id := Identity{Method: 1, GPU: "GPU-1", Kernel: "6.18", FS: "ext4", Dev: "8:1", Callers: 8}
	other := id
	other.Kernel = "6.19"
	count := 0
	measure := func(id Identity) func() *Border {
		return func() *Border {
			count++
			return newBorder(id, []BorderSpeeds{{256 << 10, 2, 1}, {512 << 10, 1, 2}})
		}
	}
	first := (&borderCache{path: path}).get(id, measure(id))
	next := &borderCache{path: path}
	if got := next.get(id, measure(id)); count != 1 || !cmp.Equal(first, got) {
		t.Errorf("measured %d times; %s", count, cmp.Diff(first, got))
	}
	next.get(other, measure(other))
	next.get(other, measure(other))
	if count != 2 {
		t.Errorf("measured %d times, want once more for another kernel", count)
	}
	if next.get(Identity{}, func() *Border { return nil }) != nil || next.known[Identity{}] != nil {
		t.Error("what could not be measured was kept")
	}
	for _, damage := range []string{"", "{", "null", "[null]", `[{"max_bytes": 1}]`, `[{"max_bytes": 99999999999}]`} {
		if err := os.WriteFile(path, []byte(damage), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := (&borderCache{path: path}).load(); len(got) != 0 {
			t.Errorf("a file with %q holds %v", damage, got)
		}
	}
	(&borderCache{path: "/proc/nowhere/borders.json"}).get(id, measure(id)) // must not fail
}

// While one caller seeks the border the others do not wait, and it is sought
// once; small and large requests never seek it.
func TestBorderIsSoughtOnce(t *testing.T) {
	inside, release := make(chan struct{}), make(chan struct{})
	calls := 0
	f := &borderFinder{find: func(*Op) *Border {
		calls++
		close(inside)
		<-release
		return newBorder(Identity{}, []BorderSpeeds{{256 << 10, 1, 2}})
	}}
	var wg sync.WaitGroup
	wg.Go(func() {
		if k := f.seek(nil); k.max != borderLow {
			t.Errorf("the seeker found %d", k.max)
		}
	})
	<-inside
	if k := f.seek(nil); k != defaultBorder {
		t.Errorf("meanwhile it is %d", k.max)
	}
	close(release)
	wg.Wait()
	if k := f.seek(nil); k.max != borderLow || calls != 1 {
		t.Errorf("afterwards it is %d, after %d measurements", k.max, calls)
	}
	tries := 0
	cold := &borderFinder{find: func(*Op) *Border { tries++; return nil }}
	for range 3 * maxBorderTries {
		if k := cold.seek(nil); k != defaultBorder {
			t.Fatalf("without a measurement it is %d", k.max)
		}
	}
	if tries != maxBorderTries {
		t.Errorf("tried %d times", tries)
	}
}

type always struct{}

func (always) Live(gpu.Span) error                      { return nil }
func (always) LiveLately(gpu.Span, time.Duration) error { return nil }

// A world is a GPU of the software machine with its ladder, a warm file and a
// registered buffer of 1 MiB.
type world struct {
	device gpu.Device
	ladder *Ladder
	file   *storage.File
	mem    gpu.Span
}

func newWorld(t *testing.T) *world {
	t.Helper()
	m, err := machine.FromSoft(soft.Config{Memory: 64 << 20}, "test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	w := new(world)
	if w.device, err = m.GPU.Open(0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.device.Close() })
	if w.ladder, err = For(w.device, dev.Of(m)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.ladder.Close(); err != nil {
			t.Error(err)
		}
	})
	name := filepath.Join(t.TempDir(), "data")
	if err := os.WriteFile(name, make([]byte, 2<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if w.file, err = storage.Adopt(int(file.Fd())); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.file.Close() })
	a, err := w.device.Alloc(gpu.KindDevice, 1<<20, 0)
	if err != nil {
		t.Fatal(err)
	}
	w.mem = gpu.Span{Base: a, Len: 1 << 20}
	w.ladder.Register(w.mem, gpu.KindDevice)
	t.Cleanup(func() { w.ladder.Deregister(w.mem) })
	return w
}

func (w *world) op(n uint64) Op {
	return Op{File: w.file, Mem: w.mem.Slice(0, n), Kind: gpu.KindDevice, Buf: always{}}
}

// A window is used only for a buffer that its user holds: another may be
// deregistered, and the window unmapped, at any time.
func TestBarWantsABufferThatIsHeld(t *testing.T) {
	t.Setenv(nvfsSwitch, "0") // it stands above bar
	w := newWorld(t)
	plan := w.ladder.Plan(w.file)
	held, loose := w.op(4096), w.op(4096)
	loose.Buf = nil
	if why := plan.usable[0].Takes(&held); plan.Best() != Bar || why != nil {
		t.Fatalf("%v declines a registered buffer: %v", plan.Best(), why)
	}
	if why := plan.usable[0].Takes(&loose); why != barDeclineUnmapped {
		t.Errorf("a buffer that nobody holds: %v", why)
	}
}

// The measurement itself, on the software machine: it ends, leaves nothing
// behind, and decides.
func TestMeasure(t *testing.T) {
	old := borders
	borders = &borderCache{path: filepath.Join(t.TempDir(), "borders.json")}
	defer func() { borders = old }()
	t.Setenv(nvfsSwitch, "0") // it stands above both
	w := newWorld(t)
	if n, err := w.file.Resident(0, borderHigh); err != nil || n < borderHigh {
		t.Skipf("needs cachestat and a warm file: %d, %v", n, err)
	}
	free, _, err := w.device.MemInfo()
	if err != nil {
		t.Fatal(err)
	}
	plan := w.ladder.Plan(w.file)
	read := func(n uint64) Receipt {
		t.Helper()
		res := make([]Receipt, 1)
		if err := plan.Run(context.Background(), []Op{w.op(n)}, res); err != nil || res[0].Bytes != int64(n) {
			t.Fatalf("%v, %v", &res[0], err)
		}
		return res[0]
	}
	if r := read(4096); r.Route != Bar || len(borders.known) != 0 {
		t.Errorf("a small read: %v, %d borders", &r, len(borders.known))
	}
	r := read(300 << 10)
	if len(borders.known) != 1 {
		t.Fatalf("%d borders were found", len(borders.known))
	}
	for _, b := range borders.known {
		if len(b.Speeds) != 3 || b.Speeds[0].Bar == 0 || b.Speeds[1].Ring == 0 || (b.Max >= 300<<10) != (r.Route == Bar) {
			t.Errorf("%+v, and then %v", b, &r)
		}
	}
	if after, _, err := w.device.MemInfo(); err != nil || after != free {
		t.Errorf("%d bytes were free before, %d are now, %v", free, after, err)
	}
	only, err := plan.Only(Bar)
	if err != nil {
		t.Fatal(err)
	}
	op := w.op(barMax)
	if why := only.usable[0].Takes(&op); why != nil {
		t.Errorf("bar was asked for, and declines %d KiB: %v", barMax>>10, why)
	}
}
