package gpu_test

import (
	"bytes"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/gpu/kernels"
	softgpu "github.com/culvert-io/culvert/soft/gpu"
)

type fataler interface {
	Helper()
	Fatal(...any)
}

func must(t fataler, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func alloc(t fataler, x gpu.Device, k gpu.Kind, n uint64) gpu.Addr {
	t.Helper()
	a, err := x.Alloc(k, n, 0)
	must(t, err)
	return a
}

func free(t fataler, x gpu.Device, a gpu.Addr) {
	t.Helper()
	must(t, x.Free(a))
}

func read(t fataler, x gpu.Device, a gpu.Addr, n int) []byte {
	t.Helper()
	b := make([]byte, n)
	must(t, x.CopyOut(b, a))
	return b
}

func freeMemory(t fataler, x gpu.Device) uint64 {
	t.Helper()
	n, _, err := x.MemInfo()
	must(t, err)
	return n
}

func wantCode(t testing.TB, what string, err error, c gpu.Code) {
	t.Helper()
	if gpu.CodeOf(err) != c {
		t.Errorf("%s: %v, want %s", what, err, c.Name())
	}
}

func stream(t fataler, x gpu.Device) gpu.Stream {
	t.Helper()
	s, err := x.NewStream()
	must(t, err)
	return s
}

func kernel(t fataler, x gpu.Device, name string) gpu.Func {
	t.Helper()
	m, err := x.Load(kernels.PTX)
	must(t, err)
	f, err := m.Func(name)
	must(t, err)
	return f
}

// join is the content of segments.
func join(segs [][]byte) []byte { return bytes.Join(segs, nil) }

// pages is plain host memory.
func pages(t testing.TB, n int) []byte {
	t.Helper()
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	must(t, err)
	return b
}

func unmap(t testing.TB, b []byte) {
	t.Helper()
	must(t, unix.Munmap(b))
}

var one = gpu.Dim{X: 1}

// tiny is an H200 with so little memory that a test can use all of it.
func tiny(n uint64) []softgpu.Model {
	m := softgpu.H200()
	m.Memory = n
	return []softgpu.Model{m}
}
