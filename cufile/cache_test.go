package cufile_test

import (
	"os"
	"testing"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/route"
)

// TestSetCache checks the arguments; package ring tests the effect.
func TestSetCache(t *testing.T) {
	f := newFixture(t, softConfig(), 1<<20).open(os.O_RDWR)
	for _, m := range []route.CacheMode{route.CacheKeep, route.CacheAvoid, route.CacheAuto} {
		if err := f.SetCache(m, 1<<30); err != nil {
			t.Errorf("%v: %v", m, err)
		}
	}
	for _, bad := range []error{f.SetCache(9, 0), f.SetCache(route.CacheAuto, -1)} {
		if cufile.CodeOf(bad) != cufile.InvalidValue {
			t.Errorf("bad arguments: %v", bad)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := f.SetCache(route.CacheAuto, 0); cufile.CodeOf(err) != cufile.HandleNotRegistered {
		t.Errorf("after Close: %v", err)
	}
}
