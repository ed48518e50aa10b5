// Package suite is the table of what the lab runs: which tests, on which guest.
package suite

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/culvert-io/culvert/lab"
	"github.com/culvert-io/culvert/lab/crash"
)

// A Suite is a set of tests of one package on one guest.
type Suite struct {
	Name    string
	Package string // import path
	Run     string // pattern of top-level tests, as go test -run; "" means all
	Skip    string // pattern of tests to skip, as go test -skip; the table has the reason
	Short   bool   // run with -short
	Min     int    // top-level tests that must pass: fewer means that tests vanished or skip
	Guest   lab.Guest
	Env     []string
	Pair    bool          // on two guests, joined by a cable; the first one's tests count
	Needs   lab.Feature   // of the kernel; without it the suite is skipped
	Timeout time.Duration // 0 means DefaultTimeout
}

// DefaultTimeout ends a suite that hangs. It is many times the usual duration, for
// busy machines.
const DefaultTimeout = 6 * time.Minute

// Soak returns the suite without limits: every point of a crash suite, no -short.
func (s Suite) Soak() Suite {
	s.Env = append(slices.Clip(s.Env), crash.PointsEnv+"=all")
	s.Short = false
	s.Timeout = 3 * s.timeout()
	return s
}

func (s Suite) timeout() time.Duration { return cmp.Or(s.Timeout, DefaultTimeout) }

// Named returns the suite with the given name.
func Named(name string) (Suite, error) {
	for _, s := range All() {
		if s.Name == name {
			return s, nil
		}
	}
	return Suite{}, fmt.Errorf("unknown suite %q (lab suites -list prints them)", name)
}
