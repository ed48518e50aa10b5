package cufiletest_test

import (
	"cmp"
	"flag"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/cufile/cufiletest"
	"github.com/culvert-io/culvert/machine"
	"github.com/culvert-io/culvert/route"
	"github.com/culvert-io/culvert/soft"
)

var machineKind = flag.String("cufiletest.machine", machine.Soft, "the `machine`: soft or real")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func openMachine(t *testing.T) *machine.Machine {
	t.Helper()
	if *machineKind != machine.Soft {
		m, err := machine.OpenAs(*machineKind)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	return openSoft(t, "")
}

func openSoft(t *testing.T, drive string) *machine.Machine {
	t.Helper()
	cfg, err := soft.ParseConfig(os.Getenv("CULVERT_SOFT"))
	if err != nil {
		t.Fatal(err)
	}
	cfg.Drive = cmp.Or(drive, cfg.Drive)
	cfg.Zero = false // poison finds what relies on zeros
	cfg.Memory, cfg.Scatter = 256<<20, true
	m, err := machine.FromSoft(cfg, "test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// The suite by the ladder's own choice.
func TestSuite(t *testing.T) {
	cufiletest.Run(t, openMachine, cufiletest.Options{Skip: thinned()})
}

// The suite by each route that the machine has.
func TestSuiteByRoute(t *testing.T) {
	for _, id := range usable(t) {
		t.Run(id.String(), func(t *testing.T) {
			played, refused := cufiletest.Run(t, openMachine, cufiletest.Options{Route: id, Skip: thinned()})
			t.Logf("%d cases played, %d refused by the route", played, refused)
			if !testing.Short() && played < 100 {
				t.Errorf("only %d cases took this route", played)
			}
		})
	}
}

// The suite by nvidia-fs on a drive of another host, which a network adapter reaches.
func TestSuiteOnRemoteDrive(t *testing.T) {
	if *machineKind != machine.Soft {
		t.Skip("needs the software machine")
	}
	i := 0
	played, _ := cufiletest.Run(t, func(t *testing.T) *machine.Machine { return openSoft(t, "nvme-rdma") }, cufiletest.Options{
		Route: route.NVFS,
		Skip:  func(*cufiletest.Case) bool { i++; return i%8 != 0 },
	})
	t.Logf("%d cases played", played)
}

// thinned leaves most cases out of a short run.
func thinned() func(*cufiletest.Case) bool {
	i := 0
	return func(*cufiletest.Case) bool {
		i++
		return testing.Short() && i%8 != 0
	}
}

// usable are the routes to device memory that the machine has.
func usable(t *testing.T) []route.ID {
	t.Helper()
	drv, err := cufile.Open(openMachine(t))
	if err != nil {
		t.Fatal(err)
	}
	defer drv.Close()
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	h, err := drv.Register(f)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := h.Plan(0)
	if err != nil {
		t.Fatal(err)
	}
	return plan.Usable()
}
