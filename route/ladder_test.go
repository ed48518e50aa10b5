package route

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/internal/storage"
	"github.com/culvert-io/culvert/machine"
	"github.com/culvert-io/culvert/soft"
)

// A fake rung takes requests up to max bytes and remembers them.
type fake struct {
	id      ID
	verdict Verdict
	max     uint64
	err     error
	calls   [][]Op
}

func (f *fake) ID() ID                      { return f.id }
func (f *fake) Probe(*storage.File) Verdict { return f.verdict }
func (f *fake) Close() error                { return nil }

func (f *fake) Takes(op *Op) *Decline {
	if op.Mem.Len > f.max {
		return &Decline{f.id, "size", "too large", ""}
	}
	return nil
}

func (f *fake) Run(_ context.Context, ops []Op, res []Receipt) error {
	f.calls = append(f.calls, append([]Op(nil), ops...))
	for i := range ops {
		res[i].Bytes = int64(ops[i].Mem.Len)
	}
	return f.err
}

func op(n uint64) Op { return Op{Mem: gpu.Span{Base: 1, Len: n}, Kind: gpu.KindDevice} }

func TestLadderTakesTheFirstRungThatTakesTheOp(t *testing.T) {
	small, large := &fake{id: Bar, max: 10}, &fake{id: Ring, max: 1 << 40}
	gone := &fake{id: P2PDMA, verdict: &Decline{P2PDMA, "kernel", "too old", "upgrade"}}
	l := NewLadder([]Route{large, gone, small}, []*Decline{{NVFS, "module", "not loaded", ""}})
	p := l.Plan(nil)
	ops := []Op{op(5), op(6), op(100), op(7)}
	res := make([]Receipt, len(ops))
	if err := p.Run(context.Background(), ops, res); err != nil {
		t.Fatal(err)
	}
	for i, want := range []ID{Bar, Bar, Ring, Bar} {
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
	small, large := &fake{id: Bar, max: 10}, &fake{id: Ring, max: 1 << 40}
	p := NewLadder([]Route{small, large}, []*Decline{{NVFS, "module", "not loaded", "modprobe"}}).Plan(nil)
	only, err := p.Only(Bar)
	if err != nil {
		t.Fatal(err)
	}
	err = only.Run(context.Background(), []Op{op(11)}, make([]Receipt, 1))
	if re, ok := errors.AsType[*RequireError](err); !ok || re.Want != Bar || len(large.calls) != 0 {
		t.Errorf("a large op on a small rung: %v, ring called %d times", err, len(large.calls))
	}
	if _, err := p.Only(NVFS); err == nil || !strings.Contains(err.Error(), "not loaded (fix: modprobe)") {
		t.Errorf("Only(nvfs): %v", err)
	}
	if _, err := p.Only(RDMA); err == nil || !strings.Contains(err.Error(), "rdma: client: this version of Culvert has no such route") {
		t.Errorf("Only(rdma): %v", err)
	}
	if err := p.Require(Ring); err != nil {
		t.Errorf("bar is better than ring: %v", err)
	}
	if err := p.Require(NVFS); err == nil {
		t.Error("bar is worse than nvfs, and nothing said so")
	}
}

// A picky rung has a strict form, which takes less.
type picky struct{ *fake }

func (p picky) strict() Route { return &fake{id: p.id, max: p.max / 2} }

// With a route required or better, the rungs from there up share the work, each
// without help from below; nothing falls further.
func TestPlanAtLeast(t *testing.T) {
	direct, small, large := picky{&fake{id: NVFS, max: 10}}, &fake{id: Bar, max: 100}, &fake{id: Ring, max: 1 << 40}
	p := NewLadder([]Route{direct, small, large}, []*Decline{{Vendor, "library", "not there", ""}}).Plan(nil)
	bar, err := p.AtLeast(Bar)
	if err != nil {
		t.Fatal(err)
	}
	ops := []Op{op(5), op(6), op(100)}
	res := make([]Receipt, len(ops))
	if err := bar.Run(context.Background(), ops, res); err != nil {
		t.Fatal(err)
	}
	for i, want := range []ID{NVFS, Bar, Bar} {
		if res[i].Route != want {
			t.Errorf("%d bytes go by %v, want %v", ops[i].Mem.Len, res[i].Route, want)
		}
	}
	err = bar.Run(context.Background(), []Op{op(101)}, make([]Receipt, 1))
	if re, ok := errors.AsType[*RequireError](err); !ok || re.Want != Bar || len(large.calls) != 0 {
		t.Errorf("more than bar takes: %v", err)
	}
	if _, err := p.AtLeast(Vendor); err == nil || !strings.Contains(err.Error(), "not there") {
		t.Errorf("nothing is that good: %v", err)
	}
}

func TestRunStopsAtTheFirstError(t *testing.T) {
	boom := errors.New("boom")
	a, b := &fake{id: Bar, max: 10, err: boom}, &fake{id: Ring, max: 1 << 40}
	p := NewLadder([]Route{a, b}, nil).Plan(nil)
	if err := p.Run(context.Background(), []Op{op(1), op(100)}, make([]Receipt, 2)); !errors.Is(err, boom) {
		t.Errorf("got %v", err)
	}
	if len(b.calls) != 0 {
		t.Error("the next rung ran after an error")
	}
}

// A tree is a captured machine: what /proc, /sys and /dev show.
type tree struct{ fstest.MapFS }

func (t tree) FS() fs.FS { return t.MapFS }

func (t tree) Open(path string) (dev.Node, error) {
	return nil, &os.PathError{Op: "open", Path: path, Err: os.ErrNotExist}
}

// What keeps the direct rungs from being used is found by looking at the
// machine, in the order in which it would be mended.
func TestAbsentRungsOnCapturedMachines(t *testing.T) {
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

// A real GPU has no peer pages for us, and no option, BAR or kernel changes that:
// whatever the machine lacks, nobody is sent to mend it for this route.
func TestNoP2PDMASendsNobodyInACircle(t *testing.T) {
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
		if d := noP2PDMA(c.os); d.Route != P2PDMA || d.Test != c.test || d.Fix != c.fix {
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

// A fickle rung declines the first time it is asked and takes everything after.
type fickle struct {
	fake
	asked int
}

func (f *fickle) Takes(op *Op) *Decline {
	if f.asked++; f.asked == 1 {
		return &Decline{f.id, "page cache", "cold", ""}
	}
	return nil
}

// What kept a rung from being taken is in the receipt, also when it has changed
// meanwhile; and each rung is asked once.
func TestDeclineIsNotedWhenItHappens(t *testing.T) {
	top, bottom := &fickle{fake: fake{id: Bar, max: 1 << 40}}, &fake{id: Ring, max: 1 << 40}
	p := NewLadder([]Route{top, bottom}, nil).Plan(nil)
	res := make([]Receipt, 1)
	if err := p.Run(context.Background(), []Op{op(5)}, res); err != nil {
		t.Fatal(err)
	}
	if d := res[0].Declined[Bar]; res[0].Route != Ring || d == nil || d.Evidence != "cold" || top.asked != 1 {
		t.Errorf("asked %d times: %v", top.asked, &res[0])
	}
}

// Where the GPU's nodes are missing, as in a container without them or under
// WSL, whose driver has others, there is no way through BAR1, and the reason
// names what is in its place.
func TestBarWantsTheNodes(t *testing.T) {
	m, err := machine.FromSoft(soft.Config{Memory: 64 << 20}, "test")
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	device, err := m.GPU.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	defer device.Close()
	for name, os := range map[string]struct {
		tree
		needs string
	}{
		"container": {tree{fstest.MapFS{"proc/driver/nvidia/version": {}}}, "/dev/nvidiactl"},
		"WSL":       {tree{fstest.MapFS{"dev/dxg": {}}}, "WSL reaches the GPU through /dev/dxg"},
	} {
		b, d := NewBar(device, os)
		if b != nil || d == nil || d.Route != Bar || !strings.Contains(d.Evidence, os.needs) {
			t.Errorf("%s: %v", name, d)
		}
	}
	b, d := NewBar(device, dev.Of(m))
	if d != nil {
		t.Fatalf("with the nodes: %v", d)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

// A device that yields less than it holds has been removed; a file has ended.
func TestPulledDriveIsAnError(t *testing.T) {
	short := func(capacity int64) error {
		o := op(4096)
		o.File = &storage.File{Name: "/dev/drive", Facts: storage.Facts{Block: capacity > 0, Capacity: capacity}}
		o.Off = 1 << 20
		return gone([]Op{o}, []Receipt{{Bytes: 512}})
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
