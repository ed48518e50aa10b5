package gputest_test

import (
	"testing"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/gpu/gputest"
	softgpu "github.com/culvert-io/culvert/soft/gpu"
)

// Run the suite on a driver of your own.
func ExampleRun() {
	test := func(t *testing.T) {
		gputest.Run(t, func(t *testing.T) gpu.Driver {
			drv, err := softgpu.New(softgpu.Config{})
			if err != nil {
				t.Fatal(err)
			}
			return drv
		})
	}
	_ = test // go test runs it
}
