package storage

import (
	"testing"
	"testing/fstest"
)

func tree(files map[string]string) fstest.MapFS {
	m := fstest.MapFS{}
	for name, text := range files {
		m[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return m
}

// TestAvailable reads machines with and without limits.
func TestAvailable(t *testing.T) {
	const meminfo = "MemTotal:       1000000 kB\nMemFree:           5 kB\nMemAvailable:     500000 kB\n"
	const machine = 500000 << 10
	const none1 = "9223372036854771712\n"
	for name, tt := range map[string]struct {
		files map[string]string
		want  int64
	}{
		"nothing known": {nil, -1},
		"no groups":     {map[string]string{"proc/meminfo": meminfo}, machine},
		"version 2, no limit": {map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/user.slice\n", "sys/fs/cgroup/user.slice/memory.max": "max\n",
		}, machine},
		"version 2, the pages of files can be had": {map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/a/b\n",
			"sys/fs/cgroup/a/b/memory.max": "1000000\n", "sys/fs/cgroup/a/b/memory.current": "900000\n",
			"sys/fs/cgroup/a/b/memory.stat": "anon 600000\nfile 300000\ninactive_file 200000\nactive_file 50000\n",
		}, 350000},
		"version 2, an ancestor limits": {map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/a/b\n",
			"sys/fs/cgroup/a/memory.max": "2000\n", "sys/fs/cgroup/a/memory.current": "1500\n",
			"sys/fs/cgroup/a/b/memory.max": "1000000\n", "sys/fs/cgroup/a/b/memory.current": "900000\n",
		}, 500},
		"version 2, high": {map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/memory.max": "max\n",
			"sys/fs/cgroup/a/memory.high": "3000\n", "sys/fs/cgroup/a/memory.current": "1000\n",
		}, 2000},
		"version 2, over the limit": {map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/a\n",
			"sys/fs/cgroup/a/memory.high": "3000\n", "sys/fs/cgroup/a/memory.current": "4000\n",
		}, 0},
		"version 2, the container sees its group as the root": {map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/docker/1f\n",
			"sys/fs/cgroup/memory.max": "4096\n", "sys/fs/cgroup/memory.current": "96\n",
		}, 4000},
		"version 1": {map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "12:cpu,cpuacct:/x\n9:memory:/docker/1f\n",
			"sys/fs/cgroup/memory/docker/1f/memory.limit_in_bytes": "8000\n", "sys/fs/cgroup/memory/docker/1f/memory.usage_in_bytes": "7000\n",
			"sys/fs/cgroup/memory/docker/1f/memory.stat": "inactive_file 1\ntotal_inactive_file 100\ntotal_active_file 10\n",
		}, 1110},
		"version 1, no limit": {map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "9:memory:/\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": none1,
			"sys/fs/cgroup/memory/memory.usage_in_bytes": "7000\n",
		}, machine},
		"both versions mounted": {map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "9:memory:/a\n0::/b\n",
			"sys/fs/cgroup/memory/a/memory.limit_in_bytes": "900\n", "sys/fs/cgroup/memory/a/memory.usage_in_bytes": "0\n",
			"sys/fs/cgroup/unified/b/memory.max": "700\n", "sys/fs/cgroup/unified/b/memory.current": "0\n",
		}, 700},
		"nonsense": {map[string]string{"proc/meminfo": "MemAvailable: many kB\n", "proc/self/cgroup": ":\n0:../..\nx", "sys/fs/cgroup/memory.max": "-"}, -1},
	} {
		if got := Available(tree(tt.files)); got != tt.want {
			t.Errorf("%s: %d, want %d", name, got, tt.want)
		}
	}
}
