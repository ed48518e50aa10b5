package datapath

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/transfer"
	"github.com/culvert-io/culvert/lab/inside"
)

// cold opens a file past the page cache, so that what is written is not
// remembered and every read goes to the drive.
func cold(t *testing.T, name string) *os.File {
	t.Helper()
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|unix.O_DIRECT, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// TestMediumError reads a file with a bad sector by every route: the read
// fails and says why, and what lies beside is still readable. A copy of the
// file fails too, and leaves nothing.
func TestMediumError(t *testing.T) {
	bad, err := strconv.ParseInt(inside.Wanted(t, "CULVERT_WANT_BAD_SECTOR"), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	const chunk = 1 << 20
	name := filepath.Join(t.TempDir(), "f")
	data := aligned(t, chunk, 1)
	off, err := inside.GrowOver(cold(t, name), bad, data)
	if err != nil {
		t.Fatal(err)
	}
	block := off &^ 4095
	w := newFixture(t)
	mem := w.buffer(chunk)
	for _, id := range w.routes(name) {
		t.Run(id.String(), func(t *testing.T) {
			h := w.register(name, os.O_RDONLY)
			if err := h.Require(0, id); err != nil {
				t.Fatal(err)
			}
			for _, n := range []uint64{4096, 8192, 256 << 10} {
				at := block + 4096 - int64(n)
				rc, err := h.ReadAt(t.Context(), mem.Slice(0, n), at)
				// The page cache has one word for all failures, direct I/O
				// passes the kernel's on.
				if !errors.Is(err, unix.ENODATA) && !errors.Is(err, unix.EIO) {
					t.Errorf("read of %d bytes that ends in the bad block: %v, %v", n, err, &rc)
				}
				t.Logf("%d bytes: %v", n, err)
			}
			before := block - 8192
			if rc, err := h.ReadAt(t.Context(), mem.Slice(0, 4096), before); err != nil || rc.Bytes != 4096 {
				t.Fatalf("read of a good block: %v, %v", &rc, err)
			}
			at := before % chunk
			equal(t, "the good block", w.bytes(mem.Slice(0, 4096)), data[at:at+4096])
		})
	}
	t.Run("registered", func(t *testing.T) {
		dropCache(name)
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		host, err := unix.Mmap(int(f.Fd()), block, 4096, unix.PROT_READ, unix.MAP_SHARED)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Munmap(host)
		// Pinning a page that cannot be read must come to an end.
		if err := w.dev.Register(uintptr(gpu.HostAddr(host)), 4096, gpu.RegisterReadOnly|gpu.RegisterDeviceMap); err == nil {
			defer w.dev.Unregister(uintptr(gpu.HostAddr(host)))
		}
		if err := w.dev.Copy(mem.Addr(), gpu.HostAddr(host), 4096); err == nil {
			t.Error("a copy out of a page that cannot be read succeeds")
		}
	})
	t.Run("copy", func(t *testing.T) {
		dir := "/tmp/copies" // in memory: the drive is full of the file
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		res, err := transfer.Copy(t.Context(), w.drv, name, filepath.Join(dir, "copy"), transfer.Options{Buffer: 8 << 20})
		if !errors.Is(err, unix.ENODATA) && !errors.Is(err, unix.EIO) {
			t.Errorf("copy: %+v, %v", res, err)
		}
		nothingIn(t, dir)
	})
}

// TestCopyToFullDisk runs out of space: the old file stays, nothing else does.
func TestCopyToFullDisk(t *testing.T) {
	inside.Wanted(t, "CULVERT_WANT_BAD_SECTOR") // the same guest
	dir := inside.Dir("small")
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		t.Fatal(err)
	}
	// Holes are kept and need no space, so the source has none and the disk is nearly
	// full.
	const left, size = 24 << 20, 48 << 20
	filler, err := os.Create(filepath.Join(dir, "filler"))
	if err != nil {
		t.Fatal(err)
	}
	defer filler.Close()
	if err := unix.Fallocate(int(filler.Fd()), 0, 0, int64(fs.Bavail)*fs.Bsize-left); err != nil {
		t.Fatal(err)
	}
	const src = "/tmp/source"
	if err := os.WriteFile(src, noise(size, 4), 0o600); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(src)
	old := noise(100_000, 3)
	dst := filepath.Join(dir, "dst")
	if err := os.WriteFile(dst, old, 0o600); err != nil {
		t.Fatal(err)
	}
	w := newFixture(t)
	res, err := transfer.Copy(t.Context(), w.drv, src, dst, transfer.Options{Buffer: 8 << 20})
	if !errors.Is(err, unix.ENOSPC) {
		t.Errorf("copy: %+v, %v, want ENOSPC", res, err)
	}
	got, err := os.ReadFile(dst)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "the old file", got, old)
	if err := errors.Join(os.Remove(dst), os.Remove(filler.Name())); err != nil {
		t.Fatal(err)
	}
	nothingIn(t, dir)
}

// nothingIn finds files that a failed operation left.
func nothingIn(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != "lost+found" {
			t.Errorf("%s was left in %s", e.Name(), dir)
		}
	}
}
