package ladder

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"math"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/internal/storage"
	"github.com/culvert-io/culvert/internal/tune"
	"github.com/culvert-io/culvert/route"
)

func TestPlanUsesTheFirstRouteThatAccepts(t *testing.T) {
	small, large := newFake(route.Bar, 10), newFake(route.Ring, 0)
	gone := newFake(route.P2PDMA, 0)
	gone.absent = decline(route.P2PDMA, "kernel", "too old", "upgrade")
	l := &Ladder{routes: []Route{gone, small, large}, absent: []*route.Decline{decline(route.NVFS, "module", "not loaded", "")}}
	ops := []Op{op(5), op(6), op(100), op(7)}
	res := make([]route.Receipt, len(ops))
	if err := l.Plan(nil).Run(context.Background(), ops, res); err != nil {
		t.Fatal(err)
	}
	for i, want := range []route.ID{route.Bar, route.Bar, route.Ring, route.Bar} {
		if res[i].Route != want {
			t.Errorf("op %d went by %v, want %v", i, res[i].Route, want)
		}
	}
	if len(small.calls) != 2 || len(small.calls[0]) != 2 || len(large.calls) != 1 {
		t.Errorf("neighbours were not batched: %v and %v", small.calls, large.calls)
	}
	var why []string
	for _, d := range res[2].Declined.List() {
		why = append(why, d.Route.String()+":"+d.Test)
	}
	if got := strings.Join(why, " "); got != "nvfs:module p2pdma:kernel bar:size" {
		t.Errorf("the large op's receipt declines %q", got)
	}
	if len(res[0].Declined.List()) != 2 {
		t.Errorf("the small op's receipt declines %v", res[0].Declined.List())
	}
}

func TestPlanOnlyRefusesInsteadOfFallingBack(t *testing.T) {
	small, large := newFake(route.Bar, 10), newFake(route.Ring, 0)
	p := (&Ladder{routes: []Route{small, large}, absent: []*route.Decline{decline(route.NVFS, "module", "not loaded", "modprobe")}}).Plan(nil)
	only, err := p.Only(route.Bar)
	if err != nil {
		t.Fatal(err)
	}
	err = only.Run(context.Background(), []Op{op(11)}, make([]route.Receipt, 1))
	if re, ok := errors.AsType[*route.RequireError](err); !ok || re.Want != route.Bar || len(large.calls) != 0 {
		t.Errorf("a large op on a route for small ones: %v, ring called %d times", err, len(large.calls))
	}
	if _, err := p.Only(route.NVFS); err == nil || !strings.Contains(err.Error(), "not loaded (fix: modprobe)") {
		t.Errorf("Only(nvfs): %v", err)
	}
	if _, err := p.Only(route.RDMA); err == nil || !strings.Contains(err.Error(), "rdma: source: the file is on this host") {
		t.Errorf("Only(rdma): %v", err)
	}
	if _, err := p.Only(route.NVMe); err == nil || !strings.Contains(err.Error(), "nvme: source: the route is between a drive") {
		t.Errorf("Only(nvme): %v", err)
	}
	if err := p.Describe().Require(route.Ring); err != nil {
		t.Errorf("bar is better than ring: %v", err)
	}
	if err := p.Describe().Require(route.NVFS); err == nil {
		t.Error("bar is worse than nvfs, and no error says so")
	}
}

// With a route required or better, the routes from there up share the work, each
// without help from worse ones; nothing falls further.
func TestPlanAtLeast(t *testing.T) {
	direct, small, large := newFake(route.NVFS, 10), newFake(route.Bar, 100), newFake(route.Ring, 0)
	direct.traits.Block = 4
	p := (&Ladder{routes: []Route{direct, small, large}, absent: []*route.Decline{decline(route.Vendor, "library", "not there", "")}}).Plan(nil)
	bar, err := p.AtLeast(route.Bar)
	if err != nil {
		t.Fatal(err)
	}
	ops := []Op{op(8), op(9), op(100)}
	res := make([]route.Receipt, len(ops))
	if err := bar.Run(context.Background(), ops, res); err != nil {
		t.Fatal(err)
	}
	for i, want := range []route.ID{route.NVFS, route.Bar, route.Bar} {
		if res[i].Route != want {
			t.Errorf("%d bytes go by %v, want %v", ops[i].Mem.Len, res[i].Route, want)
		}
	}
	err = bar.Run(context.Background(), []Op{op(101)}, make([]route.Receipt, 1))
	if re, ok := errors.AsType[*route.RequireError](err); !ok || re.Want != route.Bar || len(large.calls) != 0 {
		t.Errorf("more than bar accepts: %v", err)
	}
	if _, err := p.AtLeast(route.Vendor); err == nil || !strings.Contains(err.Error(), "not there") {
		t.Errorf("no route is that good: %v", err)
	}
	host, err := p.AtLeast(route.Host)
	if err != nil {
		t.Fatal(err)
	}
	res[1] = route.Receipt{}
	if err := host.Run(context.Background(), ops[1:2], res[1:2]); err != nil || res[1].Route != route.NVFS {
		t.Errorf("unaligned ends may go through host memory: %v, %v", &res[1], err)
	}
}

func TestRunStopsAtTheFirstError(t *testing.T) {
	boom := errors.New("boom")
	a, b := newFake(route.Bar, 10), newFake(route.Ring, 0)
	a.err = boom
	p := (&Ladder{routes: []Route{a, b}}).Plan(nil)
	if err := p.Run(context.Background(), []Op{op(1), op(100)}, make([]route.Receipt, 2)); !errors.Is(err, boom) {
		t.Errorf("got %v", err)
	}
	if len(b.calls) != 0 {
		t.Error("the next route ran after an error")
	}
}

// A rejecting route accepts a request, moves a part of it and is rejected.
type rejecting struct {
	*fake
	forgets bool
}

func (r *rejecting) Run(_ context.Context, _ []Op, res []route.Receipt) error {
	why := decline(r.traits.ID, "kernel", "no", "")
	if !r.forgets {
		r.state.Learned = why
	}
	res[0].Bytes, res[0].By[r.traits.ID], res[0].Host.Bytes = 3, 3, 3
	return &RejectedError{why, unix.EREMOTEIO}
}

// A changing route declines the first time it is asked.
type changing struct {
	*fake
	asked int
}

func (c *changing) State(*Op) State {
	if c.asked++; c.asked == 1 {
		return State{Learned: decline(c.traits.ID, "kernel", "not yet", "")}
	}
	return State{}
}

// What was moved before a rejection is moved again, and counted once.
func TestRejectedAttemptLeavesNoTrace(t *testing.T) {
	top, bottom := &rejecting{fake: newFake(route.P2PDMA, 0)}, newFake(route.Ring, 100)
	res := make([]route.Receipt, 1)
	if err := (&Ladder{routes: []Route{top, bottom}}).Plan(nil).Run(context.Background(), []Op{op(10)}, res); err != nil {
		t.Fatal(err)
	}
	if r := &res[0]; r.Bytes != 10 || r.By[route.P2PDMA] != 0 || r.Host.Bytes != 0 || r.Declined[route.P2PDMA] != top.state.Learned {
		t.Errorf("%v", r)
	}
	// In a batch the op after a rejected one is chosen for twice: the first reasons are
	// forgotten.
	top = &rejecting{fake: newFake(route.P2PDMA, 10)}
	busyOnce := &changing{fake: newFake(route.Bar, 0)}
	res = make([]route.Receipt, 2)
	if err := (&Ladder{routes: []Route{top, busyOnce, bottom}}).Plan(nil).Run(context.Background(), []Op{op(10), op(11)}, res); err != nil {
		t.Fatal(err)
	}
	if r := &res[1]; r.Route != route.Bar || r.Declined[route.Bar] != nil {
		t.Errorf("the receipt declines its own route: %v", r)
	}
	// A route that is rejected and accepts the same request again is an error, not a
	// loop.
	stubborn := &rejecting{fake: newFake(route.P2PDMA, 0), forgets: true}
	err := (&Ladder{routes: []Route{stubborn, bottom}}).Plan(nil).Run(context.Background(), []Op{op(10)}, make([]route.Receipt, 1))
	if !errors.Is(err, unix.EREMOTEIO) {
		t.Errorf("a route that never declines: %v", err)
	}
}

// A route that writes to addresses checks them before and after; one that keeps the
// memory by a mapping need not.
func TestFreedMemory(t *testing.T) {
	for _, keeps := range []bool{false, true} {
		r := newFake(route.Ring, 0)
		r.traits.KeepsMemory = keeps
		o := op(10)
		o.Buf = freedBuffer{}
		err := (&Ladder{routes: []Route{r}}).Plan(nil).Run(context.Background(), []Op{o}, make([]route.Receipt, 1))
		if errors.Is(err, route.ErrFreed) == keeps || (len(r.calls) > 0) != keeps {
			t.Errorf("keeps memory %t: %v, %d calls", keeps, err, len(r.calls))
		}
	}
}

// A receipt has its share of the pinned-copy rate if that is known.
func TestReceiptShare(t *testing.T) {
	l := &Ladder{routes: []Route{newFake(route.Ring, 0)}}
	run := func() *route.Receipt {
		res := make([]route.Receipt, 1)
		if err := l.Plan(nil).Run(context.Background(), []Op{op(1 << 20)}, res); err != nil {
			t.Fatal(err)
		}
		res[0].Time = time.Millisecond // 1.05 GB/s
		return &res[0]
	}
	if r := run(); r.Share() != 0 || strings.Contains(r.String(), "share") {
		t.Errorf("without a rate: %v", r)
	}
	l.pinned = new(tune.PinnedRate)
	l.pinned[0].Store(math.Float64bits(4 * 1.048576e9))
	r := run()
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	if r.Share() != 0.25 || !strings.HasSuffix(r.String(), "rate=1.049GB/s share=0.25") || !strings.Contains(string(text), `"share_of_ceiling":0.25`) {
		t.Errorf("%v\n%s", r, text)
	}
	only, err := l.Plan(nil).Only(route.Ring)
	if err != nil {
		t.Fatal(err)
	}
	res := make([]route.Receipt, 1)
	if err := only.Run(context.Background(), []Op{op(1)}, res); err != nil || res[0].Ceiling == 0 {
		t.Errorf("with a required route: %v, %v", &res[0], err)
	}
}

// TestSourceWithoutDescriptor moves a source that is no file, as an object will be, by
// the ring and through host memory: small, large, and past the end.
func TestSourceWithoutDescriptor(t *testing.T) {
	device, m := softDevice(t)
	l := Open(device, dev.Of(m), nil, Settings{})
	defer l.Close()
	const size = 9<<20 + 5
	a, err := device.Alloc(gpu.KindDevice, size, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer device.Free(a)
	src := memorySource(noisy(size, 7))
	for _, id := range []route.ID{route.Ring, route.Host} {
		p, err := l.Plan(src).Only(id)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct{ off, n int }{{3, 100}, {0, 300 << 10}, {5, size - 5}, {size - 10, 4096}, {size, 10}} {
			mem := gpu.Span{Base: a, Len: uint64(c.n)}
			want := src[c.off:min(c.off+c.n, size)]
			res := make([]route.Receipt, 1)
			if err := p.Run(context.Background(), []Op{{Src: src, Off: int64(c.off), Mem: mem, Kind: gpu.KindDevice}}, res); err != nil || res[0].Bytes != int64(len(want)) {
				t.Fatalf("%v, %+v: %v, %v", id, c, &res[0], err)
			}
			got := make([]byte, len(want))
			if err := device.CopyOut(got, a); err != nil || string(got) != string(want) {
				t.Errorf("%v, %+v: wrong bytes, %v", id, c, err)
			}
			if c.off+c.n > size {
				continue
			}
			back := make(memorySource, size)
			if err := p.Run(context.Background(), []Op{{Dir: route.Write, Src: back, Off: int64(c.off), Mem: mem, Kind: gpu.KindDevice}}, make([]route.Receipt, 1)); err != nil || string(back[c.off:c.off+c.n]) != string(want) {
				t.Errorf("%v, %+v: written back: %v", id, c, err)
			}
		}
	}
	if best := l.Plan(src).Best(); best != route.Ring {
		t.Errorf("the best route is %v", best)
	}
}

// A tree is a captured machine: what /proc, /sys and /dev show.
type tree struct{ fstest.MapFS }

func (t tree) FS() fs.FS { return t.MapFS }

func (t tree) Open(path string) (dev.Node, error) {
	return nil, &os.PathError{Op: "open", Path: path, Err: os.ErrNotExist}
}

// What keeps the direct routes from being used is found by looking at the
// machine, in the order in which it would be mended.
func TestAbsentRoutes(t *testing.T) {
	file := func(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s)} }
	for name, c := range map[string]struct {
		tree         fstest.MapFS
		nvfs, vendor string
	}{
		"container without modules": {fstest.MapFS{}, "kernel module", "direct"},
		"nvidia-fs without a storage driver": {
			fstest.MapFS{"proc/driver/nvidia-fs/version": file("version: 2.28\n"), "proc/driver/nvidia-fs/modules": file("\n")},
			"consent", "direct",
		},
	} {
		os := tree{c.tree}
		if d := lookNVFS(os); d.Test != c.nvfs {
			t.Errorf("%s: nvfs declined by %q, want %q", name, d.Test, c.nvfs)
		}
		if d := notDirect(os); d == nil || d.Test != c.vendor {
			t.Errorf("%s: vendor declined by %v, want %q", name, d, c.vendor)
		}
	}
	dgx := fstest.MapFS{"dev/nvidia-fs0": file(""), "proc/driver/nvidia-fs/modules": file("nvme: 1\n")}
	if d := notDirect(tree{dgx}); d != nil {
		t.Errorf("a DGX with nvidia-fs and nvme: %v", d)
	}
}

// No option, BAR or kernel makes the memory of a real GPU usable, so no fix is
// suggested.
func TestNoP2PDMASuggestsNothingUseless(t *testing.T) {
	file := func(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s)} }
	set := file("RegistryDwords: \"RMForceStaticBar1=1;RmForceDisableIomapWC=1;\"\n")
	drive := &fstest.MapFile{Mode: fs.ModeDir | 0o755}
	for name, c := range map[string]struct {
		os        dev.OS
		test, fix string
	}{
		"container without modules":   {tree{fstest.MapFS{}}, "client", ""},
		"WSL":                         {tree{fstest.MapFS{"dev/dxg": {}}}, "client", ""},
		"driver without the options":  {tree{fstest.MapFS{"proc/driver/nvidia/params": file("RegistryDwords: \"\"\n")}}, "client", ""},
		"options, old kernel":         {tree{fstest.MapFS{"proc/driver/nvidia/params": set, "proc/kallsyms": file("0 T _text\n")}}, "client", ""},
		"options, kernel with P2PDMA": {tree{fstest.MapFS{"proc/driver/nvidia/params": set, "proc/kallsyms": file("0 d p2pdma_pgmap_ops\n")}}, "client", ""},
		"software, no peer memory":    {softTree{tree{fstest.MapFS{"sys/bus/pci/devices/0000:00:01.0": drive}}}, "machine", ""},
		"software, a drive with peer memory": {
			softTree{tree{fstest.MapFS{"sys/bus/pci/devices/0000:00:01.0": drive, "sys/bus/pci/devices/0000:03:00.0/p2pmem/allocate": file("")}}},
			"machine", "set CULVERT_SOFT=peer=0000:03:00.0",
		},
	} {
		if d := noP2PDMA(c.os); d.Route != route.P2PDMA || d.Test != c.test || d.Fix != c.fix {
			t.Errorf("%s: %v, want %s with the fix %q", name, d, c.test, c.fix)
		}
	}
}

// The path without a second descriptor: unaligned reads and writes through
// O_DIRECT alone.
func TestAlignedDetour(t *testing.T) {
	want := []byte(strings.Repeat("0123456789abcdef", 1000))
	st := directFile(t, want)
	p := make([]byte, 5000)
	if n, err := preadAligned(st, p, 3); n != 5000 || err != nil || string(p) != string(want[3:5003]) {
		t.Errorf("read %d, %v", n, err)
	}
	if n, err := preadAligned(st, p, 15_000); n != 1000 || string(p[:n]) != string(want[15_000:]) {
		t.Errorf("read across the end: %d, %v", n, err)
	}
	for _, c := range []struct{ off, n int }{{3, 5000}, {15_990, 100}, {16_090, 7}} {
		src := []byte(strings.Repeat("X", c.n))
		if n, err := pwriteAligned(st, src, int64(c.off)); n != c.n || err != nil {
			t.Fatalf("write %+v: %d, %v", c, n, err)
		}
		if grow := c.off + c.n - len(want); grow > 0 {
			want = append(want, make([]byte, grow)...)
		}
		copy(want[c.off:], src)
	}
	got, err := os.ReadFile(st.Name)
	if err != nil || string(got) != string(want) {
		t.Errorf("the file has %d bytes, want %d and the same; %v", len(got), len(want), err)
	}
}

// Without the GPU's device nodes, as in a container or under WSL, the route bar does
// not exist, and the reason names what is missing.
func TestBarNeedsDeviceNodes(t *testing.T) {
	device, m := softDevice(t)
	for name, os := range map[string]struct {
		tree
		needs string
	}{
		"container": {tree{fstest.MapFS{"proc/driver/nvidia/version": {}}}, "/dev/nvidiactl"},
		"WSL":       {tree{fstest.MapFS{"dev/dxg": {}}}, "WSL exposes the GPU through /dev/dxg"},
	} {
		b, d := findBar(device, os, 0, nil)
		if b != nil || d == nil || d.Route != route.Bar || !strings.Contains(d.Evidence, os.needs) {
			t.Errorf("%s: %v", name, d)
		}
	}
	b, d := findBar(device, dev.Of(m), 0, nil)
	if d != nil {
		t.Fatalf("with the nodes: %v", d)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

// A device that yields less than it holds has been removed; a file has ended.
func TestRemovedDriveIsAnError(t *testing.T) {
	short := func(capacity int64) error {
		o := op(4096)
		o.Src = FileSource(&storage.File{Name: "/dev/drive", Facts: storage.Facts{Block: capacity > 0, Capacity: capacity}})
		o.Off = 1 << 20
		return removed([]Op{o}, []route.Receipt{{Bytes: 512}})
	}
	if err := short(1 << 30); !errors.Is(err, unix.ENXIO) {
		t.Errorf("a drive that reads nothing: %v", err)
	}
	if err := errors.Join(short(1<<20+512), short(0)); err != nil {
		t.Errorf("the end of a device and of a file: %v", err)
	}
}

// Writers who extend a file side by side do not cut each other's bytes off.
func TestAlignedDetourSideBySide(t *testing.T) {
	st := adopt(t, "file", nil)
	if st.Direct() < 0 {
		t.Skipf("needs a file system with O_DIRECT: %s", st.Facts.Direct.Source)
	}
	const writers, stride, n = 8, 6000, 5000
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := w; i < 80; i += writers {
				if k, err := pwriteAligned(st, noisy(n, byte(i+1)), int64(i*stride)); k != n || err != nil {
					t.Errorf("write %d: %d, %v", i, k, err)
				}
			}
		})
	}
	wg.Wait()
	if size, err := st.Size(); err != nil || size != 79*stride+n {
		t.Errorf("%d bytes, %v", size, err)
	}
	got := make([]byte, n)
	for i := range 80 {
		if _, err := preadFull(st, got, int64(i*stride)); err != nil || string(got) != string(noisy(n, byte(i+1))) {
			t.Fatalf("write %d is not there, %v", i, err)
		}
	}
}
