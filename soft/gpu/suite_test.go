package gpu_test

import (
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/gpu/gputest"
	softgpu "github.com/culvert-io/culvert/soft/gpu"
)

func TestMain(m *testing.M) {
	if job := os.Getenv(jobVariable); job != "" {
		os.Exit(runJob(job))
	}
	goleak.VerifyTestMain(m)
}

// open makes a driver that the end of the test closes.
func open(t testing.TB, cfg softgpu.Config) *softgpu.Driver {
	t.Helper()
	d, err := softgpu.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// device opens GPU 0 of a driver.
func device(t testing.TB, cfg softgpu.Config) (*softgpu.Driver, *softgpu.Device) {
	t.Helper()
	d := open(t, cfg)
	x, err := d.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	return d, x.(*softgpu.Device)
}

// suiteConfigs are machines for the suite, beside the usual one, on which
// TestReplay runs it.
var suiteConfigs = map[string]softgpu.Config{
	"scattered": {Models: []softgpu.Model{small(softgpu.H200())}, Scatter: true, Seed: 1},
	"heap":      {Backing: softgpu.Heap, Models: []softgpu.Model{small(softgpu.H200())}},
	"heap-scattered": {
		Backing: softgpu.Heap, Scatter: true, Seed: 2,
		Models: []softgpu.Model{small(softgpu.H200()), small(softgpu.SmallBAR())},
	},
	"small-bar": {Models: []softgpu.Model{small(softgpu.SmallBAR())}},
	"shared":    {Models: []softgpu.Model{small(softgpu.H200()), small(softgpu.H200())}, Scatter: true, Shared: "shared"},
	"pageable":  {Models: []softgpu.Model{small(softgpu.Pageable()), small(softgpu.H200())}, Scatter: true},
}

// small is a model with less memory, so that the case that needs much skips.
func small(m softgpu.Model) softgpu.Model {
	m.Memory = 768 << 20
	return m
}

func TestSuite(t *testing.T) {
	for name, cfg := range suiteConfigs {
		if raceEnabled && cfg.Backing != softgpu.Heap {
			continue // the detector sees nothing there
		}
		t.Run(name, func(t *testing.T) {
			if cfg.Shared != "" {
				cfg.Shared = filepath.Join(t.TempDir(), cfg.Shared)
			}
			run := gputest.Run
			if name == "small-bar" {
				run = gputest.RunInProcesses // as on hardware
			}
			run(t, func(t *testing.T) gpu.Driver { return open(t, cfg) })
		})
	}
}
