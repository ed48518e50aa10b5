package main

import (
	"runtime"
	"testing"
)

// GOMAXPROCS is above the core count, unless the environment sets it.
func TestRaiseMaxProcs(t *testing.T) {
	before := runtime.GOMAXPROCS(0)
	defer runtime.GOMAXPROCS(before)
	t.Setenv("GOMAXPROCS", "3")
	if raiseMaxProcs(); runtime.GOMAXPROCS(0) != before {
		t.Errorf("set by the environment to 3, and raised to %d", runtime.GOMAXPROCS(0))
	}
	t.Setenv("GOMAXPROCS", "")
	if raiseMaxProcs(); runtime.GOMAXPROCS(0) <= before {
		t.Errorf("%d of %d", runtime.GOMAXPROCS(0), before)
	}
}
