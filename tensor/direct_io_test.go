package tensor

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
)

// TestBufferInHugePages: the kernel is asked for huge pages, from the first byte of a
// large buffer on, and the whole buffer can be used.
func TestBufferInHugePages(t *testing.T) {
	if _, err := os.Stat("/sys/kernel/mm/transparent_hugepage"); err != nil {
		t.Skip("the kernel has no huge pages")
	}
	for _, n := range []int{hugePage, defaultChunk, 3*hugePage + pageSize} {
		buf, free, err := mappedBuffer(n)
		if err != nil {
			t.Fatal(err)
		}
		if len(buf) != n || gpu.HostAddr(buf)%hugePage != 0 {
			t.Errorf("%d bytes: the buffer has %d at %#x", n, len(buf), gpu.HostAddr(buf))
		}
		if flags := mappingFlags(t, gpu.HostAddr(buf)); !strings.Contains(flags, " hg ") {
			t.Errorf("%d bytes: the mapping has flags %q, without hg", n, flags)
		}
		for i := 0; i < n; i += pageSize {
			buf[i] = 1
		}
		buf[n-1] = 1
		free()
		if err := unix.Madvise(buf[:pageSize], unix.MADV_NORMAL); err == nil {
			t.Errorf("%d bytes: still mapped after free", n)
		}
	}
}

// mappingFlags returns the flags of the mapping at an address.
func mappingFlags(t *testing.T, at gpu.Addr) string {
	t.Helper()
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		t.Skip(err)
	}
	defer f.Close()
	inside := false
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var from, to gpu.Addr
		if n, _ := fmt.Sscanf(lines.Text(), "%x-%x ", &from, &to); n == 2 {
			inside = from <= at && at < to
		}
		if flags, ok := strings.CutPrefix(lines.Text(), "VmFlags:"); ok && inside {
			return flags
		}
	}
	t.Fatalf("%#x is not mapped", at)
	return ""
}
