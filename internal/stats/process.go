package stats

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/internal/env"
)

// The states of a slot.
const (
	free uint32 = iota
	open
	closed
)

// others is the slot for files without one of their own: those whose slots were
// reused, and those that found none.
const others = 0

// A Process is the segment of this process. It is safe for concurrent use.
type Process struct {
	mem  []byte   // of the segment; the mapping keeps the lock
	seg  *segment // nil if there is none
	path string
	err  error // why there is none

	mu     sync.Mutex
	made   int   // slots that have memory
	closed []int // slots of closed files, the oldest first
}

// Path is the file's name. If there is no file, the error says why.
func (p *Process) Path() (string, error) { return p.path, p.err }

// New makes the segment of this process in the first directory that allows it. If
// none does, the totals stay in this process. routes are the names by number.
func New(dirs []string, routes []string) *Process {
	p := new(Process)
	var errs []error
	for _, dir := range dirs {
		err := p.create(dir, routes)
		if err == nil {
			return p
		}
		errs = append(errs, err)
	}
	p.err = errors.Join(errs...)
	return p
}

// Dirs are the directories for segments.
func Dirs() []string {
	dirs := []string{"/dev/shm"}
	if d := env.Get("XDG_RUNTIME_DIR"); filepath.IsAbs(d) {
		dirs = []string{d, "/dev/shm"}
	}
	return dirs
}

// fileName is the name of a process's segment.
func fileName(uid, pid int) string { return fmt.Sprintf("culvert-%d-%d.stats", uid, pid) }

func (p *Process) create(dir string, routes []string) error {
	sweep(dir, time.Now())
	path := filepath.Join(dir, fileName(os.Getuid(), os.Getpid()))
	f, err := exclusive(path)
	if err != nil {
		return err
	}
	mem, err := prepare(f)
	if err != nil {
		return errors.Join(&fs.PathError{Op: "map", Path: path, Err: err}, os.Remove(path), f.Close())
	}
	if err := f.Close(); err != nil {
		return errors.Join(err, os.Remove(path), unix.Munmap(mem))
	}
	if dead(path) {
		err := errors.New("the file system drops the lock of a mapped file when its descriptor is closed, as overlayfs does")
		return errors.Join(&fs.PathError{Op: "lock", Path: path, Err: err}, os.Remove(path), unix.Munmap(mem))
	}
	p.mem, p.seg, p.path, p.made = mem, at(mem), path, others+1
	h := &p.seg.Header
	h.Version, h.Slots, h.PID, h.UID, h.Started = layoutVersion, slots, uint32(os.Getpid()), uint32(os.Getuid()), time.Now().UnixNano()
	for i, name := range routes[:min(len(routes), Routes)] {
		copy(h.RouteNames[i][:len(h.RouteNames[i])-1], name)
	}
	put(&h.Command, strings.Join(os.Args, " "))
	p.seg.Slots[others].State.Store(open)
	h.Ended.Store(0)
	h.Magic = magic // last: it says that the rest is valid
	return nil
}

// exclusive creates a file that does not exist. A file left by a dead process with
// our process ID is removed first.
func exclusive(path string) (*os.File, error) {
	const flags = os.O_RDWR | os.O_CREATE | os.O_EXCL | unix.O_NOFOLLOW
	f, err := os.OpenFile(path, flags, 0o600)
	if errors.Is(err, fs.ErrExist) && dead(path) {
		if err := os.Remove(path); err != nil {
			return nil, err
		}
		f, err = os.OpenFile(path, flags, 0o600)
	}
	return f, err
}

// prepare locks and maps a new file, with memory for the first slot. The lock
// belongs to the open file, which the mapping keeps open.
func prepare(f *os.File) ([]byte, error) {
	// A process that sweeps may hold the lock for a moment.
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		return nil, os.NewSyscallError("flock", err)
	}
	if err := f.Truncate(segmentSize); err != nil {
		return nil, err
	}
	if err := reserve(f, 0, headerSize+slotSize); err != nil {
		return nil, err
	}
	mem, err := unix.Mmap(int(f.Fd()), 0, segmentSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	return mem, os.NewSyscallError("mmap", err)
}

// reserve allocates memory for a part of the file. If /dev/shm is full that is an
// error here; without it, access to the mapping would be a bus error. Slots get
// memory one by one, because files of dead processes stay for a minute.
func reserve(f *os.File, off, n int64) error {
	_, err := f.WriteAt(make([]byte, n), off)
	return err
}

// put writes a text, truncated if it does not fit.
func put(to *[nameSize]byte, text string) {
	clear(to[:])
	copy(to[:len(to)-1], text)
}

// A File counts the transfers of one file.
type File struct {
	block *Block
	more  *Block // counts the same transfers if the file has no slot
	slot  int
}

// Attach gives a file a slot. If there is none, its transfers are counted among the
// others.
func (p *Process) Attach(name string) *File {
	if p.seg == nil {
		return &File{block: new(Block)}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	i := p.take()
	if i == others {
		return &File{block: new(Block), more: &p.seg.Slots[others].Block}
	}
	s := &p.seg.Slots[i]
	p.seg.Header.Changes.Add(1)
	if s.State.Load() == closed {
		s.Block.moveTo(&p.seg.Slots[others].Block)
	}
	put(&s.Name, name)
	s.State.Store(open)
	p.seg.Header.Changes.Add(1)
	return &File{block: &s.Block, slot: i}
}

// take finds a slot: an unused one, or that of the file that was closed first.
func (p *Process) take() int {
	if p.made < slots && p.make(p.made) == nil {
		p.made++
		return p.made - 1
	}
	if len(p.closed) == 0 {
		return others
	}
	i := p.closed[0]
	p.closed = p.closed[1:]
	return i
}

// make allocates memory for a slot.
func (p *Process) make(i int) error {
	f, err := os.OpenFile(p.path, os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	return errors.Join(reserve(f, headerSize+int64(i)*slotSize, slotSize), f.Close())
}

// Detach ends a file, to which no transfer may be added any more, and returns its
// totals. Its slot keeps them until another file needs it.
func (p *Process) Detach(f *File) Totals {
	t := f.block.Totals()
	if f.slot == others {
		return t
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seg.Slots[f.slot].State.Store(closed)
	p.closed = append(p.closed, f.slot)
	return t
}

// Add counts a transfer in a shard.
func (f *File) Add(shard uint32, t *Transfer) {
	f.block.Add(shard, t)
	if f.more != nil {
		f.more.Add(shard, t)
	}
}

// AddBytes counts bytes of a transfer that another route moved than most of them.
func (f *File) AddBytes(shard uint32, write bool, route int, n int64) {
	f.block.AddBytes(shard, write, route, n)
	if f.more != nil {
		f.more.AddBytes(shard, write, route, n)
	}
}

// Totals are the sums of the file's transfers.
func (f *File) Totals() Totals { return f.block.Totals() }
