package selftest

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/lab/inside"
)

// badSector is the sector that the suite's guest cannot read. It lies in the
// middle of a small drive, so that a file that fills the drive must cover it.
func badSector(t *testing.T) int64 {
	t.Helper()
	n, err := strconv.ParseInt(inside.Wanted(t, "CULVERT_WANT_BAD_SECTOR"), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestMediumErrorRaw reads around a bad sector of a raw drive. The kernel's
// word for a medium error is ENODATA, not EIO.
func TestMediumErrorRaw(t *testing.T) {
	bad := badSector(t)
	disk, err := inside.Disk("raw")
	if err != nil {
		t.Fatal(err)
	}
	f := open(t, disk, os.O_RDWR|unix.O_DIRECT)
	b := page(t, 4096)
	if n, err := pread(f, b[:512], bad*512); !errors.Is(err, unix.ENODATA) {
		t.Errorf("bad sector: %d, %v, want ENODATA", n, err)
	}
	for _, sector := range []int64{bad - 1, bad + 1} {
		if n, err := pread(f, b[:512], sector*512); n != 512 || err != nil {
			t.Errorf("good sector %d: %d, %v", sector, n, err)
		}
	}
	if n, err := pwrite(f, b[:512], bad*512); n != 512 || err != nil {
		t.Errorf("write to a sector that is bad for reads: %d, %v", n, err)
	}
}

// TestMediumErrorFile finds the same sector under a file. A read that starts
// before it is not shortened to the good part: it fails as a whole, and what
// is left must be read piece by piece.
func TestMediumErrorFile(t *testing.T) {
	bad := badSector(t)
	const chunk = 1 << 20
	f := open(t, filepath.Join(t.TempDir(), "f"), os.O_RDWR|os.O_CREATE|unix.O_DIRECT)
	data := fill(page(t, chunk), 3)
	off, err := inside.GrowOver(f, bad, data)
	if err != nil {
		t.Fatal(err)
	}
	b := page(t, 8192)
	off = off &^ 4095
	if n, err := pread(f, b[:4096], off); !errors.Is(err, unix.ENODATA) {
		t.Errorf("bad block at %d: %d, %v, want ENODATA", off, n, err)
	}
	if n, err := pread(f, b, off-4096); !errors.Is(err, unix.ENODATA) {
		t.Errorf("good and bad block: %d, %v, want ENODATA", n, err)
	}
	if n, err := pread(f, b[:4096], off-4096); n != 4096 || err != nil {
		t.Errorf("good block before: %d, %v", n, err)
	}
	if at := (off - 4096) % chunk; !bytes.Equal(b[:4096], data[at:at+4096]) {
		t.Error("the good block before the bad one holds other data")
	}
}

// TestMediumErrorMapped reaches the sector through a mapping: a load faults.
// Nothing asks for the pages beforehand, because that never comes back: for
// mmap with MAP_POPULATE (seen on 6.1 and 6.12) and for MADV_POPULATE_READ
// (6.1) the kernel drops its lock for the read and tries again for ever.
func TestMediumErrorMapped(t *testing.T) {
	bad := badSector(t)
	f := open(t, filepath.Join(t.TempDir(), "f"), os.O_RDWR|os.O_CREATE|unix.O_DIRECT)
	off, err := inside.GrowOver(f, bad, fill(page(t, 1<<20), 4))
	if err != nil {
		t.Fatal(err)
	}
	b, err := unix.Mmap(int(f.Fd()), off&^4095, 4096, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(b)
	if !faults(b) {
		t.Error("a load from the bad page did not fault")
	}
}

// TestFullDisk fills a small file system: what was written before stays, and
// freed space can be used again.
func TestFullDisk(t *testing.T) {
	badSector(t) // the same guest
	const chunk = 1 << 20
	f := open(t, filepath.Join(inside.Dir("small"), "f"), os.O_RDWR|os.O_CREATE|unix.O_DIRECT)
	data, got := fill(page(t, chunk), 4), page(t, chunk)
	var size int64
	for {
		n, err := pwrite(f, data, size)
		if errors.Is(err, unix.ENOSPC) {
			break
		}
		if err != nil {
			t.Fatalf("write at %d: %v", size, err)
		}
		size += int64(n) // the last write that fits may be short; the next says why
	}
	if size < 4*chunk {
		t.Fatalf("the drive took %d bytes only", size)
	}
	for off := int64(0); off+chunk <= size; off += chunk {
		if n, err := pread(f, got, off); n != chunk || err != nil || !bytes.Equal(got, data) {
			t.Fatalf("what was written before the disk was full: read at %d: %d, %v, equal %v", off, n, err, bytes.Equal(got, data))
		}
	}
	if err := f.Truncate(0); err != nil {
		t.Fatal(err)
	}
	if n, err := pwrite(f, data, 0); n != chunk || err != nil {
		t.Errorf("write after space was freed: %d, %v", n, err)
	}
}
