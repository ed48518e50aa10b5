package crash

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
)

// PointsEnv says how many cuts to visit beside those at flushes; "all" visits
// every one.
const PointsEnv = "CULVERT_CRASH_POINTS"

// defaultPoints is the number without PointsEnv.
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
			return 0, fmt.Errorf("%s=%s: want a number or all", PointsEnv, s)
		}
		return n, nil
	}
}

// CheckReplacements replaces something n times and then cuts the power in every
// way that Cuts finds. After each cut the version that was acknowledged last must
// be found, or whole the next one; the very first is not in doubt.
//
// replace installs version i and returns when it is durable. is reports, as an
// error, how what it finds in a directory differs from version i.
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
		err = fmt.Errorf("%d power cuts for %d versions: the record says too little", len(cuts), n)
	}
	return report, err
}

// SameFile reports how a file differs from what it should hold.
func SameFile(name string, want []byte) error {
	got, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	if !bytes.Equal(got, want) {
		return fmt.Errorf("%s has %d bytes that are not the %d wanted", name, len(got), len(want))
	}
	return nil
}
