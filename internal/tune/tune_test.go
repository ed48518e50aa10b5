package tune

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/culvert-io/culvert/gpu"
)

func TestRate(t *testing.T) {
	var r Rate
	if got := r.Get(5); got != 5 {
		t.Errorf("empty rate: %v, want the initial 5", got)
	}
	r.Add(1000, time.Second)
	if got := r.Get(5); got != 1000 {
		t.Errorf("after one observation: %v, want 1000", got)
	}
	for range 100 {
		r.Add(2000, time.Second)
	}
	if got := r.Get(5); got < 1990 || got > 2000 {
		t.Errorf("after many observations of 2000: %v", got)
	}
	r.Add(0, time.Second)
	r.Add(1, 0)
	if got := r.Get(5); got < 1990 {
		t.Errorf("an observation without bytes or time counted: %v", got)
	}
}

// TestChoiceExplores checks the limits on exploring: none of the first transfer, and
// at most 1 % of all bytes.
func TestChoiceExplores(t *testing.T) {
	var c Choice
	const size = 1 << 20
	var total, other int64
	for i := range 10_000 {
		n := int64(size + i%7*4096)
		m := c.Pick(n)
		if i == 0 && m != Default {
			t.Fatal("the first transfer explored")
		}
		total += n
		if m != Default {
			other += n
		}
		c.Add(m, n, time.Duration(n)*time.Duration(1+m)) // the alternative is slower
		if other*exploreShare > total {
			t.Fatalf("after %d transfers: %d of %d bytes explored", i+1, other, total)
		}
	}
	if other == 0 {
		t.Error("the alternative was never tried")
	}
}

// TestChoiceEarly checks that a default which is a guess is compared early, and then no
// more often than any other.
func TestChoiceEarly(t *testing.T) {
	c := Choice{Early: 3}
	var at []int
	for i := range 100 {
		m := c.Pick(1 << 20)
		if m != Default {
			at = append(at, i)
		}
		c.Add(m, 1<<20, time.Millisecond*time.Duration(1+m)) // the alternative is slower
	}
	if want := []int{7, 15, 23}; !slices.Equal(at, want) {
		t.Errorf("transfers %v tried the alternative, want %v", at, want)
	}
}

func TestChoiceFindsTheFaster(t *testing.T) {
	var c Choice
	picked := map[Method]int{}
	for i := range 10_000 {
		m := c.Pick(1 << 20)
		c.Add(m, 1<<20, time.Millisecond/time.Duration(1+m)) // the alternative is faster
		if i > 1000 {
			picked[m]++
		}
	}
	if picked[Alternative] < 95*picked[Default] {
		t.Errorf("picked %v", picked)
	}
	c.Add(Alternative, 1<<20, time.Hour)
	if c.Faster() != Alternative {
		t.Error("one slow transfer decided")
	}
}

func TestCache(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "tune.json")
	here := Subject{GPU: "GPU-1", Kernel: "6.12", FS: "ext4"}
	elsewhere := here
	elsewhere.FS = "xfs"
	c := NewCache(path)
	var got int
	if c.Load("x", here, &got) {
		t.Error("an empty cache has a result")
	}
	if err := c.Store("x", here, 7); err != nil {
		t.Fatal(err)
	}
	if err := NewCache(path).Store("x", elsewhere, 8); err != nil {
		t.Fatal(err)
	}
	if err := c.Store("x", here, 9); err != nil {
		t.Fatal(err)
	}
	later := NewCache(path)
	for s, want := range map[Subject]int{here: 9, elsewhere: 8} {
		if !later.Load("x", s, &got) || got != want {
			t.Errorf("%v: %d, want %d", s, got, want)
		}
	}
	if later.Load("y", here, &got) {
		t.Error("a result of another measurement was found")
	}
	if e, err := later.Entries(); len(e) != 2 || err != nil {
		t.Errorf("%d entries, want 2: %v", len(e), err)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), ".*")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	if err := later.Clear(); err != nil {
		t.Fatal(err)
	}
	if later.Load("x", here, &got) || NewCache(path).Load("x", here, &got) {
		t.Error("a result survived Clear")
	}
	if err := later.Clear(); err != nil {
		t.Errorf("a second Clear: %v", err)
	}
}

// TestCacheIgnores checks that old, foreign and damaged files count as empty.
func TestCacheIgnores(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tune.json")
	s := Subject{GPU: "GPU-1", Kernel: "6.12"}
	if err := NewCache(path).Store("x", s, 7); err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-maxAge - time.Hour).UTC().Format(time.RFC3339)
	at := strings.Index(string(good), `"measured": "`) + len(`"measured": "`)
	for name, text := range map[string]string{
		"version": strings.Replace(string(good), `"version": 1`, `"version": 2`, 1),
		"damaged": string(good[:len(good)/2]),
		"empty":   "",
		"old":     string(good[:at]) + old + string(good[at+len(old):]),
	} {
		if text == string(good) {
			t.Fatalf("%s: the text was not changed", name)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		var got int
		if NewCache(path).Load("x", s, &got) {
			t.Errorf("%s: a result was found", name)
		}
	}
	var got int
	c := NewCache("")
	if err := c.Store("x", s, 7); err != nil || !c.Load("x", s, &got) || got != 7 {
		t.Errorf("without a file: %d, %v", got, err)
	}
}

// TestPinnedRate checks that a measured rate outlives the process, that callers who
// asked before see it, and that an impossible one is not stored.
func TestPinnedRate(t *testing.T) {
	cache := NewCache(filepath.Join(t.TempDir(), "tune.json"))
	old := User
	User = func() *Cache { return cache }
	t.Cleanup(func() { User = old; pinnedRates = pinnedTable{} })
	pinnedRates = pinnedTable{}
	info, root := gpu.Info{UUID: gpu.UUID{1}}, fstest.MapFS{}
	early := Pinned(info, root)
	for _, rate := range []float64{55e9, 0, -1, math.NaN(), math.Inf(1)} {
		if err := StorePinned(info, root, false, rate); err != nil {
			t.Fatal(err)
		}
	}
	if early.Get(false) != 55e9 || early.Get(true) != 0 {
		t.Errorf("who asked early sees %v and %v", early.Get(false), early.Get(true))
	}
	pinnedRates = pinnedTable{} // another process
	if p := Pinned(info, root); p.Get(false) != 55e9 || p.Get(true) != 0 {
		t.Errorf("another process sees %v and %v", p.Get(false), p.Get(true))
	}
	driver := fstest.MapFS{"proc/driver/nvidia/version": {Data: []byte("590\n")}}
	if p := Pinned(info, driver); p.Get(false) != 0 {
		t.Error("another driver has the same rate")
	}
	var none *PinnedRate
	if none.Get(false) != 0 {
		t.Error("no rate is not 0")
	}
}
