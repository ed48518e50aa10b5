package inside

import (
	"errors"
	"fmt"
	"os"
	"structs"
	"unsafe"

	"golang.org/x/sys/unix"
)

// From include/uapi/linux/fiemap.h and fs.h:
const (
	fsIocFiemap    = 0xc020660b // _IOWR('f', 11, struct fiemap)
	fiemapFlagSync = 1
)

// fiemapExtent is struct fiemap_extent.
type fiemapExtent struct {
	_          structs.HostLayout
	Logical    uint64
	Physical   uint64
	Length     uint64
	Reserved64 [2]uint64
	Flags      uint32
	Reserved   [3]uint32
}

// fiemap is struct fiemap with room for one extent.
type fiemap struct {
	_             structs.HostLayout
	Start         uint64
	Length        uint64
	Flags         uint32
	MappedExtents uint32
	ExtentCount   uint32
	Reserved      uint32
	Extent        fiemapExtent
}

var (
	_ [56]byte = [unsafe.Sizeof(fiemapExtent{})]byte{}
	_ [88]byte = [unsafe.Sizeof(fiemap{})]byte{}
)

// ErrNotInFile means that a sector is not part of a file.
var ErrNotInFile = errors.New("sector is not part of the file")

// OffsetOf returns the offset in a file of a sector of its drive, in units of 512
// bytes, so that a test can reach a medium error through a file system. The drive
// has no partitions, so the file system's blocks count from the drive's start.
func OffsetOf(f *os.File, sector int64) (int64, error) {
	want := uint64(sector) * 512
	for start := uint64(0); ; {
		m := fiemap{Start: start, Length: 1<<63 - start, Flags: fiemapFlagSync, ExtentCount: 1}
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), fsIocFiemap, uintptr(unsafe.Pointer(&m))); errno != 0 {
			return 0, fmt.Errorf("%s: FIEMAP: %w", f.Name(), errno)
		}
		e := m.Extent
		if m.MappedExtents == 0 {
			return 0, fmt.Errorf("%s: sector %d: %w", f.Name(), sector, ErrNotInFile)
		}
		if want >= e.Physical && want < e.Physical+e.Length {
			return int64(e.Logical + want - e.Physical), nil
		}
		start = e.Logical + e.Length
	}
}

// GrowOver appends data to a file until the given sector of the drive is part of it,
// and returns its offset: a test puts a file on a medium error with it. data must be
// aligned if the file was opened with O_DIRECT.
func GrowOver(f *os.File, sector int64, data []byte) (int64, error) {
	unix.Sync() // only then are the blocks of removed files free
	for size := int64(0); ; size += int64(len(data)) {
		if _, err := f.WriteAt(data, size); err != nil {
			return 0, fmt.Errorf("extend the file to sector %d: %w", sector, err)
		}
		off, err := OffsetOf(f, sector)
		if !errors.Is(err, ErrNotInFile) {
			return off, err
		}
	}
}
