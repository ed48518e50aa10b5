// Package gputest is the suite that every gpu.Driver passes: the software GPU
// in any test run, CUDA on hardware. It asserts results, and the codes that
// bad input must get.
//
// Where CUDA's documents do not say what a driver answers, a case notes the
// answer and asserts nothing: the hardware decides. A run with
// -gputest.record=FILE writes all that was asserted and noted as JSON. Such a
// record of real hardware lies in testdata, and Replay holds the software GPU
// against it.
//
// Some cases lose a context, after which a GPU is of no use until its driver is
// loaded anew. Each of them has a driver of its own, or, where a driver cannot
// be had twice, a process of its own: the test binary once more.
//
// The suite needs nothing but a Linux machine and a driver: kernels are
// embedded, files are made where they are needed. A test binary made with
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

// A testCase has a name for life: records refer to it.
type testCase struct {
	name string
	run  func(*bench)
}

// cases are the cases that leave the GPU as they found it; lostCases do not.
// Those come last that might touch what is not theirs.
func cases() []testCase {
	return slices.Concat(memoryCases, copyCases, registerCases, streamCases, waitCases, eventCases, kernelCases,
		contextCases, exportCases, pairCases)
}

// An Opener gives the driver to test. Where the GPU of a former driver was lost,
// it gives one with a new GPU.
type Opener func(*testing.T) gpu.Driver

// Run runs the suite on GPU 0 of the driver that open returns, and on GPU 1
// where there is one.
func Run(t *testing.T, open Opener) {
	t.Helper()
	runAll(t, open, *recordFile, inDriver(open))
}

// RunInProcesses is Run for a driver that is lost to the whole process when a
// context is.
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

// runAll runs all cases, those that lose a context by means of lose, and saves
// the record after each: a driver that takes the process down leaves a record of
// what came before.
func runAll(t *testing.T, open Opener, save string, lose func(*testing.T, *recorder, testCase)) *recorder {
	t.Helper()
	d := open(t)
	r := newRecorder(t, d)
	keeper, err := d.Open(0) // so that not every case pays for a context
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

// A bench is what a case works on: a device of its own, which is closed (and
// with it all that was allocated) at the end.
type bench struct {
	*testing.T
	drv  gpu.Driver
	dev  gpu.Device
	rec  *recorder
	name string
	lost bool // the case has lost the GPU: nothing can be freed any more
}

func newBench(t *testing.T, d gpu.Driver, r *recorder, name string) *bench {
	dev, err := d.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{T: t, drv: d, dev: dev, rec: r, name: name}
	b.Cleanup(func() {
		if err := dev.Close(); err != nil && !b.lost && gpu.CodeOf(err) != gpu.ErrContextDestroyed {
			t.Errorf("close: %v", err)
		}
	})
	return b
}

// note records the outcome of a call without judging it. An error must carry
// a code.
func (b *bench) note(step string, err error) gpu.Code {
	b.Helper()
	c := gpu.CodeOf(err)
	// CodeOf says ErrUnknown also for errors without a code.
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

// ok asserts success; without it there is no point in going on.
func (b *bench) ok(step string, err error) {
	b.Helper()
	b.note(step, err)
	if err != nil {
		b.Fatalf("%s: %v", step, err)
	}
}

// must is ok for calls that other cases are about.
func (b *bench) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// result records what a call did without judging it.
func (b *bench) result(step string, v any) { b.rec.outcome(b.name+"/"+step, fmt.Sprint(v)) }

// equal asserts a result.
func (b *bench) equal(step string, got, want any) {
	b.Helper()
	b.result(step, got)
	if got != want {
		b.Errorf("%s: %v, want %v", step, got, want)
	}
}

// fact records something that differs between machines and is not compared.
func (b *bench) fact(step string, v any) { b.rec.fact(b.name+"/"+step, fmt.Sprint(v)) }

// needs skips the case, and says in the record why.
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
	a, err := b.dev.Alloc(k, n, 0)
	b.must(err)
	return a
}

func (b *bench) stream() gpu.Stream {
	b.Helper()
	s, err := b.dev.NewStream()
	b.must(err)
	return s
}

func (b *bench) event() gpu.Event {
	b.Helper()
	e, err := b.dev.NewEvent()
	b.must(err)
	return e
}

// apart moves the case to a context of its own: on some driver its calls might
// take the context down, which must not be that of the other cases.
func (b *bench) apart() {
	b.Helper()
	b.dev = b.other()
}

// other is a further context on the same GPU.
func (b *bench) other() gpu.Device {
	b.Helper()
	o, err := b.dev.NewContext(0)
	b.must(err)
	b.Cleanup(func() { _ = o.Close() }) // the case may have closed or lost it
	return o
}
