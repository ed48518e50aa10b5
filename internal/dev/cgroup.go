package dev

import (
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// A MemoryGroup is the control group that limits the memory of this process. Above the
// limit the kernel kills.
type MemoryGroup struct {
	Limit uint64
	root  fs.FS
	dir   string
}

// MemoryLimit returns the control group with the smallest limit among that of this
// process and its ancestors; nil if there is no limit. It knows version 1 and 2.
func MemoryLimit(root fs.FS) *MemoryGroup {
	var least *MemoryGroup
	for dir, file := range memoryGroups(root) {
		n, err := strconv.ParseUint(firstField(root, path.Join(dir, file)), 10, 64)
		// Version 2 says "max", version 1 a number of pages that no machine has.
		if err == nil && n < 1<<60 && (least == nil || n < least.Limit) {
			least = &MemoryGroup{n, root, dir}
		}
	}
	return least
}

// memoryGroups yields the directories of this process's groups, with the name of the
// file that has the limit. A container may see only the end of the path.
func memoryGroups(root fs.FS) func(yield func(dir, file string) bool) {
	return func(yield func(dir, file string) bool) {
		text, err := fs.ReadFile(root, "proc/self/cgroup")
		if err != nil {
			return
		}
		for line := range strings.Lines(string(text)) {
			f := strings.SplitN(strings.TrimSpace(line), ":", 3)
			if len(f) < 3 {
				continue
			}
			top, file := "sys/fs/cgroup", "memory.max"
			switch {
			case f[1] == "":
			case slices.Contains(strings.Split(f[1], ","), "memory"):
				top, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
			default:
				continue
			}
			for dir := path.Clean("/" + f[2]); ; dir = path.Dir(dir) {
				if !yield(path.Join(top, dir), file) {
					return
				}
				if dir == "/" {
					break
				}
			}
		}
	}
}

// Used returns the bytes of the group that the kernel cannot reclaim: those of
// processes and of shared memory. It is 0 if the kernel does not tell.
func (g *MemoryGroup) Used() (n uint64) {
	text, err := fs.ReadFile(g.root, path.Join(g.dir, "memory.stat"))
	if err != nil {
		return 0
	}
	stat := map[string]uint64{}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		stat[name], _ = strconv.ParseUint(value, 10, 64)
	}
	if rss, ok := stat["total_rss"]; ok { // version 1, with the groups below
		return rss + stat["total_shmem"]
	}
	return stat["anon"] + stat["shmem"]
}

func firstField(root fs.FS, name string) string {
	text, err := fs.ReadFile(root, name)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}
