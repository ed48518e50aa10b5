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
// The suite needs nothing but a Linux machine and a driver: kernels are
// embedded, files are made where they are needed. A test binary made with
//
//	CGO_ENABLED=0 go test -c ./gpu/cuda
//
// runs it on a machine without Go.
package gputest

import (
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

// cases are all cases, those last that may leave the process in a bad state.
func cases() []testCase {
	return slices.Concat(memoryCases, copyCases, registerCases, streamCases, waitCases, eventCases, kernelCases,
		contextCases, exportCases, pairCases, lostCases)
}

// Run runs the suite on GPU 0 of the driver that open returns, and on GPU 1
// where there is one.
func Run(t *testing.T, open func(*testing.T) gpu.Driver) {
	d := open(t)
	r := newRecorder(t, d)
	runCases(t, d, r, *recordFile)
}

// runCases runs all cases and saves the record after each, so that a driver
// that takes the process down leaves a record of what came before.
func runCases(t *testing.T, d gpu.Driver, r *recorder, save string) {
	keeper, err := d.Open(0) // so that not every case pays for a context
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := keeper.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}()
	for _, c := range cases() {
		t.Run(c.name, func(t *testing.T) {
			c.run(newBench(t, d, r, c.name))
		})
		r.save(t, save)
	}
}

// A bench is what a case works on: a device of its own, which is closed (and
// with it all that was allocated) at the end.
type bench struct {
	*testing.T
	drv  gpu.Driver
	dev  gpu.Device
	rec  *recorder
	name string
}

func newBench(t *testing.T, d gpu.Driver, r *recorder, name string) *bench {
	dev, err := d.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{T: t, drv: d, dev: dev, rec: r, name: name}
	b.Cleanup(func() {
		if err := dev.Close(); err != nil && gpu.CodeOf(err) != gpu.ErrContextDestroyed {
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
	if c == gpu.ErrUnknown && err != nil {
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
