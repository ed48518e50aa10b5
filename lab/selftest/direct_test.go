package selftest

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/lab/inside"
)

// drive is the id of the one drive in the plain guests.
const drive = "nv0"

// page is memory that direct I/O may use whatever the alignment asked for.
func page(t *testing.T, n int) []byte {
	t.Helper()
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(b) })
	return b
}

// fill writes a pattern that depends on the seed.
func fill(b []byte, seed uint64) []byte {
	r := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	r.Read(b)
	return b
}

func open(t *testing.T, path string, flags int) *os.File {
	t.Helper()
	f, err := os.OpenFile(path, flags, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func pread(f *os.File, b []byte, off int64) (int, error)  { return unix.Pread(int(f.Fd()), b, off) }
func pwrite(f *os.File, b []byte, off int64) (int, error) { return unix.Pwrite(int(f.Fd()), b, off) }

func wantedSector(t *testing.T) int {
	t.Helper()
	n, err := strconv.Atoi(inside.Wanted(t, "CULVERT_WANT_SECTOR"))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestGuestIsAsDescribed compares what the kernel says with what the suite's
// table says.
func TestGuestIsAsDescribed(t *testing.T) {
	sector := wantedSector(t)
	disk, err := inside.Disk(drive)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join("/sys/class/block", filepath.Base(disk), "queue", "logical_block_size"))
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimSpace(string(b)); got != strconv.Itoa(sector) {
		t.Errorf("%s has sectors of %s bytes, want %d", disk, got, sector)
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	line := fmt.Sprintf("%s %s %s ", disk, inside.Dir(drive), inside.Wanted(t, "CULVERT_WANT_FS"))
	if !strings.Contains(string(mounts), line) {
		t.Errorf("no %q in the mounts:\n%s", line, mounts)
	}
	if dir := t.TempDir(); !strings.HasPrefix(dir, inside.Dir(drive)+"/") {
		t.Errorf("TempDir is %s, not on the drive", dir)
	}
}

// TestDirectAlignment holds the file system to the alignment that it announces
// by statx, and the announcement to the drive's sector size.
func TestDirectAlignment(t *testing.T) {
	sector := wantedSector(t)
	f := open(t, filepath.Join(t.TempDir(), "f"), os.O_RDWR|os.O_CREATE|unix.O_DIRECT)
	var st unix.Statx_t
	if err := unix.Statx(int(f.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_DIOALIGN, &st); err != nil {
		t.Fatal(err)
	}
	if st.Mask&unix.STATX_DIOALIGN == 0 {
		t.Fatal("the file system announces no alignment for direct I/O")
	}
	if int(st.Dio_offset_align) != sector {
		t.Errorf("direct I/O is aligned to %d bytes, the drive's sectors have %d", st.Dio_offset_align, sector)
	}
	const size = 64 << 10
	data, got := fill(page(t, size), 1), page(t, size)
	if n, err := pwrite(f, data, 0); n != size || err != nil {
		t.Fatalf("aligned write: %d, %v", n, err)
	}
	if n, err := pread(f, got, 0); n != size || err != nil || !bytes.Equal(got, data) {
		t.Fatalf("aligned read: %d, %v, equal %v", n, err, bytes.Equal(got, data))
	}
	if n, err := pread(f, got[:sector], int64(sector)); n != sector || err != nil || !bytes.Equal(got[:sector], data[sector:2*sector]) {
		t.Errorf("read of the second sector: %d, %v", n, err)
	}
	half := sector / 2
	for name, try := range map[string]func() (int, error){
		"offset": func() (int, error) { return pread(f, got[:sector], int64(half)) },
		"length": func() (int, error) { return pread(f, got[:half], 0) },
	} {
		if n, err := try(); !errors.Is(err, unix.EINVAL) {
			t.Errorf("misaligned %s: %d, %v, want EINVAL", name, n, err)
		}
	}
	memory := int(st.Dio_mem_align)
	if n, err := pread(f, got[memory:memory+sector], 0); n != sector || err != nil {
		t.Errorf("memory aligned to %d: %d, %v", memory, n, err)
	}
	if n, err := pread(f, got[memory/2:memory/2+sector], 0); !errors.Is(err, unix.EINVAL) {
		t.Errorf("memory aligned to %d: %d, %v, want EINVAL", memory/2, n, err)
	}
}

// TestDirectBypassesTheCache reads through the raw drive what was written
// directly to a file, while nothing was flushed.
func TestDirectBypassesTheCache(t *testing.T) {
	wantedSector(t)
	disk, err := inside.Disk(drive)
	if err != nil {
		t.Fatal(err)
	}
	const size = 1 << 20
	f := open(t, filepath.Join(t.TempDir(), "f"), os.O_RDWR|os.O_CREATE|unix.O_DIRECT)
	if err := unix.Fallocate(int(f.Fd()), 0, 0, size); err != nil {
		t.Fatal(err)
	}
	data, raw := fill(page(t, size), 2), page(t, 4096)
	if n, err := pwrite(f, data, 0); n != size || err != nil {
		t.Fatalf("write: %d, %v", n, err)
	}
	dev := open(t, disk, os.O_RDONLY|unix.O_DIRECT)
	found := 0
	for sector := int64(0); sector < 1<<21 && found == 0; sector += 8 {
		off, err := inside.OffsetOf(f, sector)
		if errors.Is(err, inside.ErrNotInFile) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if n, err := pread(dev, raw, sector*512); n != len(raw) || err != nil {
			t.Fatalf("raw read of sector %d: %d, %v", sector, n, err)
		}
		if !bytes.Equal(raw, data[off:off+4096]) {
			t.Errorf("sector %d does not hold the file's data at %d", sector, off)
		}
		found++
	}
	if found == 0 {
		t.Error("the file lies nowhere on the drive")
	}
}
