package storage

import (
	"bufio"
	"bytes"
	"io/fs"
	"math"
	"os"
	"path"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// Available returns how many bytes the page cache may take without swapping: what the
// kernel calls available, and no more than the control groups of the process allow.
// root has the directories /proc and /sys. It is -1 if unknown.
func Available(root fs.FS) int64 {
	least := int64(-1)
	if kib, ok := field(root, "proc/meminfo", "MemAvailable:"); ok {
		least = kib << 10
	}
	for _, g := range controlGroups(root) {
		if room, ok := g.room(root); ok && (least < 0 || room < least) {
			least = room
		}
	}
	return least
}

// availableFor is how long an answer of Available is used: reading it takes as long
// as a small transfer.
const availableFor = time.Second

// A memoryGauge remembers the answer of Available.
type memoryGauge struct {
	bytes   atomic.Int64
	expires atomic.Int64 // nanoseconds since start
}

var (
	machineMemory memoryGauge
	gaugeStart    = time.Now()
)

func (g *memoryGauge) available() int64 {
	now := int64(time.Since(gaugeStart)) + 1
	if now >= g.expires.Load() {
		g.bytes.Store(Available(os.DirFS("/")))
		g.expires.Store(now + int64(availableFor))
	}
	return g.bytes.Load()
}

// A controlGroup is a directory with a memory limit, of version 1 or 2.
type controlGroup struct {
	dir string
	v2  bool
}

// controlGroups lists those of the process and their ancestors: each of them limits
// it. In a container the mount may show the process's own group as the root, while
// /proc names it as the host does; directories that do not exist are passed over.
func controlGroups(root fs.FS) (list []controlGroup) {
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
		} else if !strings.Contains(","+part[1]+",", ",memory,") {
			continue
		}
		for _, m := range mounts {
			for at := path.Clean("/" + part[2]); ; at = path.Dir(at) {
				list = append(list, controlGroup{path.Join(m, at), part[1] == ""})
				if at == "/" {
					break
				}
			}
		}
	}
	return list
}

// room is how much more page cache a group allows: its limit without what it uses,
// except for pages of files, which the kernel takes back.
func (g controlGroup) room(root fs.FS) (int64, bool) {
	limit, ok := g.limit(root)
	if !ok {
		return 0, false
	}
	usage, prefix := "memory.current", ""
	if !g.v2 {
		usage, prefix = "memory.usage_in_bytes", "total_"
	}
	used, ok := number(root, path.Join(g.dir, usage))
	if !ok {
		return 0, false
	}
	stat := path.Join(g.dir, "memory.stat")
	active, _ := field(root, stat, prefix+"active_file")
	inactive, _ := field(root, stat, prefix+"inactive_file")
	return max(limit-used+active+inactive, 0), true
}

// limit is the least limit of a group, if it has one.
func (g controlGroup) limit(root fs.FS) (int64, bool) {
	names := []string{"memory.limit_in_bytes"}
	if g.v2 {
		names = []string{"memory.max", "memory.high"}
	}
	least := int64(math.MaxInt64)
	for _, name := range names {
		if n, ok := number(root, path.Join(g.dir, name)); ok {
			least = min(least, n)
		}
	}
	const none = math.MaxInt64 >> 1 // version 1 writes a number near the largest
	return least, least < none
}

// number reads a file that contains one number; "max" is none.
func number(root fs.FS, name string) (int64, bool) {
	text, err := fs.ReadFile(root, name)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64)
	return n, err == nil
}

// field reads the number after a key at the start of a line.
func field(root fs.FS, name, key string) (int64, bool) {
	f, err := root.Open(name)
	if err != nil {
		return 0, false
	}
	defer f.Close()
	for sc := bufio.NewScanner(f); sc.Scan(); {
		if word := strings.Fields(sc.Text()); len(word) > 1 && word[0] == key {
			n, err := strconv.ParseInt(word[1], 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}
