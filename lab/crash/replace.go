package crash

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
)

// PointsEnv is the variable with the number of cuts besides those at flushes, or
// "all".
const PointsEnv = "CULVERT_CRASH_POINTS"

// defaultPoints applies without PointsEnv.
const defaultPoints = 50

func extraPoints() (int, error) {
	switch s := os.Getenv(PointsEnv); s {
	case "":
		return defaultPoints, nil
	case "all":
		return -1, nil
	default:
		n, err := strconv.Atoi(s)
		if err != nil || n < 0 {
			return 0, fmt.Errorf("%s=%s must be a number or all", PointsEnv, s)
		}
		return n, nil
	}
}

// CheckReplacements calls replace n times and then tests the power cuts of Cuts. After
// each cut the version that was acknowledged last must be found, or the whole next
// one.
//
// replace installs version i and returns when it is durable. is returns an error if a
// directory does not have version i.
func (r *Recording) CheckReplacements(n int, replace func(i int) error, is func(dir string, i int) error) (report string, err error) {
	var acknowledged []Point
	for i := range n {
		if err := replace(i); err != nil {
			return "", fmt.Errorf("version %d: %w", i, err)
		}
		now, err := r.Now()
		if err != nil {
			return "", err
		}
		acknowledged = append(acknowledged, now)
	}
	extra, err := extraPoints()
	if err != nil {
		return "", err
	}
	cuts, err := r.Cuts(acknowledged[0], extra, 1)
	if err != nil {
		return "", err
	}
	var early, lossy atomic.Int32
	err = r.Visit(cuts, func(c Cut, dir string) error {
		if len(c.Lost) > 0 {
			lossy.Add(1)
		}
		latest := 0
		for latest+1 < n && int(acknowledged[latest+1]) <= c.At {
			latest++
		}
		older := is(dir, latest)
		if older == nil {
			return nil
		}
		if latest+1 < n && is(dir, latest+1) == nil {
			early.Add(1)
			return nil
		}
		return fmt.Errorf("neither version %d nor the next: %w", latest, older)
	})
	report = fmt.Sprintf("acknowledged after writes %v; %d power cuts, %d with losses, the next version after %d of them", acknowledged, len(cuts), lossy.Load(), early.Load())
	if err == nil && len(cuts) < 2*n {
		err = fmt.Errorf("only %d power cuts for %d versions", len(cuts), n)
	}
	return report, err
}

// SameFile returns an error if a file does not contain want.
func SameFile(name string, want []byte) error {
	got, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	if !bytes.Equal(got, want) {
		return fmt.Errorf("%s has %d bytes that differ from the %d wanted", name, len(got), len(want))
	}
	return nil
}
