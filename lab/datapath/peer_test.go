package datapath

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/lab/inside"
	"github.com/culvert-io/culvert/route"
	"github.com/culvert-io/culvert/soft"
)

// The drives of the peer-to-peer guest. The GPU's memory is that of the first;
// the second is below the same switch; the third on the root bus, from where
// the kernel allows no peer traffic.
const (
	provider = "cmb"
	sibling  = "sibling"
	onRoot   = "onroot"
)

// newPeerFixture is a machine whose GPU has the provider's memory.
func newPeerFixture(t *testing.T) *fixture {
	t.Helper()
	inside.Wanted(t, "CULVERT_WANT_PEER")
	dir, err := inside.PCI(provider)
	if err != nil {
		t.Fatal(err)
	}
	return newFixtureOn(t, soft.Config{Memory: 32 << 20, Peer: filepath.Base(dir)})
}

func rawDisk(t *testing.T, id string) string {
	t.Helper()
	name, err := inside.Disk(id)
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// TestPeerRoute writes and reads by p2pdma, aligned and ragged, and compares
// with what plain reads and writes through the page cache see.
func TestPeerRoute(t *testing.T) {
	w := newPeerFixture(t)
	for _, tt := range []struct{ what, name string }{
		{"file below the same switch", filepath.Join(inside.Dir(sibling), "f")},
		{"the provider's own namespace", rawDisk(t, provider)},
	} {
		t.Run(tt.what, func(t *testing.T) {
			const size = 1 << 20
			want := aligned(t, size, 50)
			if _, err := cold(t, tt.name).WriteAt(want, 0); err != nil {
				t.Fatal(err)
			}
			alone, best := w.register(tt.name, os.O_RDWR), w.register(tt.name, os.O_RDWR)
			if err := alone.Require(0, route.P2PDMA); err != nil {
				t.Fatal(err)
			}
			mem := w.buffer(size)
			for _, c := range []struct {
				off    int64
				n      uint64
				direct int64
			}{
				{0, size, size},
				{4096, 256 << 10, 256 << 10},
				{100, 128 << 10, 128<<10 - 512},
				{511, 1026, 1024},
			} {
				h := alone
				if c.direct != int64(c.n) {
					h = best // the ragged ends take another way
				}
				part := mem.Slice(uint64(c.off%4096), c.n)
				rc, err := h.ReadAt(t.Context(), part, c.off)
				if err != nil || uint64(rc.Bytes) != c.n {
					t.Fatalf("read %+v: %v, %v", c, &rc, err)
				}
				equal(t, "peer memory", w.bytes(part), want[c.off:c.off+int64(c.n)])
				if rc.By[route.P2PDMA] != c.direct || rc.Host.Bytes != rc.Bytes-c.direct || rc.Host.Evidence != route.Inferred {
					t.Errorf("read %+v: %v", c, &rc)
				}
				fresh := noise(int(c.n), uint64(60+c.off%50))
				if err := w.dev.CopyIn(part.Addr(), fresh); err != nil {
					t.Fatal(err)
				}
				rc, err = h.WriteAt(t.Context(), part, c.off)
				if err != nil || uint64(rc.Bytes) != c.n || rc.By[route.P2PDMA] != c.direct {
					t.Fatalf("write %+v: %v, %v", c, &rc, err)
				}
				copy(want[c.off:], fresh)
				if err := h.Sync(); err != nil {
					t.Fatal(err)
				}
			}
			dropCache(tt.name)
			got := make([]byte, size)
			f, err := os.Open(tt.name)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if _, err := f.ReadAt(got, 0); err != nil {
				t.Fatal(err)
			}
			equal(t, "the drive", got, want)
		})
	}
}

// TestPeerRouteBypassesHostMemory shows that the bytes are in no page cache
// after a read: the drive moved them.
func TestPeerRouteBypassesHostMemory(t *testing.T) {
	w := newPeerFixture(t)
	name := filepath.Join(inside.Dir(sibling), "cold")
	if _, err := cold(t, name).WriteAt(aligned(t, 4<<20, 51), 0); err != nil {
		t.Fatal(err)
	}
	dropCache(name)
	h := w.register(name, os.O_RDONLY)
	rc, err := h.ReadAt(t.Context(), w.buffer(4<<20), 0)
	if err != nil || rc.Route != route.P2PDMA || rc.Bytes != 4<<20 {
		t.Fatalf("%v, %v", &rc, err)
	}
	if n := cached(t, name); n != 0 {
		t.Errorf("%d bytes of the file are in the page cache", n)
	}
}

// TestPeerRouteRefused asks for a drive that cannot reach the memory, one that
// has no block driver at all, and one whose answer comes with the first write.
func TestPeerRouteRefused(t *testing.T) {
	w := newPeerFixture(t)
	root := rawDisk(t, onRoot)
	want := aligned(t, 64<<10, 52)
	if _, err := cold(t, root).WriteAt(want, 0); err != nil {
		t.Fatal(err)
	}
	mem := w.buffer(64 << 10)
	// The file is write-only: there is nothing to try with beforehand.
	h := w.register(root, os.O_WRONLY)
	if err := w.dev.CopyIn(mem.Addr(), want); err != nil {
		t.Fatal(err)
	}
	wr, err := h.WriteAt(t.Context(), mem, 64<<10)
	if err != nil || wr.Bytes != 64<<10 || wr.Route == route.P2PDMA {
		t.Fatalf("write: %v, %v", &wr, err)
	}
	h = w.register(root, os.O_RDWR)
	rc, err := h.ReadAt(t.Context(), mem, 64<<10)
	if err != nil || rc.Bytes != 64<<10 {
		t.Fatalf("read: %v, %v", &rc, err)
	}
	equal(t, "what another route wrote and read", w.bytes(mem), want)
	for what, d := range map[string]*route.Decline{"write": wr.Declined[route.P2PDMA], "read": rc.Declined[route.P2PDMA]} {
		if d == nil || d.Test != "PCIe distance" || !strings.Contains(d.Evidence, "EREMOTEIO") || d.Fix == "" {
			t.Errorf("%s: %v", what, d)
		} else {
			t.Logf("%s: %v", what, d)
		}
	}
	if err := h.Require(0, route.P2PDMA); err == nil || !strings.Contains(err.Error(), "EREMOTEIO") {
		t.Errorf("required: %v", err)
	}
	shm := filepath.Join("/tmp", "f")
	if err := os.WriteFile(shm, want, 0o600); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(shm)
	p, err := w.register(shm, os.O_RDONLY).Plan(0)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range p.Declined {
		if d.Route == route.P2PDMA {
			t.Logf("tmpfs: %v", d)
			return
		}
	}
	t.Errorf("a file in memory goes by p2pdma: %v", p.Usable())
}

// TestPeerRouteUnplug pulls the provider out under a registered buffer. Reads
// fail and say why, on every route, and nothing crashes. It stands last because
// tests run in the order of the source.
func TestPeerRouteUnplug(t *testing.T) {
	w := newPeerFixture(t)
	name := filepath.Join(inside.Dir(sibling), "g")
	want := aligned(t, 64<<10, 53)
	if _, err := cold(t, name).WriteAt(want, 0); err != nil {
		t.Fatal(err)
	}
	mem := w.buffer(64 << 10)
	ids := w.routes(name)
	if ids[0] != route.P2PDMA {
		t.Fatalf("routes %v", ids)
	}
	read := func(id route.ID) error {
		h := w.register(name, os.O_RDONLY)
		if err := h.Require(0, id); err != nil {
			return err
		}
		_, err := h.ReadAt(t.Context(), mem, 0)
		return err
	}
	if err := read(route.P2PDMA); err != nil || !bytes.Equal(w.bytes(mem), want) {
		t.Fatal(err)
	}
	held := w.register(name, os.O_RDONLY)
	if _, err := held.ReadAt(t.Context(), mem, 0); err != nil {
		t.Fatal(err)
	}
	if err := inside.Unplug(provider); err != nil {
		t.Fatal(err)
	}
	_, err := held.ReadAt(t.Context(), mem, 0)
	if !errors.Is(err, unix.ENODEV) || !strings.Contains(err.Error(), "was removed") {
		t.Errorf("a read of a handle from before: %v", err)
	}
	if err := w.dev.CopyOut(make([]byte, 4096), mem.Addr()); err == nil {
		t.Error("a copy from memory that is gone has no error")
	}
	for _, id := range ids {
		if err := read(id); err == nil {
			t.Errorf("%v: a read into memory that is gone has no error", id)
		} else {
			t.Logf("%v: %v", id, err)
		}
	}
}
