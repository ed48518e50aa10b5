package lease

import (
	"testing"

	"golang.org/x/sys/unix"
)

// nanotime is C's clock.
func nanotime(t *testing.T) int64 {
	t.Helper()
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		t.Fatal(err)
	}
	return ts.Nano()
}
