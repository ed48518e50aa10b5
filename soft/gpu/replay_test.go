package gpu_test

import (
	"path/filepath"
	"testing"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/gpu/gputest"
	softgpu "github.com/culvert-io/culvert/soft/gpu"
)

// accepted are the answers in which the software GPU may differ from the
// hardware whose records lie in gpu/gputest/testdata, with the reasons.
var accepted []gputest.Difference

// TestReplay runs the suite on the usual machine and holds it against records
// of hardware.
func TestReplay(t *testing.T) {
	records, err := filepath.Glob("../../gpu/gputest/testdata/*.json")
	must(t, err)
	if len(records) == 0 {
		t.Skip("needs a record of hardware in gpu/gputest/testdata: run the suite of gpu/cuda there with -gputest.record=FILE")
	}
	for _, file := range records {
		t.Run(filepath.Base(file), func(t *testing.T) {
			gputest.Replay(t, func(t *testing.T) gpu.Driver { return open(t, softgpu.Config{}) }, file, accepted)
		})
	}
}
