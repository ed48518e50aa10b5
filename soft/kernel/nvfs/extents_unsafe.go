package nvfs

import (
	"errors"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	abi "github.com/culvert-io/culvert/internal/abi/nvfs"
)

// extents tells which blocks of a file have data on the drive. As the file system does
// in direct I/O, it asks the block map and not the page cache: an unwritten extent is a
// hole, also if its pages are cached (SEEK_DATA calls it data then), and a dirty page
// is written first.
//
// It opens the file again, because SEEK_DATA, which stands in where a file system has
// no map, moves the offset. An mgroup keeps the extents of the file read last: opening
// takes longer than the rest of a READ.
type extents struct {
	fd       int // valid when open
	open     bool
	whole    bool // a block device: all blocks exist
	noMap    bool // the file system has no FIEMAP
	inMemory bool // tmpfs: a page that exists is data
	dev, ino uint64
	room     *extentMap
}

// of switches to a file.
func (e *extents) of(f *targetFile) (err error) {
	if e.open && e.dev == f.stat.Dev && e.ino == f.stat.Ino {
		return nil // the inode number cannot be reused while the file is open
	}
	e.close()
	if e.whole = f.stat.Mode&unix.S_IFMT == unix.S_IFBLK; e.whole {
		return nil
	}
	if e.fd, err = reopen(f.fd, f.flags&unix.O_ACCMODE); err != nil {
		return err
	}
	e.open, e.dev, e.ino = true, f.stat.Dev, f.stat.Ino
	var fs unix.Statfs_t
	e.inMemory = unix.Fstatfs(e.fd, &fs) == nil && fs.Type == unix.TMPFS_MAGIC
	return nil
}

func (e *extents) close() {
	if e.open {
		_ = unix.Close(e.fd) // opened for reading only
	}
	*e = extents{room: e.room}
}

// next tells whether the blocks from off on have data, and how many, up to most, are
// alike. A block with any data counts as data.
func (e *extents) next(off, most int64) (data bool, n int64, err error) {
	if e.whole {
		return true, most, nil
	}
	start, end, ok, err := e.written(off, off+most*abi.BLOCK_SIZE)
	switch {
	case err != nil:
		return false, 0, err
	case !ok:
		return false, most, nil
	case start >= off+abi.BLOCK_SIZE:
		return false, min(most, (start-off)/abi.BLOCK_SIZE), nil
	}
	return true, min(most, (end-off+abi.BLOCK_SIZE-1)/abi.BLOCK_SIZE), nil
}

// written returns the first range at or behind off, before end, that has data.
func (e *extents) written(off, end int64) (from, to int64, ok bool, err error) {
	if !e.noMap {
		from, to, ok, err = e.mapped(off, end)
		e.noMap = errors.Is(err, syscall.EOPNOTSUPP) || errors.Is(err, syscall.ENOTTY)
	}
	if e.noMap {
		if e.inMemory && e.present(off, end) {
			return off, end, true, nil
		}
		return e.sought(off)
	}
	return from, to, ok, err
}

// struct fiemap and its extents, linux/fiemap.h.
const (
	fsIocFiemap     = 0xc020660b
	fiemapSync      = 1
	extentLast      = 1
	extentUnwritten = 0x800
)

type extentMap struct {
	Start, Length                  uint64
	Flags, Mapped, Count, Reserved uint32
	Extents                        [16]extent
}

type extent struct {
	Logical, Physical, Length uint64
	_                         [2]uint64
	Flags                     uint32
	_                         [3]uint32
}

// mapped asks the block map.
func (e *extents) mapped(off, end int64) (from, to int64, ok bool, err error) {
	if e.room == nil {
		e.room = new(extentMap)
	}
	m := e.room
	for off < end {
		*m = extentMap{Start: uint64(off), Length: uint64(end - off), Flags: fiemapSync, Count: uint32(len(m.Extents))}
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(e.fd), fsIocFiemap, uintptr(unsafe.Pointer(m))); errno != 0 {
			return 0, 0, false, errno
		}
		if m.Mapped == 0 {
			return 0, 0, false, nil
		}
		for _, x := range m.Extents[:m.Mapped] {
			next := int64(x.Logical + x.Length)
			if x.Flags&extentUnwritten == 0 && next > off {
				return max(int64(x.Logical), off), next, true, nil
			}
			if x.Flags&extentLast != 0 {
				return 0, 0, false, nil
			}
			off = max(off, next)
		}
	}
	return 0, 0, false, nil
}

// present reports whether tmpfs has all pages of a range, in memory or swapped out.
// SEEK_HOLE would look at every page up to the end of the file: 1 ms for 200 MiB.
func (e *extents) present(off, end int64) bool {
	var has unix.Cachestat_t
	in := unix.CachestatRange{Off: uint64(off), Len: uint64(end - off)}
	err := unix.Cachestat(uint(e.fd), &in, &has, 0) // from Linux 6.5 on
	pages := uint64((end - off + abi.BLOCK_SIZE - 1) / abi.BLOCK_SIZE)
	return err == nil && has.Cache+has.Evicted >= pages
}

// sought asks SEEK_DATA and SEEK_HOLE.
func (e *extents) sought(off int64) (from, to int64, ok bool, err error) {
	from, err = unix.Seek(e.fd, off, unix.SEEK_DATA)
	if errors.Is(err, syscall.ENXIO) {
		return 0, 0, false, nil
	}
	if err != nil {
		return 0, 0, false, err
	}
	to, err = unix.Seek(e.fd, from, unix.SEEK_HOLE)
	if errors.Is(err, syscall.ENXIO) {
		return 0, 0, false, nil // truncated meanwhile
	}
	return from, to, to > from, err // or truncated and extended meanwhile
}
