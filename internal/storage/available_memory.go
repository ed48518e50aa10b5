package storage

import (
	"bufio"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/culvert-io/culvert/internal/cgroup"
)

// Available returns how many bytes the page cache may take without swapping: what the
// kernel calls available, and no more than the control groups of the process allow.
// root has the directories /proc and /sys. It is -1 if unknown.
func Available(root fs.FS) int64 {
	least := int64(-1)
	if kib, ok := field(root, "proc/meminfo", "MemAvailable:"); ok {
		least = kib << 10
	}
	for _, g := range cgroup.Memories(root) {
		if room, ok := g.Room(); ok && (least < 0 || room < least) {
			least = room
		}
	}
	return least
}

// Dirty returns how many bytes all programs have written that are not on storage yet; -1
// if unknown. root has the directory /proc.
func Dirty(root fs.FS) int64 {
	dirty, ok := field(root, "proc/meminfo", "Dirty:")
	writeback, also := field(root, "proc/meminfo", "Writeback:")
	if !ok || !also {
		return -1
	}
	return (dirty + writeback) << 10
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
