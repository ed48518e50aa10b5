package nvfs

import (
	"errors"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	abi "github.com/culvert-io/culvert/internal/abi/nvfs"
)

// A targetFile is the file that is read or written. The module duplicates the
// descriptor, so that the process may close it at any time.
type targetFile struct {
	fd     int
	flags  int
	direct bool
	stat   unix.Stat_t
	fresh  bool    // stat was read for this request
	req    Request // to the storage module
}

// open duplicates the descriptor of a request and checks that it is the file that the
// process means.
func (f *targetFile) open(m *Module, a *abi.IOArgs, write bool) (err error) {
	f.fd, err = unix.FcntlInt(uintptr(a.FD), unix.F_DUPFD_CLOEXEC, 0)
	switch {
	case errors.Is(err, syscall.EMFILE):
		return err // the module needs none: clients must not take it for its answer
	case err != nil:
		return syscall.EINVAL
	}
	if err := f.inspect(m, a, write); err != nil {
		f.close()
		return err
	}
	if write || f.flags&unix.O_ACCMODE != unix.O_WRONLY {
		return nil
	}
	// The module reads below the check of the file's mode.
	f.flags = f.flags&^unix.O_ACCMODE | unix.O_RDONLY
	fd, err := reopen(f.fd, f.flags&(unix.O_DIRECT|unix.O_ACCMODE))
	f.close()
	f.fd = fd
	return err
}

func (f *targetFile) close() { _ = unix.Close(f.fd) } // a duplicate: nothing is written back

func (f *targetFile) inspect(m *Module, a *abi.IOArgs, write bool) (err error) {
	if f.flags, err = unix.FcntlInt(uintptr(f.fd), unix.F_GETFL, 0); err != nil {
		return syscall.EINVAL
	}
	if err := unix.Fstat(f.fd, &f.stat); err != nil {
		return syscall.EINVAL
	}
	f.fresh = true
	f.direct = f.flags&unix.O_DIRECT != 0
	mode := f.flags & unix.O_ACCMODE
	readable := mode != unix.O_WRONLY || a.Bits&abi.BitAllowReads != 0
	if write && mode == unix.O_RDONLY || !write && !readable {
		return syscall.EBADF
	}
	kind := f.stat.Mode & unix.S_IFMT
	if f.flags&unix.O_PATH != 0 || kind != unix.S_IFREG && kind != unix.S_IFBLK {
		return syscall.EINVAL
	}
	return f.identify(m, a, kind)
}

// identify compares the file with the request.
func (f *targetFile) identify(m *Module, a *abi.IOArgs, kind uint32) error {
	device := m.superBlock(f.stat.Dev)
	if kind == unix.S_IFBLK {
		device = f.stat.Rdev
	}
	switch {
	case a.Inum == 0 || kind == unix.S_IFBLK && a.Majdev == 0:
		return syscall.EINVAL
	case a.Generation != 0 && a.Generation != f.generation(),
		a.Inum != f.stat.Ino,
		a.Majdev != unix.Major(device) || a.Mindev != unix.Minor(device):
		return syscall.ESTALE
	}
	return nil
}

const fsIocGetVersion = 0x80087601 // FS_IOC_GETVERSION

// generation returns the inode's, 0 on a file system without.
func (f *targetFile) generation() uint32 {
	v, err := unix.IoctlGetInt(f.fd, fsIocGetVersion)
	if err != nil {
		return 0
	}
	return uint32(v)
}

// size returns the current size. A block device has none here: its driver knows it.
func (f *targetFile) size() (int64, error) {
	if f.stat.Mode&unix.S_IFMT == unix.S_IFBLK {
		return 1<<63 - 1, nil
	}
	if f.fresh {
		f.fresh = false
		return f.stat.Size, nil
	}
	err := unix.Fstat(f.fd, &f.stat)
	return f.stat.Size, err
}

const xfsMagic = 0x58465342

// A fileSystem is a cached result.
type fileSystem struct {
	dev uint64
	xfs bool
}

// lastFileSystem is that of the last file.
var lastFileSystem atomic.Pointer[fileSystem]

// onXFS reports whether a file is on XFS.
func onXFS(fd int, dev uint64) bool {
	if last := lastFileSystem.Load(); last != nil && last.dev == dev {
		return last.xfs
	}
	var s unix.Statfs_t
	if unix.Fstatfs(fd, &s) != nil {
		return false
	}
	lastFileSystem.Store(&fileSystem{dev, s.Type == xfsMagic})
	return s.Type == xfsMagic
}

// looksSparse is the module's test for holes: fewer blocks than the size needs. XFS
// hides the number.
func (f *targetFile) looksSparse(m *Module) bool {
	blocks := f.stat.Blocks
	if m.hidesBlocks(f.fd, f.stat.Dev) {
		blocks = 0
	}
	return f.stat.Mode&unix.S_IFMT == unix.S_IFREG && blocks*512 < f.stat.Size
}

// read is read_iter: it returns the bytes up to the end of the file. A storage module
// gets the blocks with data; without one the pages are filled.
func (f *targetFile) read(m *Module, e *extents, off int64, pages []Page) (int64, error) {
	size, err := f.size()
	if err != nil || off >= size {
		return 0, err
	}
	n := min(int64(len(pages))*abi.BLOCK_SIZE, size-off)
	s := m.storage(f.fd)
	if s == nil {
		return f.readPages(off, pages)
	}
	if err := e.of(f); err != nil {
		return 0, err
	}
	blocks := (n + abi.BLOCK_SIZE - 1) / abi.BLOCK_SIZE
	for i := int64(0); i < blocks; {
		data, end, err := e.next(off+i*abi.BLOCK_SIZE, blocks-i)
		if err != nil {
			return 0, err
		}
		if data {
			if err := f.submit(s, false, off+i*abi.BLOCK_SIZE, pages[i:i+end]); err != nil {
				return 0, err
			}
		} else {
			zero(pages[i : i+end])
		}
		i += end
	}
	// Bytes truncated meanwhile are not data.
	size, err = f.size()
	if f.stat.Nlink == 0 {
		e.close() // frees the space of a deleted file
	}
	return min(n, max(0, size-off)), err
}

// submit passes blocks to a storage module.
func (f *targetFile) submit(s Storage, write bool, off int64, pages []Page) error {
	f.req = Request{FD: f.fd, Write: write, Off: off, Pages: pages}
	return s.Submit(&f.req)
}

func zero(pages []Page) {
	for _, p := range pages {
		clear(p.Mem)
	}
}

// Memory returns the memory of pages of one mgroup, which is contiguous.
func Memory(pages []Page) []byte {
	return pages[0].Mem[: len(pages)*abi.BLOCK_SIZE : len(pages)*abi.BLOCK_SIZE]
}

// readPages is what a driver without hooks does.
func (f *targetFile) readPages(off int64, pages []Page) (n int64, err error) {
	b := Memory(pages)
	for len(b) > 0 {
		k, err := f.pread(b, off+n)
		if err != nil {
			return 0, err
		}
		n += int64(k)
		if k == 0 || k%abi.BLOCK_SIZE != 0 {
			break
		}
		b = b[k:]
	}
	return n, nil
}

func (f *targetFile) pread(b []byte, off int64) (int, error) {
	for {
		n, err := unix.Pread(f.fd, b, off)
		if !errors.Is(err, syscall.EINTR) {
			return n, err
		}
	}
}

// prepareWrite makes an empty file one byte long, as the module does.
func (f *targetFile) prepareWrite() error {
	size, err := f.size()
	if err != nil || size != 0 {
		return err
	}
	if err := unix.Fallocate(f.fd, 0, 0, 1); err != nil {
		if errors.Is(err, syscall.EOPNOTSUPP) {
			return syscall.EIO
		}
		return err
	}
	return nil
}

// write is write_iter.
func (f *targetFile) write(m *Module, off int64, pages []Page) (int64, error) {
	if s := m.storage(f.fd); s != nil {
		if err := f.submit(s, true, off, pages); err != nil {
			return 0, err
		}
		return int64(len(pages)) * abi.BLOCK_SIZE, nil
	}
	b := Memory(pages)
	for n := int64(0); ; {
		k, err := unix.Pwrite(f.fd, b, off+n)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil {
			return 0, err
		}
		n += int64(k)
		if b = b[k:]; k == 0 || len(b) == 0 {
			return n, nil
		}
	}
}
