package softtest_test

import (
	"testing"

	"github.com/culvert-io/culvert/soft"
	"github.com/culvert-io/culvert/soft/pcie/syncpoint"
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

// Test what your code does when the first read fails.
func ExampleBreak() {
	test := func(t *testing.T) {
		m := softtest.New(t, soft.Config{Memory: 64 << 20})
		fired := softtest.Break(t, m, "errno=EIO,call=read,nth=1")
		// … open files with cufile.Open(m), read, and expect that the second try succeeds …
		if len(fired()) != 1 {
			t.Error("no read failed")
		}
	}
	_ = test // go test runs it
}

// Hold a DMA of the drive under nvidia-fs, to do something else meanwhile.
func ExampleOf() {
	test := func(t *testing.T) {
		points := new(syncpoint.Points)
		m := softtest.New(t, soft.Config{Memory: 64 << 20, Callback: true, Points: points})
		gate := points.Stop("pcie.acquired")
		// … begin a read into a registered buffer in a goroutine …
		<-gate.Arrived()
		revoked := make(chan struct{})
		go func() { // it waits for the DMA
			softtest.Of(t, m).P2P().Revoke()
			close(revoked)
		}()
		gate.Open()
		<-revoked
		// … the read fails with cufile.CUDAPointerInvalid, or its bytes are right.
	}
	_ = test // go test runs it
}
