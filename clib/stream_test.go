package clib_test

import (
	"path/filepath"
	"testing"
)

// TestStreams: stream I/O needs no libcuda in a program with the runtime, and wild
// pointers return codes.
func TestStreams(t *testing.T) {
	r := run(t, libraries(t), compile(t, "streams.c", "-Wl,--as-needed"), filepath.Join(t.TempDir(), "data"))
	golden(t, "streams.txt", r.stdout)
	if r.status != 0 || r.stderr != "" {
		t.Errorf("status %d, stderr %q", r.status, r.stderr)
	}
}

// TestStreamsRunLater: a program that enqueues transfers, and afterwards does what the
// streams wait for, ends.
func TestStreamsRunLater(t *testing.T) {
	r := run(t, libraries(t), compile(t, "later.c"), filepath.Join(t.TempDir(), "data"))
	diff(t, "later", r.stdout+r.stderr, `enqueued
too much -5017, deregistered -5027, after both 4096
data agree
closed -5027
`)
}

// TestStreamsOfBlocks: blocks that share a buffer stay in the order of their stream.
func TestStreamsOfBlocks(t *testing.T) {
	r := run(t, libraries(t), compile(t, "blocks.c"), filepath.Join(t.TempDir(), "data"))
	diff(t, "blocks", r.stdout+r.stderr, "stored 96 blocks\nloaded 96 blocks\n96 agree\n")
}
