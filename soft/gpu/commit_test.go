package gpu

import (
	"errors"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/cgroup"
)

// Memory that the control group does not have is not allocated. What was used before
// is, again and again: it takes nothing more.
func TestControlGroup(t *testing.T) {
	root := fstest.MapFS{
		"proc/self/cgroup":          {Data: []byte("0::/\n")},
		"sys/fs/cgroup/memory.max":  {Data: []byte("16777216\n")},
		"sys/fs/cgroup/memory.stat": {Data: []byte("anon 1048576\nshmem 0\n")},
	}
	m := H200()
	m.Memory = 64 << 20
	d, err := New(Config{Models: []Model{m}})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	group := cgroup.MemoryLimit(root)
	d.commitment.limit = func() *cgroup.Limit { return group }
	x, err := d.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	for _, kind := range []gpu.Kind{gpu.KindDevice, gpu.KindVirtual} {
		if _, err := x.Alloc(kind, 17<<20, 0); !errors.Is(err, gpu.ErrOutOfMemory) || !strings.Contains(err.Error(), "cgroup") {
			t.Errorf("%v: 17 MiB of 16: %v", kind, err)
		}
	}
	for range 3 {
		a, err := x.Alloc(gpu.KindDevice, 10<<20, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := x.Alloc(gpu.KindDevice, 8<<20, 0); !errors.Is(err, gpu.ErrOutOfMemory) || !strings.Contains(err.Error(), "leaves 6291456") {
			t.Errorf("8 MiB beside 10 of 16: %v", err)
		}
		if err := x.Free(a); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := x.Alloc(gpu.KindDevice, 65<<20, 0); !errors.Is(err, gpu.ErrOutOfMemory) || !strings.Contains(err.Error(), "67108864 bytes free") {
		t.Errorf("more than the GPU has: %v", err)
	}
	root["sys/fs/cgroup/memory.stat"] = &fstest.MapFile{Data: []byte("anon 17825792\n")}
	if _, err := x.Alloc(gpu.KindDevice, 12<<20, 0); err == nil || !strings.Contains(err.Error(), "leaves 0") {
		t.Errorf("the processes of the group use all of it: %v", err)
	}
}
