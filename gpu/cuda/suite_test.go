package cuda_test

import (
	"testing"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/gpu/gputest"
)

func TestSuite(t *testing.T) {
	gputest.RunInProcesses(t, func(t *testing.T) gpu.Driver { return hardware(t) })
}
