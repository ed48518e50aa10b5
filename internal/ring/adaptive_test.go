package ring

import (
	"testing"
	"time"
)

// play lets both ways take their times, and counts the turns of the second.
func (c *adaptive) play(turns int, took func(way, turn int) time.Duration) (second int) {
	for i := range turns {
		way := c.pick()
		second += way
		c.add(way, 1<<20, took(way, i))
	}
	return second
}

// The faster way gets nearly all turns, also when it was the slower one before.
func TestAdaptive(t *testing.T) {
	const slow, fast = 300 * time.Microsecond, 200 * time.Microsecond
	var c adaptive
	for round, favourite := range []int{0, 1, 0, 1} {
		n := c.play(800, func(way, _ int) time.Duration {
			if way == favourite {
				return fast
			}
			return slow
		})
		if favourite == 0 {
			n = 800 - n
		}
		// It takes some tries to find out that the worse way has become the better.
		if n < 500 {
			t.Errorf("round %d: %d of 800 turns for the faster way", round, n)
		}
		if round == 0 && n < 740 {
			t.Errorf("at first: %d of 800 turns for the faster way", n)
		}
	}
}

// A hiccup does not decide.
func TestAdaptiveOutlier(t *testing.T) {
	var c adaptive
	n := c.play(800, func(way, turn int) time.Duration {
		switch {
		case way == 0:
			return 300 * time.Microsecond
		case turn%100 == 50:
			return 50 * time.Millisecond
		}
		return 200 * time.Microsecond
	})
	if n < 600 {
		t.Errorf("%d of 800 turns for the faster way", n)
	}
}

// Requests of other sizes are compared by the byte, and nothing is no time.
func TestAdaptiveSizes(t *testing.T) {
	var c adaptive
	c.add(0, 1<<20, time.Millisecond)
	c.add(1, 4<<20, 2*time.Millisecond)
	c.add(1, 0, time.Hour)
	if a, b := c.took[0].Load(), c.took[1].Load(); a != 2*b {
		t.Errorf("%d and %d ns for a MiB", a, b)
	}
}
