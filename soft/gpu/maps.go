package gpu

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
)

// A mapping is a line of /proc/self/maps.
type mapping struct {
	start, end          uint64
	read, write, shared bool
	major               uint64 // of the file's device
	path                string
}

func parseMapping(line string) (mapping, error) {
	// 7f2c8a000000-7f2c8a021000 rw-p 00000000 08:01 131 /a path with blanks
	f := strings.SplitN(line, " ", 6)
	if len(f) < 5 || len(f[1]) != 4 {
		return mapping{}, fmt.Errorf("not a mapping: %q", line)
	}
	from, to, _ := strings.Cut(f[0], "-")
	major, _, ok := strings.Cut(f[3], ":")
	start, err1 := strconv.ParseUint(from, 16, 64)
	end, err2 := strconv.ParseUint(to, 16, 64)
	dev, err3 := strconv.ParseUint(major, 16, 32)
	if !ok || err1 != nil || err2 != nil || err3 != nil {
		return mapping{}, fmt.Errorf("not a mapping: %q", line)
	}
	m := mapping{start: start, end: end, major: dev, read: f[1][0] == 'r', write: f[1][1] == 'w', shared: f[1][3] == 's'}
	if len(f) == 6 {
		m.path = strings.TrimLeft(f[5], " ")
	}
	return m, nil
}

// pinnable returns why the kernel would not pin [host, host+n) for a GPU. Without /proc
// it returns nil.
func pinnable(host uintptr, n uint64, f gpu.Flags) error {
	text, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return nil
	}
	at, end := uint64(host), uint64(host)+n
	for line := range bytes.Lines(text) {
		m, err := parseMapping(strings.TrimRight(string(line), "\n"))
		if err != nil || m.end <= at {
			continue
		}
		if m.start > at {
			break
		}
		if why := m.refuses(f); why != "" {
			return refuse(gpu.ErrInvalidValue, "%#x: %s", at, why)
		}
		if at = m.end; at >= end {
			return nil
		}
	}
	return refuse(gpu.ErrInvalidValue, "%#x is not mapped", at)
}

func (m mapping) refuses(f gpu.Flags) string {
	switch {
	case !m.read:
		return "not readable"
	case f&gpu.RegisterIOMemory != 0 && !m.shared:
		return "memory of the process, not of a device" // the software machine's BARs are shared memory
	case f&gpu.RegisterReadOnly != 0:
		return ""
	case !m.write:
		return "not writable: register it with READ_ONLY"
	case m.shared && m.tracksDirtyPages():
		// Linux refuses to pin such pages for writing and for long: the file system would
		// not notice what the device writes. An H200's driver returns INVALID_VALUE for a
		// file on ext4.
		return "a writable mapping of " + m.path + " cannot be pinned: register it with READ_ONLY, or use a private mapping or tmpfs"
	}
	return ""
}

// tracksDirtyPages reports whether the mapping is of a file on a file system that writes
// dirty pages back, which shared memory does not.
func (m mapping) tracksDirtyPages() bool {
	if m.major != 0 {
		return true // on a block device
	}
	var st unix.Statfs_t
	if !strings.HasPrefix(m.path, "/") || unix.Statfs(m.path, &st) != nil {
		return false // memfd, shared anonymous memory, or a file that was removed
	}
	switch st.Type {
	case unix.TMPFS_MAGIC, unix.HUGETLBFS_MAGIC, unix.RAMFS_MAGIC:
		return false
	}
	// Device nodes are on devtmpfs, which is tmpfs, or beside it in /dev.
	return !strings.HasPrefix(m.path, "/dev/")
}
