package phase

import (
	"strings"
	"testing"
	"time"
)

// TestLog prints two phases of which one runs inside the other.
func TestLog(t *testing.T) {
	var out strings.Builder
	l := NewLog(&out)
	clock := time.Unix(100, 0)
	l.now = func() time.Time { return clock }
	outer := l.Begin("open files")
	clock = clock.Add(3 * time.Millisecond)
	inner := l.Begin("allocate")
	clock = clock.Add(5 * time.Millisecond)
	inner()
	clock = clock.Add(time.Millisecond)
	outer()
	const want = "phase allocate begin=3ms took=5ms\nphase open files begin=0s took=9ms\n"
	if got := out.String(); got != want {
		t.Errorf("printed\n%swant\n%s", got, want)
	}
	var none *Log
	none.Begin("nothing")()
}

func TestTo(t *testing.T) {
	var out strings.Builder
	To(&out)
	Begin("one")()
	To(nil)
	Begin("two")()
	if got := out.String(); !strings.HasPrefix(got, "phase one begin=0s took=") || strings.Contains(got, "two") {
		t.Errorf("printed %q", got)
	}
}
