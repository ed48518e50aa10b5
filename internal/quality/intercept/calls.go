package intercept

import (
	"bytes"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// A Call is a system call that a program is about to make.
type Call struct {
	Name  string
	Paths []string // its arguments, or that of its descriptor; relative to the working directory
	PID   int
	// ReadOnly marks an open that creates and truncates nothing.
	ReadOnly bool
}

// A form says where a system call has its paths.
type form struct {
	name  string
	paths []int // arguments that are paths
	fd    bool  // the first argument is a descriptor
}

// calls are the system calls that can be intercepted, by their number. "tmpfile" is an
// openat that creates a file without a name.
var calls = map[uint32]form{
	unix.SYS_OPENAT:          {"open", []int{1}, false},
	unix.SYS_OPENAT2:         {"open", []int{1}, false},
	unix.SYS_NEWFSTATAT:      {"stat", []int{1}, false},
	unix.SYS_MKDIRAT:         {"mkdir", []int{1}, false},
	unix.SYS_UNLINKAT:        {"unlink", []int{1}, false},
	unix.SYS_RENAMEAT:        {"rename", []int{1, 3}, false},
	unix.SYS_RENAMEAT2:       {"rename", []int{1, 3}, false},
	unix.SYS_LINKAT:          {"link", []int{1, 3}, false},
	unix.SYS_SYMLINKAT:       {"symlink", []int{0, 2}, false},
	unix.SYS_FCHMODAT:        {"chmod", []int{1}, false},
	unix.SYS_UTIMENSAT:       {"utimens", nil, true},
	unix.SYS_FSYNC:           {"sync", nil, true},
	unix.SYS_FDATASYNC:       {"sync", nil, true},
	unix.SYS_SYNCFS:          {"syncfs", nil, true},
	unix.SYS_SYNC_FILE_RANGE: {"sync range", nil, true},
	unix.SYS_FSTAT:           {"fstat", nil, true},
	unix.SYS_FSTATFS:         {"statfs", nil, true},
	unix.SYS_FCNTL:           {"fcntl", nil, true},
	unix.SYS_LSEEK:           {"seek", nil, true},
	unix.SYS_PREAD64:         {"read", nil, true},
	unix.SYS_CLOSE:           {"close", nil, true},
	unix.SYS_WRITE:           {"write", nil, true},
	unix.SYS_PWRITE64:        {"write", nil, true},
	unix.SYS_PWRITEV:         {"write", nil, true},
	unix.SYS_PWRITEV2:        {"write", nil, true},
	unix.SYS_COPY_FILE_RANGE: {"write", nil, true},
	unix.SYS_FTRUNCATE:       {"truncate", nil, true},
	unix.SYS_FALLOCATE:       {"allocate", nil, true},
	unix.SYS_FCHMOD:          {"chmod", nil, true},
	unix.SYS_FCHOWN:          {"chown", nil, true},
	unix.SYS_FSETXATTR:       {"xattr", nil, true},
	unix.SYS_FREMOVEXATTR:    {"xattr", nil, true},
	unix.SYS_FLOCK:           {"lock", nil, true},
	unix.SYS_IO_URING_ENTER:  {"uring", nil, true},
	unix.SYS_BIND:            {"bind", nil, true},
	unix.SYS_LISTEN:          {"listen", nil, true},
}

func (n *notice) call() *Call {
	f := calls[uint32(n.nr)]
	c := &Call{Name: f.name, Paths: n.paths(f), PID: int(n.pid)}
	if n.nr == unix.SYS_OPENAT {
		flags := n.args[2]
		c.ReadOnly = flags&(unix.O_CREAT|unix.O_TRUNC|unix.O_TMPFILE&^unix.O_DIRECTORY) == 0
		if flags&unix.O_TMPFILE == unix.O_TMPFILE {
			c.Name = "tmpfile"
		}
	}
	return c
}

// paths are those of the call's arguments. A file without a name has none.
func (n *notice) paths(f form) (paths []string) {
	if f.fd {
		name, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", n.pid, int32(n.args[0])))
		return []string{name}
	}
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", n.pid))
	if err != nil {
		return nil
	}
	defer mem.Close()
	for _, i := range f.paths {
		buf := make([]byte, unix.PathMax)
		got, _ := mem.ReadAt(buf, int64(n.args[i]))
		text, _, _ := bytes.Cut(buf[:got], []byte{0})
		paths = append(paths, n.relative(i, string(text)))
	}
	return paths
}

// relative resolves a path that is relative to an open directory, the argument before it.
// Without a path, that argument is the file itself.
func (n *notice) relative(arg int, path string) string {
	if arg == 0 || int32(n.args[arg-1]) == unix.AT_FDCWD || strings.HasPrefix(path, "/") {
		return path
	}
	dir, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", n.pid, int32(n.args[arg-1])))
	if path == "" {
		return dir
	}
	return dir + "/" + path
}
