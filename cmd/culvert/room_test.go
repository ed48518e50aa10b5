package main

import (
	"runtime"
	"testing"
)

// There is room for goroutines in calls, unless somebody has said how much.
func TestMakeRoom(t *testing.T) {
	before := runtime.GOMAXPROCS(0)
	defer runtime.GOMAXPROCS(before)
	t.Setenv("GOMAXPROCS", "3")
	if makeRoom(); runtime.GOMAXPROCS(0) != before {
		t.Errorf("asked for by the environment, and made %d", runtime.GOMAXPROCS(0))
	}
	t.Setenv("GOMAXPROCS", "")
	if makeRoom(); runtime.GOMAXPROCS(0) <= before {
		t.Errorf("%d of %d", runtime.GOMAXPROCS(0), before)
	}
}
