package cufile

import "time"

// SetLately changes how old an answer LiveLately may rely on, and returns what
// changes it back.
func SetLately(d time.Duration) (restore func()) {
	old := lately
	lately = d
	return func() { lately = old }
}

// Tests want to be told at once, except for those that say otherwise.
func init() { lately = 0 }
