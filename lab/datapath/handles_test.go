package datapath

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/lab/inside"
	"github.com/culvert-io/culvert/route"
)

// TestHandles registers what is not a file on a disk's file system: raw drives
// with small and large sectors, files in memory and files on an overlay. By every
// route reads and writes at any alignment agree with a model.
func TestHandles(t *testing.T) {
	inside.Wanted(t, "CULVERT_WANT_HANDLES")
	over := overlay(t) // removed after the fixture, which may have files open there
	w := newFixture(t)
	for _, tt := range []struct {
		name, path string
		block      bool
	}{
		{"drive, 512 byte sectors", rawDisk(t, "raw512"), true},
		{"drive, 4096 byte sectors", rawDisk(t, "raw4096"), true},
		{"tmpfs", sized(t, "/tmp/f"), false},
		{"overlayfs, upper", sized(t, filepath.Join(over, "new")), false},
		{"overlayfs, lower", filepath.Join(over, "old"), false},
	} {
		for _, flags := range []int{os.O_RDWR, os.O_RDWR | unix.O_DIRECT} {
			name := tt.name
			if flags&unix.O_DIRECT != 0 {
				name += ", O_DIRECT"
			}
			t.Run(name, func(t *testing.T) {
				m := newModel(t, w, tt.path)
				for _, id := range w.routes(tt.path) {
					h := w.register(tt.path, flags)
					if err := h.Require(0, id); err != nil {
						t.Fatal(err)
					}
					m.use(t, h, id)
					if tt.block {
						m.atTheEnd(t, h, id)
					}
				}
				m.compare(t)
			})
		}
	}
}

// A model is what a file should step: its first and its last MiB.
type model struct {
	w     *fixture
	path  string
	size  int64
	parts []part
	mem   gpu.Span
	rng   *rand.Rand
}

type part struct {
	off  int64
	data []byte
}

const partSize = 1 << 20

func newModel(t *testing.T, w *fixture, path string) *model {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	size, err := f.Seek(0, 2)
	if err != nil {
		t.Fatal(err)
	}
	m := &model{w, path, size, nil, w.buffer(2 * partSize), rand.New(rand.NewPCG(80, 1))}
	for i, off := range []int64{0, size - partSize} {
		m.parts = append(m.parts, part{off, noise(partSize, uint64(80+i))})
		if _, err := f.WriteAt(m.parts[i].data, off); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	return m
}

// use writes and reads at random places, aligned to everything and to nothing.
func (m *model) use(t *testing.T, h *cufile.File, id route.ID) {
	t.Helper()
	for _, grain := range []int64{1, 512, 4096} {
		for _, p := range m.parts {
			n := max((1+m.rng.Int64N(200_000))/grain*grain, grain)
			off := m.rng.Int64N(partSize-n) / grain * grain
			mem := m.mem.Slice(uint64(m.rng.Int64N(4)*grain), uint64(n))
			fresh := noise(int(n), m.rng.Uint64())
			if err := m.w.dev.CopyIn(mem.Addr(), fresh); err != nil {
				t.Fatal(err)
			}
			rc, err := h.WriteAt(t.Context(), mem, p.off+off)
			if !refused(err) {
				if err != nil || rc.Bytes != n {
					t.Fatalf("%v: write of %d bytes at %d: %v, %v", id, n, p.off+off, &rc, err)
				}
				copy(p.data[off:], fresh)
			}
			rc, err = h.ReadAt(t.Context(), mem, p.off+off)
			if refused(err) {
				continue
			}
			if err != nil || rc.Bytes != n || !bytes.Equal(m.w.bytes(mem), p.data[off:off+n]) {
				t.Fatalf("%v: read of %d bytes at %d: %v, %v", id, n, p.off+off, &rc, err)
			}
		}
	}
}

// atTheEnd reads across the end of a device, which is short, and behind it, which
// is nothing; and writes there, which is an error.
func (m *model) atTheEnd(t *testing.T, h *cufile.File, id route.ID) {
	t.Helper()
	last := m.parts[1].data
	for _, before := range []int64{0, 1, 512, 4096, 5000} {
		mem := m.mem.Slice(0, 64<<10)
		rc, err := h.ReadAt(t.Context(), mem, m.size-before)
		if refused(err) {
			continue
		}
		if err != nil || rc.Bytes != before || !bytes.Equal(m.w.bytes(mem)[:before], last[partSize-before:]) {
			t.Errorf("%v: read of 64 KiB, %d bytes before the end: %v, %v", id, before, &rc, err)
		}
	}
	rc, err := h.WriteAt(t.Context(), m.mem.Slice(0, 8192), m.size)
	if !refused(err) && (!errors.Is(err, unix.ENOSPC) || rc.Bytes != 0) {
		t.Errorf("%v: write behind the end: %v, %v, want ENOSPC", id, &rc, err)
	}
}

// compare reads the file by plain reads.
func (m *model) compare(t *testing.T) {
	t.Helper()
	f, err := os.Open(m.path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got := make([]byte, partSize)
	for _, p := range m.parts {
		if _, err := f.ReadAt(got, p.off); err != nil {
			t.Fatal(err)
		}
		equal(t, m.path, got, p.data)
	}
}

// refused reports whether a route does not take a request, and said so.
func refused(err error) bool {
	_, ok := errors.AsType[*route.RequireError](err)
	return ok
}

// sized makes a file of 3 MiB that does not end on a block.
func sized(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(3<<20 + 777); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(path) })
	return path
}

// overlay mounts an overlay of two directories on the drive nv0. The lower one
// has a file, old.
func overlay(t *testing.T) string {
	t.Helper()
	top, dir := inside.Dir("nv0"), "/run/overlay"
	for _, d := range []string{"lower", "upper", "work"} {
		if err := os.MkdirAll(filepath.Join(top, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	sized(t, filepath.Join(top, "lower", "old"))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	opts := "lowerdir=" + top + "/lower,upperdir=" + top + "/upper,workdir=" + top + "/work"
	if err := unix.Mount("overlay", dir, "overlay", 0, opts); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}
