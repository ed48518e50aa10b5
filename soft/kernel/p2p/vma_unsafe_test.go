package p2p

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/dev"
)

var _ dev.Mapping = (*VMA)(nil)

// load reads a byte and reports whether that faulted.
func load(b []byte, i int) (v byte, fault bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() { fault = recover() != nil }()
	return b[i], false
}

func mappings(t *testing.T) int {
	t.Helper()
	b, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(b), "culvert-gpu0") + strings.Count(string(b), "culvert-void")
}

const rw = unix.PROT_READ | unix.PROT_WRITE

func TestCPUMapping(t *testing.T) {
	for _, scatter := range []bool{false, true} {
		r := newFixture(t, setup{mapped: true, scatter: scatter})
		before := mappings(t)
		va := r.alloc(2 << 20)
		r.fill(va, 2<<20, 5)
		table, _ := r.pin(va+PageSize, 8*PageSize)
		v, err := r.rm.Mmap(table, 4096, 3*PageSize, rw)
		r.check(err)
		mem := dev.Bytes(v)
		for i := range mem {
			mem[i] = byte(i >> 8)
		}
		got := r.read(va+PageSize, 8*PageSize)
		for i, b := range got {
			want := byte(5)
			if j := i - 4096; j >= 0 && j < len(mem) {
				want = byte(j >> 8)
			}
			if b != want {
				t.Fatalf("scatter %v: byte %d is %d, want %d", scatter, i, b, want)
			}
		}
		r.check(r.dev.CopyIn(gpu.Addr(va+PageSize+4096), []byte{0xab}))
		if mem[0] != 0xab {
			t.Error("the mapping does not see what the GPU writes")
		}
		r.put(va+PageSize, table)
		if _, fault := load(mem, 0); !fault {
			t.Error("memory can be read after put")
		}
		if _, err := r.rm.Mmap(table, 0, 4096, rw); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("map after put: %v", err)
		}
		r.check(v.Unmap())
		r.check(v.Unmap())
		r.free(va)
		if n := mappings(t); n != before {
			t.Errorf("%d mappings are left over", n-before)
		}
		r.close()
	}
}

func TestCPUMappingRevoked(t *testing.T) {
	r := newFixture(t, setup{mapped: true})
	defer r.close()
	va := r.alloc(2 << 20)
	r.fill(va, 2<<20, 5)
	table, calls := r.pin(va, 2*PageSize)
	v, err := r.rm.Mmap(table, 0, 2*PageSize, rw)
	r.check(err)
	zapped, err := r.rm.Mmap(table, 0, PageSize, unix.PROT_READ)
	r.check(err)
	zapped.Zap()
	zapped.Zap()
	if _, fault := load(dev.Bytes(zapped), 0); !fault {
		t.Error("a zapped mapping can be read")
	}
	unmapped, err := r.rm.Mmap(table, 0, PageSize, rw)
	r.check(err)
	r.check(unmapped.Unmap())
	if b, fault := load(dev.Bytes(v), 0); fault || b != 5 {
		t.Errorf("read %d, fault %v", b, fault)
	}
	r.free(va)
	if *calls != 1 {
		t.Errorf("called back %d times", *calls)
	}
	for _, i := range []int{0, PageSize, 2*PageSize - 1} {
		if _, fault := load(dev.Bytes(v), i); !fault {
			t.Errorf("byte %d can be read after the revoke", i)
		}
	}
	r.put(va, table)
	r.check(v.Unmap())
	r.check(zapped.Unmap())
}

func TestBadCPUMappings(t *testing.T) {
	r := newFixture(t, setup{mapped: true})
	defer r.close()
	va := r.alloc(2 << 20)
	table, _ := r.pin(va, 2*PageSize)
	for _, tc := range []struct{ off, n uint64 }{{0, 0}, {1, 4096}, {0, 4097}, {0, 3 * PageSize}, {2 * PageSize, 4096}, {1 << 63, 4096}, {4096, 1<<64 - 4096}} {
		if _, err := r.rm.Mmap(table, tc.off, tc.n, rw); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("[%d:+%d]: %v", tc.off, tc.n, err)
		}
	}
	r.put(va, table)
	heap := newFixture(t, setup{})
	defer heap.close()
	va = heap.alloc(2 << 20)
	table, _ = heap.pin(va, PageSize)
	if _, err := heap.rm.Mmap(table, 0, PageSize, rw); !errors.Is(err, syscall.ENODEV) {
		t.Errorf("heap memory: %v", err)
	}
	heap.put(va, table)
}

// The signal is SIGBUS at the address touched, as on hardware, not SIGSEGV. It
// ends the process, so another one has to show it.
func TestZappedMappingRaisesSIGBUS(t *testing.T) {
	if os.Getenv("P2P_TEST_CRASH") != "" {
		r := newFixture(t, setup{mapped: true})
		va := r.alloc(2 << 20)
		table, _ := r.pin(va, PageSize)
		v, err := r.rm.Mmap(table, 0, PageSize, rw)
		r.check(err)
		r.free(va)
		dev.Bytes(v)[100] = 1
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestZappedMappingRaisesSIGBUS$")
	cmd.Env = append(os.Environ(), "P2P_TEST_CRASH=1")
	out, err := cmd.CombinedOutput()
	if err == nil || !bytes.Contains(out, []byte("signal SIGBUS: bus error code=0x2")) {
		t.Errorf("the other process ended with %v:\n%s", err, out)
	}
}
