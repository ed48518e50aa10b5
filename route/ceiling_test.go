package route

import (
	"context"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A ceiling that was measured outlives the process, and one that makes no sense
// is not kept.
func TestCeilingsAreKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cache", "ceilings.json")
	l, other := Link{"GPU-1", "580", "6.18"}, Link{"GPU-1", "590", "6.18"}
	c := &ceilingCache{path: path}
	early := c.on(l)
	c.keep(l, Read, 55e9)
	for _, bad := range []float64{0, -1, math.NaN(), math.Inf(1)} {
		c.keep(l, Read, bad)
	}
	if early.of(Read) != 55e9 || early.of(Write) != 0 {
		t.Errorf("who asked early sees %v and %v", early.of(Read), early.of(Write))
	}
	next := &ceilingCache{path: path}
	if got := next.on(l); got.of(Read) != 55e9 || got.of(Write) != 0 {
		t.Errorf("another process sees %v and %v", got.of(Read), got.of(Write))
	}
	if next.on(other).of(Read) != 0 {
		t.Error("another driver has the same ceiling")
	}
	for _, text := range []string{"", "{", `[{"gpu":"GPU-1","driver":"580","kernel":"6.18","read_bytes_per_second":-3}]`} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := (&ceilingCache{path: path}).on(l).of(Read); got != 0 {
			t.Errorf("%q gives a ceiling of %v", text, got)
		}
	}
	(&ceilingCache{path: "/proc/nowhere/ceilings.json"}).keep(l, Read, 1) // must not fail
}

// A receipt has its share of the ceiling where one is known, and else says
// nothing.
func TestReceiptShare(t *testing.T) {
	l := NewLadder([]Route{&fake{id: Ring, max: 1 << 40}}, nil)
	run := func() *Receipt {
		res := make([]Receipt, 1)
		if err := l.Plan(nil).Run(context.Background(), []Op{op(1 << 20)}, res); err != nil {
			t.Fatal(err)
		}
		res[0].Time = time.Millisecond // 1.05 GB/s
		return &res[0]
	}
	if r := run(); r.Share() != 0 || strings.Contains(r.String(), "share") {
		t.Errorf("without a ceiling: %v", r)
	}
	l.ceiling = new(ceiling)
	l.ceiling[Read].Store(math.Float64bits(4 * 1.048576e9))
	r := run()
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	if r.Share() != 0.25 || !strings.Contains(r.String(), "rate=1.049GB/s share=0.25 ") && !strings.HasSuffix(r.String(), "share=0.25") ||
		!strings.Contains(string(text), `"share_of_ceiling":0.25`) {
		t.Errorf("%v\n%s", r, text)
	}
	only, err := l.Plan(nil).Only(Ring)
	if err != nil {
		t.Fatal(err)
	}
	res := make([]Receipt, 1)
	if err := only.Run(context.Background(), []Op{op(1)}, res); err != nil || res[0].Ceiling == 0 {
		t.Errorf("with a required route: %v, %v", &res[0], err)
	}
	var sum Receipt
	sum.Add(r)
	sum.Add(r)
	if sum.Share() != 0.25 {
		t.Errorf("of two alike: %v", &sum)
	}
}
