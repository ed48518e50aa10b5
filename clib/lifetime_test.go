package clib_test

import (
	"path/filepath"
	"testing"
)

// TestLifetime: what opening, closing and ending a process answer, in many orders.
func TestLifetime(t *testing.T) {
	lib := libraries(t)
	exe := compile(t, "lifetime.c")
	r := run(t, lib, "sh", "testdata/lifetime.sh", exe, filepath.Join(t.TempDir(), "data"))
	if r.status != 0 || r.stderr != "" {
		t.Errorf("status %d: %s", r.status, r.stderr)
	}
	golden(t, "lifetime.txt", r.stdout)
}
