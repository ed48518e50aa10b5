package ladder

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/internal/storage"
	"github.com/culvert-io/culvert/machine"
	"github.com/culvert-io/culvert/route"
	"github.com/culvert-io/culvert/soft"
)

const peerPCI = "0000:03:00.0"

// A peerGPU is a software GPU with a second memory of ordinary pages, which
// direct I/O takes as it takes peer memory. Real peer memory is the lab's.
type peerGPU struct {
	gpu.Device
	t       *testing.T
	windows map[gpu.Addr][]byte
	lent    int
	prot    int
}

func (g *peerGPU) PeerDevice() string { return peerPCI }

func (g *peerGPU) PeerBytes(a gpu.Addr, n uint64) ([]byte, func(), error) {
	b, err := unix.Mmap(-1, 0, int(n+4095)&^4095, g.prot, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, nil, err
	}
	g.windows[a], g.lent = b, g.lent+1
	return b[:n], func() { g.lent--; unix.Munmap(b) }, nil
}

// peerTree shows a device with peer memory, and a drive below the file.
func peerTree(f *storage.File) tree {
	return tree{fstest.MapFS{
		"sys/bus/pci/devices/" + peerPCI + "/p2pmem/size": {},
		"sys/dev/block/" + f.Facts.Dev:                    link("../../devices/pci0000:00/any"),
		"proc/self/mountinfo":                             {Data: []byte("27 1 " + f.Facts.Dev + " / / rw - ext4 /dev/any rw\n")},
	}}
}

func link(to string) *fstest.MapFile {
	return &fstest.MapFile{Mode: fs.ModeSymlink, Data: []byte(to)}
}

func newPeerGPU(t *testing.T) *peerGPU {
	t.Helper()
	m, err := machine.FromSoft(soft.Config{Memory: 64 << 20}, "test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	device, err := m.GPU.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	return &peerGPU{device, t, map[gpu.Addr][]byte{}, 0, unix.PROT_READ | unix.PROT_WRITE}
}

func peerRoute(t *testing.T, g *peerGPU, os dev.OS) *p2pdmaRoute {
	t.Helper()
	r, d := findP2PDMA(g, os)
	if d != nil {
		t.Fatal(d)
	}
	p := r.(*p2pdmaRoute)
	t.Cleanup(func() {
		if p.Close(); g.lent != 0 {
			t.Errorf("%d mappings were not given back", g.lent)
		}
	})
	return p
}

// The middle goes to the drive, the ends through the page cache; nothing outside
// of the request is touched, also where the file ends inside of it.
func TestP2PDMAMovesTheRequestAndNothingElse(t *testing.T) {
	const size, bufSize = 300_001, 400_000
	data := noisy(size, 1)
	f := directFile(t, data)
	g := newPeerGPU(t)
	p := peerRoute(t, g, peerTree(f))
	if d := p.Try(FileSource(f)); d != nil {
		t.Fatal(d)
	}
	a := int64(f.Facts.Direct.OffAlign)
	mem := gpu.Span{Base: 0x1000, Len: bufSize}
	p.Register(mem, gpu.KindDevice)
	win := g.windows[mem.Base][:bufSize]
	for _, c := range []struct {
		off    int64
		at, n  uint64
		direct int64
	}{
		{0, 0, uint64(4 * a), 4 * a},
		{1, 1, uint64(4 * a), 3 * a},                                       // unaligned on both sides
		{a - 1, uint64(a - 1), uint64(a + 1), a},                           // one byte and a block
		{0, 0, size + 1000, size / a * a},                                  // past the end
		{size / a * a, 0, 65536, 0},                                        // nothing but the last piece
		{size + 5, (size + 5) % 4096, 65536, 0},                            // behind the end
		{2*a + 3, uint64(5*a + 3), uint64(20 * a), 19 * a},                 // congruent, elsewhere
		{size/a*a - 2*a, uint64(3 * a), uint64(2*a) + size%512 + 9, 2 * a}, // up to the end
	} {
		o := Op{Dir: route.Read, Src: FileSource(f), Off: c.off, Mem: mem.Slice(c.at, c.n), Kind: gpu.KindDevice, Buf: always{}}
		if d := declines(p, o, false); d != nil {
			t.Fatalf("%+v: %v", c, d)
		}
		for i := range win {
			win[i] = 0xee
		}
		res := make([]route.Receipt, 1)
		if err := (&Ladder{routes: []Route{p}}).Plan(FileSource(f)).Run(context.Background(), []Op{o}, res); err != nil {
			t.Fatalf("%+v: %v", c, err)
		}
		want := bytes.Repeat([]byte{0xee}, bufSize)
		n := 0
		if c.off < size {
			n = copy(want[c.at:c.at+c.n], data[c.off:])
		}
		r := &res[0]
		if r.Bytes != int64(n) || !bytes.Equal(win, want) {
			t.Errorf("%+v: %v, same bytes %t", c, r, bytes.Equal(win, want))
		}
		if r.By[route.P2PDMA] != c.direct || r.Host != (route.ByteCount{Bytes: int64(n) - c.direct, Evidence: route.Inferred}) || r.Head+r.Tail != r.Host.Bytes {
			t.Errorf("%+v: %v, want %d bytes by the drive", c, r, c.direct)
		}
	}
	p.Deregister(mem)
}

func TestP2PDMAWrites(t *testing.T) {
	const size = 100_000
	want := noisy(size, 2)
	f := directFile(t, want)
	g := newPeerGPU(t)
	p := peerRoute(t, g, peerTree(f))
	a := int64(f.Facts.Direct.OffAlign)
	mem := gpu.Span{Base: 0x1000, Len: 1 << 20}
	p.Register(mem, gpu.KindDevice)
	win := g.windows[mem.Base]
	for i, c := range []struct {
		off int64
		n   uint64
	}{{0, uint64(4 * a)}, {3, uint64(8 * a)}, {size - 10, uint64(3 * a)}, {8 * a, uint64(2*a) + 1}} {
		copy(win, noisy(len(win), byte(10+i)))
		at := uint64(c.off % 4096)
		o := Op{Dir: route.Write, Src: FileSource(f), Off: c.off, Mem: mem.Slice(at, c.n), Kind: gpu.KindDevice, Buf: always{}}
		if d := declines(p, o, false); d != nil {
			t.Fatal(d)
		}
		res := make([]route.Receipt, 1)
		if err := p.Run(context.Background(), []Op{o}, res); err != nil || uint64(res[0].Bytes) != c.n || res[0].By[route.P2PDMA] == 0 {
			t.Fatalf("%+v: %v, %v", c, &res[0], err)
		}
		if end := int(c.off) + int(c.n); end > len(want) {
			want = append(want, make([]byte, end-len(want))...)
		}
		copy(want[c.off:], win[at:at+c.n])
		if got, err := os.ReadFile(f.Name); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%+v: the file has %d bytes, want %d and the same; %v", c, len(got), len(want), err)
		}
	}
}

func TestP2PDMAAccepts(t *testing.T) {
	f := directFile(t, noisy(1<<20, 3))
	g := newPeerGPU(t)
	p := peerRoute(t, g, peerTree(f))
	mem := gpu.Span{Base: 0x1000, Len: 1 << 20}
	p.Register(mem, gpu.KindDevice)
	p.Register(gpu.Span{Base: 0x9000, Len: 4096}, gpu.KindHost)
	a := uint64(f.Facts.Direct.OffAlign)
	for name, c := range map[string]struct {
		op   Op
		test string
	}{
		"whole blocks":      {Op{Src: FileSource(f), Mem: mem, Buf: always{}}, ""},
		"not registered":    {Op{Src: FileSource(f), Mem: mem}, "buffer"},
		"another buffer":    {Op{Src: FileSource(f), Mem: gpu.Span{Base: 0x9000, Len: 4096}, Buf: always{}}, "buffer"},
		"less than a block": {Op{Src: FileSource(f), Off: 1, Mem: mem.Slice(1, 2*a-2), Buf: always{}}, "alignment"},
		"crooked memory":    {Op{Src: FileSource(f), Off: 0, Mem: mem.Slice(4, 8*a), Buf: always{}}, "alignment"},
	} {
		got := ""
		c.op.Kind = gpu.KindDevice
		if d := declines(p, c.op, false); d != nil {
			got = d.Test
		}
		if got != c.test {
			t.Errorf("%s: declined by %q, want %q", name, got, c.test)
		}
	}
	// Alone, the route leaves nothing to others.
	for _, o := range []Op{{Src: FileSource(f), Off: 1, Mem: mem.Slice(1, 8*a-1)}, {Src: FileSource(f), Mem: mem.Slice(0, 8*a-1)}} {
		o.Buf, o.Kind = always{}, gpu.KindDevice
		if d := declines(p, o, false); d != nil {
			t.Errorf("unaligned: %v", d)
		}
		if d := declines(p, o, true); d != p2pdmaTexts[partialBlock] {
			t.Errorf("unaligned, required: %v", d)
		}
	}
}

// What the kernel refuses is declined, in this receipt and from then on, and the
// route below does the work; a plan that wants no other route says why.
func TestP2PDMARejectionDeclinesTheRoute(t *testing.T) {
	data := noisy(1<<20, 4)
	f := directFile(t, nil) // nothing to try with
	g := newPeerGPU(t)
	g.prot = unix.PROT_NONE // not even the kernel may: EFAULT
	p := peerRoute(t, g, peerTree(f))
	plan := (&Ladder{routes: []Route{p, newHost(g)}}).Plan(FileSource(f))
	if plan.Best() != route.P2PDMA {
		t.Fatalf("best is %v: %v", plan.Best(), plan.declined)
	}
	only, err := plan.Only(route.P2PDMA)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(f.Name, data, 0o600); err != nil {
		t.Fatal(err)
	}
	addr, err := g.Alloc(gpu.KindDevice, 1<<20, 0)
	if err != nil {
		t.Fatal(err)
	}
	mem := gpu.Span{Base: addr, Len: 1 << 20}
	p.Register(mem, gpu.KindDevice)
	ops := []Op{{Dir: route.Read, Src: FileSource(f), Mem: mem, Kind: gpu.KindDevice, Buf: always{}}}
	res := make([]route.Receipt, 1)
	if err := plan.Run(context.Background(), ops, res); err != nil {
		t.Fatal(err)
	}
	d := res[0].Declined[route.P2PDMA]
	if res[0].Route != route.Host || d == nil || d.Test != "peer pages" || !strings.Contains(d.Evidence, "EFAULT") || d.Fix == "" {
		t.Errorf("%v: %v", &res[0], d)
	}
	got := make([]byte, len(data))
	if err := g.CopyOut(got, addr); err != nil || !bytes.Equal(got, data) {
		t.Errorf("the route below moved other bytes: %v", err)
	}
	if _, d := p.Traits(FileSource(f)); d == nil || d.Test != "peer pages" {
		t.Errorf("another file on the device: %v", d)
	}
	err = only.Run(context.Background(), ops, make([]route.Receipt, 1))
	if re, ok := errors.AsType[*route.RequireError](err); !ok || re.Want != route.P2PDMA || re.Declined[0].Test != "peer pages" {
		t.Errorf("required: %v", err)
	}
}

// Memory that was unplugged is an error that says so, and no other route tries.
func TestP2PDMAUnplugged(t *testing.T) {
	f := directFile(t, noisy(1<<16, 5))
	g := newPeerGPU(t)
	p := peerRoute(t, g, peerTree(f))
	if d := p.Try(FileSource(f)); d != nil {
		t.Fatal(d)
	}
	g.prot = unix.PROT_NONE
	mem := gpu.Span{Base: 0x1000, Len: 1 << 16}
	p.Register(mem, gpu.KindDevice)
	delete(p.root.(fstest.MapFS), "sys/bus/pci/devices/"+peerPCI+"/p2pmem/size")
	plan := (&Ladder{routes: []Route{p, newHost(g)}}).Plan(FileSource(f))
	err := plan.Run(context.Background(), []Op{{Src: FileSource(f), Mem: mem, Kind: gpu.KindDevice, Buf: always{}}}, make([]route.Receipt, 1))
	if !errors.Is(err, unix.ENODEV) || !strings.Contains(err.Error(), peerPCI+" was removed") {
		t.Errorf("got %v", err)
	}
}

func TestP2PDMACancelled(t *testing.T) {
	f := directFile(t, noisy(1<<16, 6))
	g := newPeerGPU(t)
	p := peerRoute(t, g, peerTree(f))
	mem := gpu.Span{Base: 0x1000, Len: 1 << 16}
	p.Register(mem, gpu.KindDevice)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	res := make([]route.Receipt, 1)
	if err := p.Run(ctx, []Op{{Src: FileSource(f), Mem: mem, Kind: gpu.KindDevice, Buf: always{}}}, res); !errors.Is(err, context.Canceled) || res[0].Bytes != 0 {
		t.Errorf("%v, %v", err, &res[0])
	}
}

// What EREMOTEIO means depends on where the drive and the memory are.
func TestP2PDMARejections(t *testing.T) {
	const sw = "0000:00:02.0/0000:01:00.0/"
	root := fstest.MapFS{
		"sys/bus/pci/devices/" + peerPCI: link("../../../devices/pci0000:00/" + sw + "0000:02:00.0/" + peerPCI),
		// Below the same switch, on a root port, and without PCI.
		"sys/dev/block/259:1": link("../../devices/pci0000:00/" + sw + "0000:02:01.0/0000:04:00.0/nvme/nvme1/nvme1n1"),
		"sys/devices/pci0000:00/" + sw + "0000:02:01.0/0000:04:00.0/driver": link("../../bus/pci/drivers/nvme"),
		"sys/bus/pci/devices/0000:04:00.0":                                  link("../../../devices/pci0000:00/" + sw + "0000:02:01.0/0000:04:00.0"),
		"sys/dev/block/259:2":                                               link("../../devices/pci0000:00/0000:00:05.0/nvme/nvme2/nvme2n1"),
		"sys/devices/pci0000:00/0000:00:05.0/driver":                        link("../../bus/pci/drivers/nvme"),
		"sys/bus/pci/devices/0000:00:05.0":                                  link("../../../devices/pci0000:00/0000:00:05.0"),
		"sys/dev/block/253:0":                                               link("../../devices/virtual/block/dm-0"),
		"sys/devices/virtual/block/dm-0/dm/uuid":                            {Data: []byte("CRYPT-LUKS2-x\n")},
		"proc/self/mountinfo":                                               {},
	}
	p := &p2pdmaRoute{peer: &peerGPU{}, root: root, os: tree{root}}
	for _, c := range []struct {
		dev  string
		err  error
		test string
		says string
		fix  string
	}{
		{"259:1", unix.EREMOTEIO, "PCIe access control", "nvme1n1 (drive nvme) at 0000:04:00.0 and the GPU's memory at 0000:03:00.0 are both below 0000:01:00.0", "pci=disable_acs_redir=0000:01:00.0"},
		{"259:2", unix.EREMOTEIO, "PCIe distance", "nvme2n1 (drive nvme) at 0000:00:05.0 and the GPU's memory at 0000:03:00.0 have no switch in common", "below one PCIe switch"},
		{"253:0", unix.EREMOTEIO, "block driver", "dm-0 (device mapper crypt) does not accept P2PDMA pages", "NVMe drive"},
		{"0:40", unix.EOPNOTSUPP, "block driver", "tmpfs does not accept P2PDMA pages", "NVMe drive"},
		{"259:1", unix.EINVAL, "alignment", "512 bytes of alignment", ""},
		{"259:1", unix.EFAULT, "peer pages", "EFAULT", "CONFIG_PCI_P2PDMA"},
		{"259:1", unix.EIO, "", "", ""},
		{"259:1", nil, "", "", ""},
	} {
		f := &storage.File{Name: "/f", Facts: storage.Facts{Dev: c.dev, FS: "tmpfs", Direct: storage.Direct{OffAlign: 512}}}
		d := p.rejection(f, c.err)
		if c.test == "" {
			if d != nil {
				t.Errorf("%v: %v", c.err, d)
			}
			continue
		}
		if d == nil || d.Test != c.test || !strings.Contains(d.Evidence, c.says) || !strings.Contains(d.Fix, c.fix) {
			t.Errorf("%s, %v: %v", c.dev, c.err, d)
		}
	}
}

// A direct read that ended off the alignment was the file's end, even if the file
// has grown since: there direct I/O cannot go on.
func TestMoveAllEndsOffTheAlignment(t *testing.T) {
	for _, c := range []struct {
		unit, first int64
		want        int64
	}{{4096, 512, 512}, {4096, 8192, 12288}, {512, 512, 12288}, {512, 700, 700}, {1, 700, 12288}} {
		b := make([]byte, 12288)
		calls := 0
		n, err := moveAll(func(_ int, left []byte, off int64) (int, error) {
			if off%c.unit != 0 {
				return 0, unix.EINVAL
			}
			if calls++; calls == 1 {
				return int(c.first), nil
			}
			return len(left), nil
		}, -1, b, 4096, c.unit, new(int))
		if n != c.want || err != nil {
			t.Errorf("%d bytes in units of %d: %d, %v; want %d", c.first, c.unit, n, err, c.want)
		}
	}
}
