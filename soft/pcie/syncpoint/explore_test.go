package syncpoint

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
)

// Every order is tried exactly once.
func TestExploreTriesEveryOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p Points
		seen := map[string]bool{}
		step := func(id uint64) func() {
			return func() {
				p.At("other", id) // nobody stops here
				p.At("a step", id)
			}
		}
		orders, err := p.Explore("a ", synctest.Wait, func() []func() {
			return []func(){step(0), step(1), step(2)}
		}, func(trace []string) error {
			key := strings.Join(trace, " ")
			if seen[key] {
				t.Errorf("%s came twice", key)
			}
			seen[key] = true
			return nil
		})
		// Two steps of three actors interleave in 6!/(2!2!2!) ways.
		if err != nil || orders != 90 || len(seen) != 90 {
			t.Errorf("%d orders, %d of them different, %v; want 90", orders, len(seen), err)
		}
	})
}

func TestExploreReportsTheOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p Points
		bad := errors.New("bad")
		_, err := p.Explore("", synctest.Wait, func() []func() {
			return []func(){func() { p.At("x", 1) }, func() { p.At("y", 2) }}
		}, func(trace []string) error {
			if trace[0] == "start/1" {
				return bad
			}
			return nil
		})
		if !errors.Is(err, bad) || !strings.Contains(err.Error(), "start/1") {
			t.Errorf("got %v", err)
		}
	})
}

func TestExploreNoticesOtherActors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p Points
		n := 0
		_, err := p.Explore("", synctest.Wait, func() []func() {
			n++
			list := []func(){func() { p.At("x", 1) }, func() { p.At("y", 2) }}
			if n > 1 {
				list = append(list, func() {})
			}
			return list
		}, func([]string) error { return nil })
		if err == nil || !strings.Contains(err.Error(), "actors differ") {
			t.Errorf("got %v", err)
		}
	})
}
