package cufile_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/machine"
	"github.com/culvert-io/culvert/route"
)

// TestClosedFileAnswersForNoOther lets another file have the numbers of the
// descriptors that a closed one had.
func TestClosedFileAnswersForNoOther(t *testing.T) {
	f := newFixture(t, softConfig(), 4096)
	h := f.open(os.O_RDWR)
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(t.TempDir(), "other")
	if err := os.WriteFile(other, make([]byte, 77), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 8 {
		o, err := os.Open(other)
		if err != nil {
			t.Fatal(err)
		}
		defer o.Close()
	}
	size, err := h.Size()
	wantCode(t, "size", err, cufile.HandleNotRegistered)
	if size != 0 {
		t.Errorf("a closed file has %d bytes", size)
	}
	wantCode(t, "sync", h.Sync(), cufile.HandleNotRegistered)
	_, err = h.Plan(0)
	wantCode(t, "plan", err, cufile.HandleNotRegistered)
	wantCode(t, "require", h.Require(0, route.Host), cufile.HandleNotRegistered)
	wantCode(t, "require at least", h.RequireAtLeast(0, route.Host), cufile.HandleNotRegistered)
}

// TestPlanOpensNoClosedDriver: a GPU that is opened behind the last Close stays
// open for ever.
func TestPlanOpensNoClosedDriver(t *testing.T) {
	f := newFixture(t, softConfig(), 4096)
	h := f.open(os.O_RDONLY)
	if err := f.drv.Close(); err != nil {
		t.Fatal(err)
	}
	before := openDescriptors(t)
	_, err := h.Plan(0)
	wantCode(t, "plan", err, cufile.HandleNotRegistered)
	if after := openDescriptors(t); after > before {
		t.Errorf("%d descriptors are open, there were %d", after, before)
	}
}

func openDescriptors(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

func TestInvalidRequirements(t *testing.T) {
	f := newFixture(t, softConfig(), 4096)
	h := f.open(os.O_RDONLY)
	_, err := h.Plan(-1)
	wantCode(t, "plan for GPU -1", err, cufile.DeviceNotFound)
	wantCode(t, "require on GPU -1", h.Require(-1, route.Host), cufile.DeviceNotFound)
	wantCode(t, "require no route", h.Require(0, route.Host+1), cufile.InvalidValue)
	wantCode(t, "require at least no route", h.RequireAtLeast(0, route.Host+1), cufile.InvalidValue)
	before, err := h.Plan(0)
	if err != nil {
		t.Fatal(err)
	}
	if len(before.Usable()) < 2 {
		t.Fatalf("a wish that was refused has left %v", before.Usable())
	}
	if err := h.Require(0, route.Host); err != nil {
		t.Fatal(err)
	}
	if err := h.Require(0, route.None); err != nil {
		t.Fatal(err)
	}
	if p, err := h.Plan(0); err != nil || len(p.Usable()) != len(before.Usable()) {
		t.Errorf("route.None has not taken the wish back: %v, %v", p.Usable(), err)
	}
}

// TestNothingWhereSomethingIsWanted holds that what is left out is an error.
func TestNothingWhereSomethingIsWanted(t *testing.T) {
	_, err := cufile.Open(nil)
	wantCode(t, "no machine", err, cufile.InvalidValue)
	_, err = cufile.Open(&machine.Machine{})
	wantCode(t, "a machine of nothing", err, cufile.InvalidValue)

	f := newFixture(t, softConfig(), 4096, cufile.WithLogger(nil))
	_, err = f.drv.Register(nil)
	wantCode(t, "no file", err, cufile.InvalidValue)

	h, mem := f.open(os.O_RDWR), f.buffer(4096).Span()
	var none context.Context
	_, err = h.ReadAt(none, mem, 0)
	wantCode(t, "read without a context", err, cufile.InvalidValue)
	_, err = h.WritevAt(none, []gpu.Span{mem}, 0)
	wantCode(t, "vector without a context", err, cufile.InvalidValue)
	res := make([]route.Receipt, 1)
	err = f.drv.Do(none, []cufile.Request{{File: h, Mem: mem}}, res)
	wantCode(t, "batch without a context", err, cufile.InvalidValue)
	err = f.drv.Do(t.Context(), []cufile.Request{{Dir: route.Write + 1, File: h, Mem: mem}}, res)
	wantCode(t, "a third direction", err, cufile.InvalidValue)
}

// TestCancelledAlike holds single transfers, vectors and batches to one answer.
func TestCancelledAlike(t *testing.T) {
	f := newFixture(t, softConfig(), 4096)
	h, mem := f.open(os.O_RDONLY), f.buffer(4096).Span()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, one := h.ReadAt(ctx, mem, 0)
	_, vector := h.ReadvAt(ctx, []gpu.Span{mem}, 0)
	batch := f.drv.Do(ctx, []cufile.Request{{File: h, Mem: mem}}, make([]route.Receipt, 1))
	for what, err := range map[string]error{"read": one, "vector": vector, "batch": batch} {
		if _, ours := errors.AsType[*cufile.Error](err); ours || !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v, want the context's error and no code", what, err)
		}
	}
}

func wantCode(t *testing.T, what string, err error, want cufile.Code) {
	t.Helper()
	if got := cufile.CodeOf(err); got != want {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}
