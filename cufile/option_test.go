package cufile_test

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/route"
)

// What is decided is logged, once, with the reason; what is silent by default
// stays so.
func TestLogger(t *testing.T) {
	t.Setenv("CULVERT_NVFS", "0")
	var log bytes.Buffer
	l := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	m := softMachine(t, softConfig())
	f := newFixtureOn(t, m, 1<<20, cufile.WithLogger(l))
	h, buf := f.open(os.O_RDWR), f.buffer(1<<20)
	for range 2 {
		if _, err := h.WriteAt(context.Background(), buf.Span(), 0); err != nil {
			t.Fatal(err)
		}
	}
	plan, err := h.Plan(0)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]int{
		`msg="cufile: register" file=` + f.path: 1,
		`msg="cufile: register buffer" memory=`: 1,
		`msg="cufile: plan" file=` + f.path:     1,
		`nvfs: consent`:                         1,
	}
	if plan.Best() == route.Bar { // which takes no writes
		want[`msg="cufile: fallback" file=`+f.path] = 2
		want[`route=ring`] = 2
		want[`bar: direction: `] = 2
	}
	for text, n := range want {
		if got := strings.Count(log.String(), text); got != n {
			t.Errorf("%q is there %d times, want %d", text, got, n)
		}
	}
	if t.Failed() {
		t.Log(log.String())
	}
}

// What is direct is what a route says that it is: on the software machine
// nvidia-fs, unless it is turned off.
func TestProperties(t *testing.T) {
	t.Run("nvidia-fs", func(t *testing.T) { testProperties(t, 1<<4) })
	t.Run("without", func(t *testing.T) {
		t.Setenv("CULVERT_NVFS", "0")
		testProperties(t, 0)
	})
}

func testProperties(t *testing.T, direct uint32) {
	t.Helper()
	m := softMachine(t, softConfig())
	d := cufile.New(m)
	closed := d.Properties()
	if err := d.Open(); err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	p := d.Properties()
	if p.NVFS == [2]int{} || p.NVFS != closed.NVFS {
		t.Errorf("nvidia-fs %v, closed %v: programs take 0.0 for no GPUDirect Storage", p.NVFS, closed.NVFS)
	}
	if p.Status != direct || closed.Status != 0 {
		t.Errorf("status %#x, closed %#x, want %#x", p.Status, closed.Status, direct)
	}
	if p.Features&(1<<1) == 0 {
		t.Errorf("features %#x", p.Features)
	}
}
