package cards

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// A directory is the file by which processes find each other: a line with the identity
// of the memory, and a line for each place. Lines have fixed lengths, so that a process
// changes its own in one write.
type directory struct {
	file *os.File
	path string
	directoryHead
	lines []line // nil if the file is empty
}

type directoryHead struct {
	id, inode, namespace uint64
}

// A line names a process that has the memory open, and its descriptor.
type line struct {
	process
	fd uint64
}

const (
	headLine = "culvert-shared %08d %016x %016x %016x\n"
	headSize = 75
	openLine = "%010d %016x %016x %010d\n"
	noLine   = "-                                                      \n"
	lineSize = 56
	fileSize = headSize + maxProcesses*lineSize
)

// fileMu serializes the openers in this process: locks of files exclude processes.
var fileMu sync.Mutex

// openDirectory opens and locks the file at path, which it creates.
func openDirectory(path string) (*directory, error) {
	fileMu.Lock()
	d, err := lockFile(path)
	if err == nil {
		err = d.read()
	}
	if err != nil {
		if d != nil {
			d.file.Close()
		}
		fileMu.Unlock()
		return nil, err
	}
	return d, nil
}

func (d *directory) close() {
	d.file.Close() // every write was checked
	fileMu.Unlock()
}

const oneUser = "fix: run processes of another user with CULVERT_SHARED= in their environment: they have GPUs of their own"

// lockFile opens the file and waits for its lock. The kernel releases the lock when the
// process ends, and a forked child does not have it.
func lockFile(path string) (*directory, error) {
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
		if errors.Is(err, unix.EACCES) {
			err = fmt.Errorf("%w (%s)", err, oneUser)
		}
		if err != nil {
			return nil, err
		}
		removed, err := lockOwn(f)
		if err != nil {
			f.Close()
			return nil, &os.PathError{Op: "open", Path: path, Err: err}
		}
		if !removed {
			return &directory{file: f, path: path}, nil
		}
		f.Close() // by the last process, just now
	}
}

// lockOwn locks a file that only this user can have written.
func lockOwn(f *os.File) (removed bool, err error) {
	fd := int(f.Fd())
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return false, os.NewSyscallError("fstat", err)
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return false, errors.New("not a regular file")
	case int(st.Uid) != os.Geteuid():
		return false, fmt.Errorf("a file of user %d, not of user %d (%s)", st.Uid, os.Geteuid(), oneUser)
	case st.Mode&0o077 != 0:
		return false, fmt.Errorf("others may use it: mode %#o must be 0600", st.Mode&0o777)
	}
	for {
		err = unix.FcntlFlock(uintptr(fd), unix.F_SETLKW, &unix.Flock_t{Type: unix.F_WRLCK})
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err == nil {
		err = unix.Fstat(fd, &st)
	}
	return st.Nlink == 0, err
}

// read reads the file.
func (d *directory) read() error {
	text, err := io.ReadAll(io.LimitReader(d.file, fileSize+1))
	if err != nil {
		return err
	}
	if len(text) == 0 {
		return nil
	}
	if d.directoryHead, d.lines, err = parseDirectory(text); err != nil {
		return fmt.Errorf("%s: %w (fix: remove it, or set CULVERT_SHARED to another path)", d.path, err)
	}
	return nil
}

func parseDirectory(text []byte) (h directoryHead, lines []line, err error) {
	first, _, _ := bytes.Cut(text, []byte("\n"))
	var v uint64
	if _, err := fmt.Sscanf(string(first)+"\n", headLine, &v, &h.id, &h.inode, &h.namespace); err != nil {
		return h, nil, errors.New("not a file of shared GPU memory")
	}
	if v != version {
		return h, nil, fmt.Errorf("version %d of shared GPU memory, this is version %d (fix: use one release in all processes)", v, version)
	}
	if len(text) != fileSize || len(first) != headSize-1 {
		return h, nil, fmt.Errorf("%d bytes, not %d", len(text), fileSize)
	}
	lines = make([]line, maxProcesses)
	for i := range lines {
		s := string(text[headSize+i*lineSize:][:lineSize])
		if s == noLine {
			continue
		}
		l := &lines[i]
		if n, err := fmt.Sscanf(s, openLine, &l.pid, &l.start, &l.stack, &l.fd); n != 4 || err != nil || l.pid == 0 {
			return h, nil, fmt.Errorf("line %d is damaged: %q", i+2, s)
		}
	}
	return h, lines, nil
}

// reset makes the file that of other memory.
func (d *directory) reset(h directoryHead) error {
	text := fmt.Appendf(nil, headLine, version, h.id, h.inode, h.namespace)
	text = append(text, strings.Repeat(noLine, maxProcesses)...)
	d.directoryHead, d.lines = h, make([]line, maxProcesses)
	_, err := d.file.WriteAt(text, 0)
	return err
}

// set writes the line of a place. A pid of 0 removes it.
func (d *directory) set(i int, l line) error {
	d.lines[i] = l
	text := noLine
	if l.pid != 0 {
		text = fmt.Sprintf(openLine, l.pid, l.start, l.stack, l.fd)
	}
	_, err := d.file.WriteAt([]byte(text), int64(headSize+i*lineSize))
	return err
}

// living returns the processes that have the memory open.
func (d *directory) living() (list []line) {
	for _, l := range d.lines {
		if l.pid != 0 && l.lives() {
			list = append(list, l)
		}
	}
	return list
}

// leftover is the start of the names that NewPath returns.
const leftover = "culvert-shared-"

// NewPath returns a path for Open in dir that nothing has used, and removes files that
// processes which were killed have left there. It creates no file.
func NewPath(dir string) string {
	prefix := fmt.Sprintf("%s%d-", leftover, os.Geteuid())
	old, _ := filepath.Glob(filepath.Join(dir, prefix+"*"))
	for _, path := range old {
		_ = Remove(path) // of others, or damaged: not ours to remove
	}
	return filepath.Join(dir, fmt.Sprintf("%s%016x", prefix, random()))
}

// Remove removes the file at path, unless a process uses it.
func Remove(path string) error {
	if _, err := os.Lstat(path); err != nil {
		return err
	}
	d, err := openDirectory(path)
	if err != nil {
		return err
	}
	defer d.close()
	if len(d.living()) > 0 {
		return &os.PathError{Op: "remove", Path: path, Err: unix.EBUSY}
	}
	return os.Remove(path)
}

// random returns an unguessable number other than 0.
func random() uint64 {
	var b [8]byte
	rand.Read(b[:])
	return binary.NativeEndian.Uint64(b[:]) | 1
}
