package cufile_test

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/lab/fusetest"
	"github.com/culvert-io/culvert/route"
)

// On FUSE the server decides what the kernel caches, and whether O_DIRECT is allowed. The
// bytes are right in each case, the second pass comes from the page cache where the kernel
// may keep it, and a receipt claims nothing else.
func TestFUSE(t *testing.T) {
	const size = 8 << 20
	f := newFixture(t, softConfig(), size)
	fs := fusetest.Mount(t, f.path)
	buf := f.buffer(size)
	for _, c := range []struct {
		name  string
		flags int
		asked [2]bool // whether the server is asked for all of it, by pass
	}{
		{fusetest.Plain, 0, [2]bool{true, false}},
		{fusetest.Kept, 0, [2]bool{true, false}},
		{fusetest.Kept, unix.O_DIRECT, [2]bool{false, false}}, // what is cached is served from there
		{fusetest.Plain, unix.O_DIRECT, [2]bool{true, true}},
		{fusetest.Uncached, 0, [2]bool{true, true}},
		{fusetest.NoDirect, 0, [2]bool{true, false}},
	} {
		name := c.name
		if c.flags != 0 {
			name += ", O_DIRECT"
		}
		t.Run(name, func(t *testing.T) {
			if !c.asked[0] {
				// The write of the case before has changed the file's time, and the kernel drops
				// the pages when it hears of that.
				if _, err := os.ReadFile(fs.Path(c.name)); err != nil {
					t.Fatal(err)
				}
			}
			h := registerAt(t, f, fs.Path(c.name), os.O_RDWR|c.flags)
			if err := h.Require(0, route.Ring); err != nil {
				t.Fatal(err)
			}
			taken := reclaimed(t)
			for pass, want := range c.asked {
				before := fs.Asked(t)
				if err := f.dev.Fill(buf.Span().Addr(), 0, 1, size); err != nil {
					t.Fatal(err)
				}
				r, err := h.ReadAt(t.Context(), buf.Span(), 0)
				if err != nil || !bytes.Equal(f.gpuBytes(buf.Span()), f.data) {
					t.Fatalf("pass %d: %v, %v", pass, &r, err)
				}
				n := fs.Asked(t) - before
				if reclaimed(t) != taken {
					t.Skip("the kernel took pages of files back meanwhile, for want of memory")
				}
				if (n >= size) != want || !want && n > 0 {
					t.Errorf("pass %d: the server was asked for %d bytes: %+v", pass, n, r.Cache)
				}
				if n > size && c.name == fusetest.Uncached {
					t.Errorf("pass %d: the server was asked for %d bytes, some of them ahead, for a cache that is not read", pass, n)
				}
				if hit := r.Cache.Hit > 0; hit == want {
					t.Errorf("pass %d: the receipt says %+v", pass, r.Cache)
				}
				if c.flags != 0 && want && r.Cache.Bypassed != size {
					t.Errorf("pass %d, opened with O_DIRECT: %+v", pass, r.Cache)
				}
			}
			f.data[4096]++
			if err := f.dev.CopyIn(buf.Span().Addr(), f.data); err != nil {
				t.Fatal(err)
			}
			if r, err := h.WriteAt(t.Context(), buf.Span(), 0); err != nil || r.Bytes != size {
				t.Fatalf("write: %v, %v", &r, err)
			}
			if err := h.Close(); err != nil {
				t.Fatal(err)
			}
			if now, err := os.ReadFile(f.path); err != nil || !bytes.Equal(now, f.data) {
				t.Errorf("the backing file has other bytes, %v", err)
			}
		})
	}
}

// reclaimed is how many pages of files the kernel has taken back, or "" if it does not count
// them: that of the lab does not.
func reclaimed(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("/proc/vmstat")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), "\npgsteal_file ")
	count, _, _ := strings.Cut(rest, "\n")
	return count
}

// registerAt registers another file than the fixture's.
func registerAt(t *testing.T, f *fixture, path string, flags int) *cufile.File {
	t.Helper()
	file, err := os.OpenFile(path, flags, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	h, err := f.drv.Register(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	return h
}
