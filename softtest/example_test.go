package softtest_test

import (
	"testing"

	"github.com/culvert-io/culvert/soft"
	"github.com/culvert-io/culvert/softtest"
)

// Test what your code does when the drive under nvidia-fs disappears.
func ExampleNew() {
	test := func(t *testing.T) {
		m := softtest.New(t, soft.Config{Memory: 64 << 20})
		// … open files with cufile.Open(m), read once …
		softtest.Of(t, m).StoragePort().Unplug()
		// … the next read takes another route, and its receipt says why.
	}
	_ = test // go test runs it
}
