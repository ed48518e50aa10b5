package cgroup

import (
	"testing"
	"testing/fstest"
)

func TestMemoryLimit(t *testing.T) {
	tree := func(files map[string]string) fstest.MapFS {
		root := fstest.MapFS{}
		for name, text := range files {
			root[name] = &fstest.MapFile{Data: []byte(text)}
		}
		return root
	}
	for name, c := range map[string]struct {
		files       map[string]string
		limit, used int64
	}{
		"no /proc": {nil, 0, 0},
		"none":     {map[string]string{"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/memory.max": "max\n"}, 0, 0},
		"version 2": {map[string]string{
			"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/memory.max": "1000\n",
			"sys/fs/cgroup/a/memory.stat": "anon 10\nfile 500\nshmem 5\n",
		}, 1000, 15},
		"of an ancestor": {map[string]string{
			"proc/self/cgroup": "0::/a/b/c\n", "sys/fs/cgroup/a/memory.max": "1000", "sys/fs/cgroup/a/b/c/memory.max": "5000",
		}, 1000, 0},
		"version 1": {map[string]string{
			"proc/self/cgroup": "9:cpu,cpuacct:/x\n4:memory:/x\n0::/\n", "sys/fs/cgroup/memory/x/memory.limit_in_bytes": "2000\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
			"sys/fs/cgroup/memory/x/memory.stat":         "rss 1\nshmem 1\ntotal_rss 20\ntotal_shmem 3\n",
		}, 2000, 23},
		"in a container": {map[string]string{
			"proc/self/cgroup": "4:memory:/docker/123\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "3000\n",
		}, 3000, 0},
		"nonsense": {map[string]string{"proc/self/cgroup": "memory\n4:memory\n0::/\n", "sys/fs/cgroup/memory.max": "many\n"}, 0, 0},
	} {
		var limit, used int64
		if g := MemoryLimit(tree(c.files)); g != nil {
			limit, used = g.Bytes, g.Held()
		}
		if limit != c.limit || used != c.used {
			t.Errorf("%s: limit %d, used %d; want %d, %d", name, limit, used, c.limit, c.used)
		}
	}
}
