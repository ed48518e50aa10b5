package rig

import (
	"bytes"

	"github.com/culvert-io/culvert/gpu"
)

// T is what a test, a benchmark and a property have in common.
type T interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
	Errorf(string, ...any)
}

// A Tested machine ends its test at the first thing that goes wrong.
type Tested struct {
	*Rig
	T T
}

// NewTested builds a machine for a test.
func NewTested(t T, cfg Config) Tested {
	t.Helper()
	r, err := New(cfg)
	w := Tested{r, t}
	w.Check(err)
	return w
}

// Check ends the test on an error.
func (w Tested) Check(err error) {
	w.T.Helper()
	if err != nil {
		w.T.Fatal(err)
	}
}

// Alloc allocates n bytes of GPU memory.
func (w Tested) Alloc(n uint64) uint64 {
	w.T.Helper()
	a, err := w.GPU.Alloc(gpu.KindDevice, n, 0)
	w.Check(err)
	return uint64(a)
}

// Free frees what Alloc returned.
func (w Tested) Free(a uint64) {
	w.T.Helper()
	w.Check(w.GPU.Free(gpu.Addr(a)))
}

// Fill sets n bytes of GPU memory.
func (w Tested) Fill(a uint64, n int, b byte) {
	w.T.Helper()
	w.Check(w.GPU.CopyIn(gpu.Addr(a), bytes.Repeat([]byte{b}, n)))
}

// Read returns n bytes of GPU memory.
func (w Tested) Read(a uint64, n int) []byte {
	w.T.Helper()
	p := make([]byte, n)
	w.Check(w.GPU.CopyOut(p, gpu.Addr(a)))
	return p
}
