package clib_test

import (
	"testing"
)

// TestArchive runs the example of a file system in user space.
func TestArchive(t *testing.T) {
	r := culvertRun(t, t.TempDir(), "archive")
	diff(t, "archive", r.stdout+r.stderr, `read 9437189 bytes
wrote 9437189 bytes
members are equal
read across the end: 7 bytes
write behind the end: -1, No space left on device
`)
	if r.status != 0 {
		t.Errorf("status %d", r.status)
	}
}

// TestUserSpaceTables: wrong tables are refused, and what the functions answer is what
// the caller gets.
func TestUserSpaceTables(t *testing.T) { callByCall(t, "userspace") }
