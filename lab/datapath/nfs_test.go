package datapath

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/lab/inside"
	"github.com/culvert-io/culvert/route"
)

// TestNFS reads and writes files of an NFS server: the first pass of a file opened plainly
// fills the client's page cache and the second comes from there, O_DIRECT leaves it empty,
// and what was changed on the server is read after the next open. No direct route is taken.
func TestNFS(t *testing.T) {
	inside.Wanted(t, "CULVERT_WANT_NFS")
	const size = 8 << 20
	export, dir := filepath.Join(inside.Dir("nv0"), "export"), "/run/nfs"
	for _, d := range []string{export, dir} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := inside.MountNFS(export, dir); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	data := noise(size, 1)
	served, name := filepath.Join(export, "f"), filepath.Join(dir, "f")
	if err := os.WriteFile(served, data, 0o600); err != nil {
		t.Fatal(err)
	}
	w := newFixture(t)
	mem := w.buffer(size)
	for _, id := range w.routes(name) {
		if id < route.Bar {
			t.Errorf("route %v is offered", id)
		}
	}
	read := func(t *testing.T, flags int) route.CacheUse {
		t.Helper()
		h := w.register(name, os.O_RDONLY|flags)
		defer h.Close()
		if err := h.Require(0, route.Ring); err != nil {
			t.Fatal(err)
		}
		r, err := h.ReadAt(t.Context(), mem, 0)
		if err != nil || !bytes.Equal(w.bytes(mem), data) {
			t.Fatalf("%v, %v", &r, err)
		}
		return r.Cache
	}
	dropCache(name)
	if use := read(t, unix.O_DIRECT); use.Bypassed != size || cached(t, name) != 0 {
		t.Errorf("with O_DIRECT: %+v, and %d bytes are cached", use, cached(t, name))
	}
	if use := read(t, 0); use.Hit != 0 || use.Bypassed != 0 || cached(t, name) != size {
		t.Errorf("the first pass: %+v, and %d bytes are cached", use, cached(t, name))
	}
	use := read(t, 0)
	for pass := 3; pass < 5 && use.Hit != size; pass++ {
		use = read(t, 0) // the client may drop the pages of a file that has just changed once more
	}
	if use.Hit != size {
		t.Errorf("the next passes: %+v", use)
	}
	if use := read(t, unix.O_DIRECT); use.Hit != size {
		t.Errorf("cached, with O_DIRECT: %+v", use)
	}
	data = noise(size, 2)
	if err := os.WriteFile(served, data, 0o600); err != nil {
		t.Fatal(err)
	}
	read(t, 0) // compares

	data = noise(size, 3)
	if err := w.dev.CopyIn(mem.Addr(), data); err != nil {
		t.Fatal(err)
	}
	for _, flags := range []int{0, unix.O_DIRECT} {
		h := w.register(name, os.O_RDWR|flags)
		if r, err := h.WriteAt(t.Context(), mem, 0); err != nil || r.Bytes != size {
			t.Fatalf("write: %v, %v", &r, err)
		}
		if err := h.Close(); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(served)
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "the server's file", got, data)
		data[0]++
		if err := w.dev.CopyIn(mem.Addr(), data); err != nil {
			t.Fatal(err)
		}
	}
}
