package block

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

// both are drives of n bytes, in a file and in memory.
func both(t *testing.T, n int64) map[string]*File {
	t.Helper()
	_, file := newFile(t, n, os.O_RDWR)
	mem, err := NewMemory(n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { mem.Close() })
	return map[string]*File{"file": file, "memory": mem}
}

func newFile(t testing.TB, size int64, flags int) (*os.File, *File) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "drive")
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(name, flags, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if err := os.Truncate(name, size); err != nil {
		t.Fatal(err)
	}
	b, err := Adopt(f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil && !errors.Is(err, fs.ErrClosed) {
			t.Error(err)
		}
	})
	return f, b
}

// paged is memory that begins at a page.
func paged(t testing.TB, n int) []byte {
	t.Helper()
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(b) })
	return b
}

// cut takes n bytes of mem apart into segments that have one or more strange
// borders, or none.
func cut(t *rapid.T, mem []byte) (segs [][]byte) {
	unit := rapid.SampledFrom([]int{1, 512, 4096}).Draw(t, "unit")
	for len(mem) > 0 {
		k := min(len(mem), unit*rapid.IntRange(0, 9).Draw(t, "seg"))
		segs = append(segs, mem[:k:k])
		mem = mem[k:]
		if len(segs) > 40 {
			return append(segs, mem)
		}
	}
	return segs
}

// TestDrivesAreBytes compares random transfers, aligned and not, with a slice.
func TestDrivesAreBytes(t *testing.T) {
	const size = 1 << 20
	mem := paged(t, 256<<10)
	for name, d := range both(t, size) {
		model := make([]byte, size)
		t.Run(name, rapid.MakeCheck(func(t *rapid.T) {
			unit := rapid.SampledFrom([]int64{1, 512, 4096}).Draw(t, "offset unit")
			off := unit * rapid.Int64Range(0, size/unit-1).Draw(t, "offset")
			n := min(size-off, unit*rapid.Int64Range(1, 16).Draw(t, "length"))
			shift := rapid.SampledFrom([]int{0, 0, 3, 512}).Draw(t, "shift")
			buf := mem[shift:][:n]
			switch op := rapid.SampledFrom([]string{"read", "write", "zero"}).Draw(t, "op"); op {
			case "read":
				if k, err := d.ReadV(cut(t, buf), off); int64(k) != n || err != nil {
					t.Fatalf("read %d of %d bytes, %v", k, n, err)
				}
				if !bytes.Equal(buf, model[off:][:n]) {
					t.Fatal("read other bytes than were written")
				}
			case "write":
				copy(buf, rapid.SliceOfN(rapid.Byte(), int(min(n, 64)), int(min(n, 64))).Draw(t, "data"))
				copy(model[off:], buf)
				if k, err := d.WriteV(cut(t, buf), off); int64(k) != n || err != nil {
					t.Fatalf("wrote %d of %d bytes, %v", k, n, err)
				}
			case "zero":
				clear(model[off:][:n])
				if err := d.Zero(off, n); err != nil {
					t.Fatal(err)
				}
			}
			if got, err := d.Size(); got != size || err != nil {
				t.Fatalf("the drive has %d bytes, %v", got, err)
			}
		}))
	}
}

func TestReadEndsWhereTheDriveEnds(t *testing.T) {
	for name, d := range both(t, 1000) {
		buf := paged(t, 4096)
		for _, c := range []struct{ off, want int }{{0, 1000}, {512, 488}, {1000, 0}, {4096, 0}} {
			if n, err := d.ReadV([][]byte{buf[:2048], buf[2048:]}, int64(c.off)); n != c.want || err != nil {
				t.Errorf("%s: read %d bytes from %d, %v; want %d", name, n, c.off, err, c.want)
			}
		}
		if _, err := d.ReadV([][]byte{buf}, -1); !errors.Is(err, unix.EINVAL) {
			t.Errorf("%s: read at -1: %v", name, err)
		}
		if err := d.Zero(-1, 5); !errors.Is(err, unix.EINVAL) {
			t.Errorf("%s: zero at -1: %v", name, err)
		}
	}
}

func TestManySegments(t *testing.T) {
	_, d := newFile(t, 0, os.O_RDWR)
	buf := paged(t, 3*maxVec*512)
	var segs [][]byte
	for i := 0; i < len(buf); i += 512 {
		buf[i] = byte(i / 512 % 251)
		segs = append(segs, buf[i:i+512])
	}
	if n, err := d.WriteV(segs, 0); n != len(buf) || err != nil {
		t.Fatalf("wrote %d bytes, %v", n, err)
	}
	want := bytes.Clone(buf)
	clear(buf)
	if n, err := d.ReadV(segs, 0); n != len(buf) || err != nil || !bytes.Equal(buf, want) {
		t.Fatalf("read %d bytes, %v", n, err)
	}
}

func TestAdoptLeavesTheFileAlone(t *testing.T) {
	f, d := newFile(t, 8192, os.O_RDWR)
	if _, err := f.WriteAt([]byte("data"), 5000); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Seek(77, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Size(); err != nil {
		t.Error(err)
	}
	if at, err := f.Seek(0, io.SeekCurrent); at != 77 || err != nil {
		t.Errorf("the caller's offset is %d, %v; want 77", at, err)
	}
	f.Close()
	if n, err := d.ReadV([][]byte{make([]byte, 100)}, 0); n != 100 || err != nil {
		t.Errorf("after the caller closed the file: %d bytes, %v", n, err)
	}
	appending, d := newFile(t, 8192, os.O_RDWR|os.O_APPEND)
	if n, err := d.WriteV([][]byte{[]byte("data")}, 0); n != 4 || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
	if fi, err := appending.Stat(); err != nil || fi.Size() != 8192 {
		t.Errorf("a write to the drive was appended: %v, %v", fi, err)
	}
}

func TestHoles(t *testing.T) {
	f, d := newFile(t, 1<<20, os.O_RDWR)
	page := paged(t, 4096)
	page[0] = 1
	if _, err := d.WriteV([][]byte{page}, 64<<10); err != nil {
		t.Fatal(err)
	}
	if start, err := f.Seek(0, unix.SEEK_DATA); start != 64<<10 || err != nil {
		t.Errorf("the data begins at %d, %v; want 64 KiB", start, err)
	}
	if err := d.Zero(64<<10, 4096); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Seek(0, unix.SEEK_DATA); !errors.Is(err, unix.ENXIO) {
		t.Errorf("after zeroing: %v", err)
	}
	if err := d.Flush(); err != nil {
		t.Error(err)
	}
}

func TestDriveGrowsWithTheFile(t *testing.T) {
	f, d := newFile(t, 512, os.O_RDWR)
	if err := f.Truncate(5 << 20); err != nil {
		t.Fatal(err)
	}
	if n, err := d.Size(); n != 5<<20 || err != nil {
		t.Errorf("the drive has %d bytes, %v", n, err)
	}
}

func TestReadOnly(t *testing.T) {
	_, d := newFile(t, 4096, os.O_RDONLY)
	if _, err := d.WriteV([][]byte{make([]byte, 512)}, 0); !errors.Is(err, unix.EBADF) {
		t.Errorf("write: %v", err)
	}
	if err := d.Zero(0, 512); !errors.Is(err, unix.EBADF) {
		t.Errorf("zero: %v", err)
	}
}

func TestAdoptRefuses(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "file")
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	open := func(name string, flags int) *os.File {
		f, err := os.OpenFile(name, flags, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	closed := open(name, os.O_RDWR)
	closed.Close()
	for what, f := range map[string]*os.File{
		"pipe": r, "directory": open(dir, os.O_RDONLY), "write-only": open(name, os.O_WRONLY),
		"character device": open("/dev/zero", os.O_RDWR), "closed": closed,
	} {
		before := countFDs(t)
		if _, err := Adopt(f); err == nil {
			t.Errorf("a %s became a drive", what)
		}
		if n := countFDs(t); n != before {
			t.Errorf("%s: %d descriptors leaked", what, n-before)
		}
	}
}

func countFDs(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

func TestClose(t *testing.T) {
	before := countFDs(t)
	f, d := newFile(t, 4096, os.O_RDWR)
	f.Close()
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if n := countFDs(t); n != before {
		t.Errorf("%d descriptors leaked", n-before)
	}
	for name, err := range map[string]error{
		"close": d.Close(), "flush": d.Flush(), "zero": d.Zero(0, 1),
		"read":  second(d.ReadV([][]byte{make([]byte, 1)}, 0)),
		"write": second(d.WriteV([][]byte{make([]byte, 1)}, 0)),
	} {
		if !errors.Is(err, fs.ErrClosed) {
			t.Errorf("%s after close: %v", name, err)
		}
	}
}

func second(_ int, err error) error { return err }

// TestDirectWhereItFits holds the rule by which one of the two descriptors is
// taken.
func TestDirectWhereItFits(t *testing.T) {
	a := align{512, 4096}
	mem := paged(t, 3*4096)
	for _, c := range []struct {
		segs [][]byte
		off  int64
		want bool
	}{
		{[][]byte{mem}, 0, true},
		{[][]byte{mem}, 4096, true},
		{[][]byte{mem}, 512, false},
		{[][]byte{mem[512:][:4096]}, 0, true},
		{[][]byte{mem[256:][:4096]}, 0, false},
		{[][]byte{mem[:4096], mem[4096:][:512]}, 0, false},
		{[][]byte{mem[:512], mem[512:][:3584]}, 0, false},
	} {
		var v vector
		v.set(c.segs)
		if got := v.fits(c.off, a); got != c.want {
			t.Errorf("%d segments at %d: direct %v, want %v", len(c.segs), c.off, got, c.want)
		}
	}
}

func TestAdvance(t *testing.T) {
	mem := paged(t, 4096)
	for n := range 300 {
		var v vector
		v.set([][]byte{mem[:100], nil, mem[100:200], mem[200:300]})
		v.advance(n)
		left := 0
		for _, iov := range v.left {
			left += int(iov.Len)
		}
		if left != 300-n || v.left[0].Base != &mem[n] {
			t.Fatalf("after %d bytes %d are left", n, left)
		}
	}
}

func TestTransfersDoNotAllocate(t *testing.T) {
	_, d := newFile(t, 1<<20, os.O_RDWR)
	buf := paged(t, 64<<10)
	segs := [][]byte{buf[:4096], buf[8192:12288], buf[16384:]}
	if n := testing.AllocsPerRun(100, func() {
		if _, err := d.ReadV(segs, 0); err != nil {
			t.Fatal(err)
		}
	}); n > 0 {
		t.Errorf("a read allocates %.1f times", n)
	}
}
