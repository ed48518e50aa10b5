package ring

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/lab/inside"
)

// TestLabMemoryNodes: on a machine with two memory nodes the pinned memory is on the node
// of the GPU, whatever that is, and files are read by threads there.
func TestLabMemoryNodes(t *testing.T) {
	inside.Wanted(t, "CULVERT_WANT_NODES")
	f := newFile(t, noise(1, 32<<20))
	for id, node := range map[string]int{"far": 0, "near": 1} {
		t.Run(id, func(t *testing.T) {
			dir, err := inside.PCI(id)
			if err != nil {
				t.Fatal(err)
			}
			if b, err := os.ReadFile(filepath.Join(dir, "numa_node")); err != nil || strings.TrimSpace(string(b)) != strconv.Itoa(node) {
				t.Fatalf("the device is on node %s, %v", b, err)
			}
			runtime.LockOSThread() // the caller reads, too, wherever it is
			defer runtime.UnlockOSThread()
			cpus := &cpuLog{caller: unix.Gettid()}
			r, err := New(&sitedGPU{nullGPU{t: t}, filepath.Base(dir)}, Config{Workers: 4, Slot: 256 << 10, sys: cpus})
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			for range 4 {
				if _, err := run1(r, Request{Buffered: f.buffered, Direct: -1, Addr: 4096, Len: 32 << 20}); err != nil {
					t.Fatal(err)
				}
			}
			list, err := os.ReadFile("/sys/devices/system/node/node" + strconv.Itoa(node) + "/cpulist")
			if err != nil {
				t.Fatal(err)
			}
			local := parseCPUs(strings.TrimSpace(string(list)))
			if len(local) == 0 || len(cpus.seen) == 0 {
				t.Fatalf("CPUs %v of the node, reads on %v", local, cpus.seen)
			}
			for _, cpu := range cpus.seen {
				if !slices.Contains(local, cpu) {
					t.Errorf("read on CPU %d, those of the node are %v", cpu, local)
				}
			}
			for _, s := range r.pool.slabs {
				for at, on := range nodesOf(t, s.addr, 64) {
					if on != node {
						t.Fatalf("page %d of a slab is on node %d, the GPU on %d", at, on, node)
					}
				}
			}
		})
	}
}

// A sitedGPU is in a slot of the machine.
type sitedGPU struct {
	nullGPU
	pci string
}

func (g *sitedGPU) Info() gpu.Info { return gpu.Info{Name: "null", PCI: g.pci} }

// A cpuLog is the kernel, and knows on which CPUs workers have read.
type cpuLog struct {
	kernel
	caller int // its thread
	mu     sync.Mutex
	seen   []int
}

func (l *cpuLog) Pread(fd int, p []byte, off int64) (int, error) {
	var cpu uint32
	unix.Syscall(unix.SYS_GETCPU, uintptr(unsafe.Pointer(&cpu)), 0, 0)
	l.mu.Lock()
	if unix.Gettid() != l.caller && !slices.Contains(l.seen, int(cpu)) {
		l.seen = append(l.seen, int(cpu))
	}
	l.mu.Unlock()
	return l.kernel.Pread(fd, p, off)
}

// nodesOf returns the memory nodes of n pages.
func nodesOf(t *testing.T, a gpu.Addr, n int) []int {
	t.Helper()
	pages, status := make([]uintptr, n), make([]int32, n)
	for i := range pages {
		pages[i] = uintptr(a) + uintptr(i)*page
	}
	_, _, errno := unix.Syscall6(unix.SYS_MOVE_PAGES, 0, uintptr(n), uintptr(unsafe.Pointer(&pages[0])), 0, uintptr(unsafe.Pointer(&status[0])), 0)
	runtime.KeepAlive(pages)
	if errno != 0 {
		t.Fatal(errno)
	}
	nodes := make([]int, n)
	for i, s := range status {
		nodes[i] = int(s)
	}
	return nodes
}
