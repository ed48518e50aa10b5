package ring

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// overLen is enough for a write that is looked at more closely.
const overLen = largeWrite + 12_345

// overwritten counts the chunks that went into a mapping.
func overwritten(files *oddFiles, odd func(call) error) *atomic.Int32 {
	n := new(atomic.Int32)
	files.set(func(c call) (int, error) {
		if c.verb != "store" {
			return whole, nil
		}
		n.Add(1)
		if odd == nil {
			return whole, nil
		}
		return whole, odd(c)
	})
	return n
}

// newOverwrite prepares a write over all of a cached file.
func newOverwrite(t *testing.T) (r *Ring, files *oddFiles, f *testFile, b *buffer, data []byte) {
	t.Helper()
	files = &oddFiles{}
	cfg := smallRing
	cfg.sys = files
	r = openRing(t, openGPU(t), cfg)
	f, b = newFile(t, noise(1, overLen)), newBuffer(t, r.dev, overLen)
	if !storeSupported(f.buffered, cfg.Workers) {
		t.Skip("needs a directory for temporary files on ext4, xfs or overlayfs")
	}
	data = noise(2, overLen)
	b.set(t, data)
	return r, files, f, b, data
}

// A large write over cached pages goes through a mapping; the bytes around it
// stay.
func TestStore(t *testing.T) {
	files := &oddFiles{}
	cfg := smallRing
	cfg.sys = files
	r := openRing(t, openGPU(t), cfg)
	for _, off := range []int64{0, 4096, 777} {
		f, b := newFile(t, noise(1, overLen+10_000)), newBuffer(t, r.dev, overLen)
		if !storeSupported(f.buffered, cfg.Workers) {
			t.Skip("needs a directory for temporary files on ext4, xfs or overlayfs")
		}
		data := noise(2, overLen)
		b.set(t, data)
		n := overwritten(files, nil)
		res, err := run1(r, Request{Write: true, Buffered: f.buffered, Direct: -1, Off: off, Addr: b.addr(), Len: overLen})
		if err != nil || res.N != overLen || res.Retries != 0 {
			t.Errorf("at %d: %+v, %v", off, res, err)
		}
		if n.Load() == 0 {
			t.Errorf("at %d: no chunk went into a mapping", off)
		}
		want := bytes.Clone(f.data)
		copy(want[off:], data)
		if !bytes.Equal(f.content(t), want) {
			t.Errorf("at %d: wrong bytes", off)
		}
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil || bytes.Contains(maps, []byte(t.TempDir()[:len(t.TempDir())-4])) {
		t.Errorf("a file is still mapped, %v", err)
	}
}

// Where a mapping fails half-way pwrite does it, or says what is wrong.
func TestStoreFails(t *testing.T) {
	r, files, f, b, data := newOverwrite(t)
	var calls atomic.Int32
	overwritten(files, func(call) error {
		if calls.Add(1)%2 == 0 {
			return errFault
		}
		return nil
	})
	res, err := run1(r, Request{Write: true, Buffered: f.buffered, Direct: -1, Addr: b.addr(), Len: overLen})
	if err != nil || res.N != overLen || res.Retries == 0 {
		t.Errorf("%+v, %v", res, err)
	}
	if !bytes.Equal(f.content(t), data) {
		t.Error("wrong bytes")
	}
}

// A file that is cut short under the mapping is extended again, as pwrite does.
func TestStoreShrinks(t *testing.T) {
	r, files, f, b, data := newOverwrite(t)
	var calls atomic.Int32
	overwritten(files, func(call) error {
		if calls.Add(1) == 20 {
			return unix.Ftruncate(f.buffered, 4096)
		}
		return nil
	})
	res, err := run1(r, Request{Write: true, Buffered: f.buffered, Direct: -1, Addr: b.addr(), Len: overLen})
	if err != nil || res.N != overLen {
		t.Errorf("%+v, %v", res, err)
	}
	got := f.content(t)
	if len(got) != overLen {
		t.Errorf("%d bytes, want %d", len(got), overLen)
	}
	// What was written before the cut is lost, and nothing else.
	for i := range got {
		if got[i] != data[i] && got[i] != 0 {
			t.Fatalf("byte %d is %#x: neither written nor cut", i, got[i])
		}
	}
}

// Stores beyond the end of a file fault, and that is an error like others.
func TestStoreFaults(t *testing.T) {
	f := newFile(t, noise(1, 3*page))
	mem, err := unix.Mmap(f.buffered, 0, 3*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mem)
	if err := unix.Ftruncate(f.buffered, page); err != nil {
		t.Fatal(err)
	}
	if _, err := (kernel{}).Store(mem, make([]byte, 3*page)); !errors.Is(err, errFault) {
		t.Errorf("%v, want %v", err, errFault)
	}
	if took, err := (kernel{}).Store(mem[:page], make([]byte, page)); err != nil || took <= 0 {
		t.Errorf("what is left of the file: %v, %v", took, err)
	}
}

func TestCanStore(t *testing.T) {
	if f := newFile(t, noise(1, 4*page)); !storeSupported(f.buffered, tmpfsWorkers) {
		t.Skip("needs a directory for temporary files on ext4, xfs, overlayfs or tmpfs")
	}
	tests := []struct {
		name   string
		change func(t *testing.T, f *testFile)
		flags  int
		off, n int64
		want   bool
	}{
		{name: "plain", flags: unix.O_RDWR, n: 4 * page, want: true},
		{name: "unaligned", flags: unix.O_RDWR, off: 5, n: 3 * page, want: true},
		{name: "past the end", flags: unix.O_RDWR, off: 1, n: 4 * page},
		{name: "append", flags: unix.O_RDWR | unix.O_APPEND, n: 4 * page},
		{name: "dsync", flags: unix.O_RDWR | unix.O_DSYNC, n: 4 * page},
		{name: "a hole", flags: unix.O_RDWR, n: 4 * page, change: func(t *testing.T, f *testFile) {
			err := errors.Join(unix.Ftruncate(f.buffered, 0), unix.Ftruncate(f.buffered, 4*page))
			if _, err2 := unix.Pread(f.buffered, make([]byte, 4*page), 0); err != nil || err2 != nil {
				t.Fatal(err, err2)
			}
		}},
		{name: "read-only", flags: unix.O_RDONLY, n: 4 * page},
		{name: "write-only", flags: unix.O_WRONLY, n: 4 * page},
		{name: "capabilities", flags: unix.O_RDWR, n: 4 * page, change: func(t *testing.T, f *testFile) {
			const netRaw = "\x01\x00\x00\x02\x00\x20\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00" // cap_net_raw=ep
			if err := unix.Fsetxattr(f.buffered, "security.capability", []byte(netRaw), 0); err != nil {
				t.Skipf("needs the right to set capabilities: %v", err)
			}
		}},
		{name: "setuid", flags: unix.O_RDWR, n: 4 * page, change: func(t *testing.T, f *testFile) {
			if err := unix.Fchmod(f.buffered, 0o4700); err != nil {
				t.Fatal(err)
			}
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			name := t.TempDir() + "/file"
			if err := os.WriteFile(name, noise(1, 4*page), 0o600); err != nil {
				t.Fatal(err)
			}
			fd, err := unix.Open(name, tt.flags, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer unix.Close(fd)
			if tt.change != nil {
				tt.change(t, &testFile{buffered: fd})
			}
			if got := (kernel{}).CanStore(fd, tt.off, tt.n, tmpfsWorkers); got != tt.want {
				t.Errorf("%v, want %v", got, tt.want)
			}
		})
	}
	t.Run("a pipe", func(t *testing.T) {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		defer w.Close()
		if (kernel{}).CanStore(int(w.Fd()), 0, 1, tmpfsWorkers) {
			t.Error("a pipe can be mapped")
		}
	})
}

// TestStoresCost checks that it is the processor time of stores that counts, and from
// how much of it on pwrite is used: a page cache of small folios costs it, a busy
// machine does not.
func TestStoresCost(t *testing.T) {
	const n = 4 << 20
	for _, tt := range []struct {
		perGB time.Duration
		want  bool
	}{{100 * time.Millisecond, true}, {500 * time.Millisecond, true}, {650 * time.Millisecond, false}, {960 * time.Millisecond, false}} {
		var w mappedWrites
		sys := &costlyStores{took: tt.perGB * n / 1_000_000_000}
		w.init(sys, sizing{slot: n, pipelines: 8, workers: 8}, slog.New(slog.DiscardHandler))
		seg, mem := &segment{n: n, mapped: make([]byte, n)}, make([]byte, n)
		for range 40 {
			w.store(seg, mem)
		}
		if w.fast() != tt.want {
			t.Errorf("%v of processor time per GB: stored %v, want %v", tt.perGB, w.fast(), tt.want)
		}
	}
}

// costlyStores takes processor time, says it.
type costlyStores struct {
	kernel
	took time.Duration
}

func (c *costlyStores) Store([]byte, []byte) (time.Duration, error) { return c.took, nil }

// TestSlowStores checks that stores are given up when they are slow, then tried with at
// most 1 % of the bytes, and used again when they are fast.
func TestSlowStores(t *testing.T) {
	var w mappedWrites
	w.init(alwaysMap{}, sizing{slot: 4 << 20, pipelines: 8, workers: 8}, slog.New(slog.DiscardHandler))
	q := &Request{Write: true, Direct: -1, Off: 5, Len: 1000}
	mapped := func() fileMapping {
		var p progress
		w.mapFile(q, &p)
		return p.mapped
	}
	before := mapped()
	for range 100 {
		if before.slice(0, 10) == nil {
			t.Fatal("given up before anything was measured")
		}
		w.rate.Add(4<<20, time.Millisecond) // 4 GB/s
	}
	for range 30 {
		w.rate.Add(4<<20, 8*time.Millisecond) // 0.5 GB/s
	}
	if before.slice(0, 10) != nil {
		t.Error("a batch goes on storing when that is slow")
	}
	tried := 0
	for range 1000 {
		if m := mapped(); m.mem != nil {
			tried++
			if m.slice(990, 10) == nil {
				t.Error("a request that is to explore does not store")
			}
		}
	}
	if tried == 0 || tried > 10 {
		t.Errorf("tried %d times in 1000, want some, at most 10", tried)
	}
	for range 30 {
		w.rate.Add(4<<20, time.Millisecond)
	}
	if before.slice(0, 10) == nil {
		t.Error("still given up when it is fast again")
	}
}

// alwaysMap maps memory instead of files.
type alwaysMap struct{ kernel }

func (alwaysMap) CanStore(int, int64, int64, int) bool  { return true }
func (alwaysMap) Map(_ int, _, n int64) ([]byte, error) { return make([]byte, n), nil }
