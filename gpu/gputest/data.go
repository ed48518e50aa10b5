package gputest

import (
	"bytes"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
)

// pattern is n pseudo-random bytes for a seed.
func pattern(seed, n int) []byte {
	b := make([]byte, n)
	x := uint32(seed)*2654435761 + 1
	for i := range b {
		x = x*1664525 + 1013904223
		b[i] = byte(x >> 24)
	}
	return b
}

// read is n bytes at a.
func (b *bench) read(a gpu.Addr, n int) []byte {
	b.Helper()
	out := make([]byte, n)
	b.must(b.dev.CopyOut(out, a))
	return out
}

// contains asserts the contents of the memory at a.
func (b *bench) contains(step string, a gpu.Addr, want []byte) {
	b.Helper()
	b.equal(step, bytes.Equal(b.read(a, len(want)), want), true)
}

// pages is plain host memory with the given protection, filled with a pattern.
func pages(t testing.TB, n, prot int) []byte {
	t.Helper()
	return mapping(t, -1, n, prot, unix.MAP_PRIVATE|unix.MAP_ANON)
}

func mapping(t testing.TB, fd, n, prot, flags int) []byte {
	t.Helper()
	b, err := unix.Mmap(fd, 0, n, unix.PROT_READ|unix.PROT_WRITE, flags)
	if err != nil {
		t.Fatalf("mmap: %v", err)
	}
	copy(b, pattern(n, n))
	if err := unix.Mprotect(b, prot); err != nil {
		t.Fatalf("mprotect: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Munmap(b); err != nil {
			t.Errorf("munmap: %v", err)
		}
	})
	return b
}

const rw = unix.PROT_READ | unix.PROT_WRITE

// addr is the address of host memory as the driver takes it.
func addr(b []byte) gpu.Addr { return gpu.HostAddr(b) }

func host(b []byte) uintptr { return uintptr(gpu.HostAddr(b)) }

// patience limits the wait for a broken driver. What it limits takes no time on
// a working one.
const patience = 2 * time.Minute

// finishes reports whether do returns.
func finishes(do func()) bool {
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
	}()
	select {
	case <-done:
		return true
	case <-time.After(patience):
		return false
	}
}

// finished asserts that the stream finishes its work.
func (b *bench) finished(step string, s gpu.Stream) {
	b.Helper()
	var err error
	if !finishes(func() { err = s.Synchronize() }) {
		b.Fatalf("%s: the stream hangs", step)
	}
	b.ok(step, err)
}
