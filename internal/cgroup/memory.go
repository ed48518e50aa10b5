// Package cgroup tells what the control groups of this process allow it, by version 1
// and 2.
package cgroup

import (
	"bytes"
	"io/fs"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
)

// A Memory is a control group that may limit the memory of this process.
type Memory struct {
	root fs.FS
	dir  string
	v2   bool
}

// Memories lists the groups of this process and their ancestors: each of them limits it.
// In a container the mount may show the process's own group as the root, while /proc
// names it as the host does; directories that do not exist have no limit.
func Memories(root fs.FS) (list []Memory) {
	text, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(text)) {
		part := strings.SplitN(strings.TrimSpace(line), ":", 3) // "0::/user.slice" or "9:memory:/docker/1f"
		if len(part) != 3 {
			continue
		}
		mounts := []string{"sys/fs/cgroup/memory"}
		if part[1] == "" {
			mounts = []string{"sys/fs/cgroup", "sys/fs/cgroup/unified"}
		} else if !slices.Contains(strings.Split(part[1], ","), "memory") {
			continue
		}
		for _, m := range mounts {
			for at := path.Clean("/" + part[2]); ; at = path.Dir(at) {
				list = append(list, Memory{root, path.Join(m, at), part[1] == ""})
				if at == "/" {
					break
				}
			}
		}
	}
	return list
}

// Max returns the limit above which the kernel kills, if there is one.
func (m Memory) Max() (int64, bool) {
	if m.v2 {
		return m.number("memory.max")
	}
	const none = math.MaxInt64 >> 1 // version 1 writes a number near the largest
	n, ok := m.number("memory.limit_in_bytes")
	return n, ok && n < none
}

// Room returns how much more page cache the group allows: its limit without what it
// uses, except for pages of files, which the kernel takes back.
func (m Memory) Room() (int64, bool) {
	limit, ok := m.Max()
	usage, prefix := "memory.usage_in_bytes", "total_"
	if m.v2 {
		usage, prefix = "memory.current", ""
		if high, slows := m.number("memory.high"); slows && (!ok || high < limit) {
			limit, ok = high, true
		}
	}
	used, known := m.number(usage)
	if !ok || !known {
		return 0, false
	}
	stat := m.stat()
	return max(limit-used+stat[prefix+"active_file"]+stat[prefix+"inactive_file"], 0), true
}

// Held returns the bytes that the kernel cannot take back: those of processes and of
// shared memory. It is 0 if the kernel does not tell.
func (m Memory) Held() int64 {
	stat := m.stat()
	if m.v2 {
		return stat["anon"] + stat["shmem"]
	}
	return stat["total_rss"] + stat["total_shmem"] // with the groups below
}

// A Limit is the smallest limit of the process's memory, and its group.
type Limit struct {
	Memory
	Bytes int64
}

// MemoryLimit returns the smallest Max; nil if there is no limit.
func MemoryLimit(root fs.FS) (least *Limit) {
	for _, m := range Memories(root) {
		if n, ok := m.Max(); ok && (least == nil || n < least.Bytes) {
			least = &Limit{m, n}
		}
	}
	return least
}

func (m Memory) read(name string) []byte {
	text, _ := fs.ReadFile(m.root, path.Join(m.dir, name))
	return bytes.TrimSpace(text)
}

// number reads a file that contains one number; "max" is none.
func (m Memory) number(name string) (int64, bool) {
	n, err := strconv.ParseInt(string(m.read(name)), 10, 64)
	return n, err == nil
}

func (m Memory) stat() map[string]int64 {
	stat := map[string]int64{}
	for line := range strings.Lines(string(m.read("memory.stat"))) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		stat[name], _ = strconv.ParseInt(value, 10, 64)
	}
	return stat
}
