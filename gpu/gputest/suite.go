// Package gputest is the conformance suite that every gpu.Driver passes: the
// software GPU in any test run, CUDA on hardware. It asserts results, and the
// codes for invalid input.
//
// Where CUDA's documentation does not define a result, a case notes it and
// asserts nothing: the hardware decides. A run with -gputest.record=FILE writes
// everything that was asserted or noted as JSON. testdata has such a record of
// an H200, and Replay compares the software GPU with it.
//
// Some cases lose a context, after which the driver must be loaded again. Each
// of them has its own driver, or its own process (the test binary again) if a
// process can load the driver only once.
//
// The suite needs only Linux and a driver: kernels are embedded, files are
// created as needed. A test binary made with
//
//	CGO_ENABLED=0 go test -c ./gpu/cuda
//
// runs it on a machine without Go.
package gputest

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/culvert-io/culvert/gpu"
)

// A testCase keeps its name for ever, because records refer to it.
type testCase struct {
	name string
	run  func(*bench)
}

// cases are the cases that do not lose the GPU. Cases that may access foreign
// memory come last.
func cases() []testCase {
	return slices.Concat(memoryCases, copyCases, registerCases, streamCases, waitCases, eventCases, kernelCases,
		contextCases, exportCases, pairCases)
}

// An Opener returns the driver to test. If the GPU of the previous driver was
// lost, it returns one with a new GPU.
type Opener func(*testing.T) gpu.Driver

// Run runs the suite on GPU 0 of the driver that open returns, and on GPU 1 if
// it exists.
func Run(t *testing.T, open Opener) {
	t.Helper()
	runAll(t, open, *recordFile, inDriver(open))
}

// RunInProcesses is Run for a driver that becomes unusable for the whole process
// when a context is lost.
func RunInProcesses(t *testing.T, open Opener) {
	t.Helper()
	if *childFile != "" {
		beChild(t, open)
		return
	}
	runAll(t, open, *recordFile, runChild)
}

// inDriver runs a case with a driver of its own.
func inDriver(open Opener) func(*testing.T, *recorder, testCase) {
	return func(t *testing.T, r *recorder, c testCase) { c.run(newBench(t, open(t), r, c.name)) }
}

// runAll runs all cases, and those that lose a context through lose. It saves
// the record after each, so that a crash keeps the results so far.
func runAll(t *testing.T, open Opener, save string, lose func(*testing.T, *recorder, testCase)) *recorder {
	t.Helper()
	d := open(t)
	r := newRecorder(t, d)
	keeper, err := d.Open(0) // keeps the primary context alive between cases
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cases() {
		t.Run(c.name, func(t *testing.T) { c.run(newBench(t, d, r, c.name)) })
		r.save(t, save)
	}
	if err := keeper.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	for _, c := range lostCases {
		t.Run(c.name, func(t *testing.T) { lose(t, r, c) })
		r.save(t, save)
	}
	return r
}

// A bench is the fixture of a case: its own Device, which is closed at the end,
// with all that was allocated.
type bench struct {
	*testing.T
	drv  gpu.Driver
	dev  gpu.Device
	rec  *recorder
	name string
	lost *bool // the case has lost the GPU: nothing can be freed any more
}

func newBench(t *testing.T, d gpu.Driver, r *recorder, name string) *bench {
	dev, err := d.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{T: t, drv: d, dev: dev, rec: r, name: name, lost: new(bool)}
	b.Cleanup(func() {
		if err := dev.Close(); err != nil && !*b.lost && gpu.CodeOf(err) != gpu.ErrContextDestroyed {
			t.Errorf("close: %v", err)
		}
	})
	return b
}

// note records the outcome of a call and asserts only that an error has a code.
func (b *bench) note(step string, err error) gpu.Code {
	b.Helper()
	c := gpu.CodeOf(err)
	// CodeOf is ErrUnknown for errors without a code, too.
	if err != nil && !errors.Is(err, c) {
		b.Errorf("%s: no code in the error %v", step, err)
	}
	b.rec.outcome(b.name+"/"+step, c.Name())
	return c
}

// want asserts the outcome of a call.
func (b *bench) want(step string, err error, code gpu.Code) {
	b.Helper()
	if got := b.note(step, err); got != code {
		b.Errorf("%s: %v, want %s", step, err, code.Name())
	}
}

// ok asserts success, and ends the case otherwise.
func (b *bench) ok(step string, err error) {
	b.Helper()
	b.note(step, err)
	if err != nil {
		b.Fatalf("%s: %v", step, err)
	}
}

// must is ok for calls that other cases test and record.
func (b *bench) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// result records a result and asserts nothing.
func (b *bench) result(step string, v any) { b.rec.outcome(b.name+"/"+step, fmt.Sprint(v)) }

// equal asserts a result.
func (b *bench) equal(step string, got, want any) {
	b.Helper()
	b.result(step, got)
	if got != want {
		b.Errorf("%s: %v, want %v", step, got, want)
	}
}

// fact records a result that differs between machines. Replay ignores it.
func (b *bench) fact(step string, v any) { b.rec.fact(b.name+"/"+step, fmt.Sprint(v)) }

// needs skips the case unless ok, and records the reason.
func (b *bench) needs(ok bool, what string) {
	b.Helper()
	if !ok {
		b.rec.skip(b.name, "needs "+what)
		b.Skipf("needs %s", what)
	}
}

// alloc allocates memory that the end of the case frees.
func (b *bench) alloc(k gpu.Kind, n uint64) gpu.Addr {
	b.Helper()
	return got(b.dev.Alloc(k, n, 0)).must(b)
}

// An outcome is what a call with one more result returned.
type outcome[T any] struct {
	value T
	err   error
}

func got[T any](v T, err error) outcome[T] { return outcome[T]{v, err} }

// ok is bench.ok, and the value.
func (o outcome[T]) ok(b *bench, step string) T {
	b.Helper()
	b.ok(step, o.err)
	return o.value
}

// must is bench.must, and the value.
func (o outcome[T]) must(b *bench) T {
	b.Helper()
	b.must(o.err)
	return o.value
}

// errOf is the error of a call with one more result.
func errOf[T any](_ T, err error) error { return err }

func (b *bench) pointer(a gpu.Addr) gpu.Pointer {
	b.Helper()
	return got(b.dev.Pointer(a)).must(b)
}

func (b *bench) freeMemory() uint64 {
	b.Helper()
	free, _, err := b.dev.MemInfo()
	b.must(err)
	return free
}

// done reports whether a stream or an event is done.
func (b *bench) done(x interface{ Done() (bool, error) }) bool {
	b.Helper()
	return got(x.Done()).must(b)
}

func (b *bench) stream() gpu.Stream {
	b.Helper()
	return got(b.dev.NewStream()).must(b)
}

func (b *bench) event() gpu.Event {
	b.Helper()
	return got(b.dev.NewEvent()).must(b)
}

// apart moves the case to a context of its own: on some driver its calls might
// destroy the context, which must not be that of the other cases.
func (b *bench) apart() {
	b.Helper()
	b.dev = b.other()
}

// on is the bench with another Device.
func (b *bench) on(d gpu.Device) *bench {
	c := *b
	c.dev = d
	return &c
}

// open is a further Device for the primary context.
func (b *bench) open() gpu.Device {
	b.Helper()
	return got(b.drv.Open(0)).must(b)
}

// other is a further context on the same GPU.
func (b *bench) other() gpu.Device {
	b.Helper()
	o := got(b.dev.NewContext(0)).must(b)
	b.Cleanup(func() { _ = o.Close() }) // the case may have closed or lost it
	return o
}
