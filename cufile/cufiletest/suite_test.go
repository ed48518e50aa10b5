package cufiletest_test

import (
	"cmp"
	"flag"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/cufile/cufiletest"
	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/machine"
	"github.com/culvert-io/culvert/route"
	"github.com/culvert-io/culvert/soft"
)

var (
	machineKind = flag.String("cufiletest.machine", machine.Soft, "the `machine`: soft or real")
	recordFile  = flag.String("cufiletest.record", "", "write the outcomes to this `file`")
	engineName  = flag.String("cufiletest.engine", "", "the `engine` of TestVendor: vendor")
	libcufile   = flag.String("cufiletest.libcufile", "", "`path` of NVIDIA's libcufile.so.0")
	shmDir      = flag.String("cufiletest.shm", "", "`directory` in memory (default /dev/shm)")
	journalFile = flag.String("cufiletest.journal", "", "used by the test itself")
)

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
	if *recordFile != "" && *engineName == "" {
		save(t, "culvert", outcomes(t))
	}
}

// outcomes plays the suite once more, and only notes what comes of it.
func outcomes(t *testing.T) map[string][]string {
	t.Helper()
	cases := map[string][]string{}
	cufiletest.Run(t, openMachine, cufiletest.Options{Note: func(name string, outcomes []string) {
		if outcomes != nil {
			cases[name] = outcomes
		}
	}})
	return cases
}

func save(t *testing.T, engine string, cases map[string][]string) {
	t.Helper()
	rec, err := cufiletest.NewRecord(engine, openMachine(t).GPU)
	if err != nil {
		t.Fatal(err)
	}
	rec.Cases = cases
	if err := rec.Save(*recordFile); err != nil {
		t.Fatal(err)
	}
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

// The suite by NVIDIA's library, to be recorded. Nothing is expected of it.
func TestVendor(t *testing.T) {
	if *engineName != "vendor" {
		t.Skip("needs NVIDIA's libcufile on a machine with a GPU: -cufiletest.machine=real -cufiletest.engine=vendor -cufiletest.libcufile=PATH -cufiletest.record=FILE")
	}
	cases := supervise(t, "-cufiletest.engine=vendor", "-cufiletest.machine="+*machineKind, "-cufiletest.libcufile="+*libcufile)
	name := strings.Join(cases[engineLine], "")
	delete(cases, engineLine)
	if *recordFile != "" {
		save(t, name, cases)
	}
}

// TestChild is a process that supervise started.
func TestChild(t *testing.T) {
	if *journalFile == "" {
		t.Skip("needs a parent: TestVendor and TestSupervise start it")
	}
	j := journal{*journalFile}
	ended, _ := j.read(t)
	note := func(name string, outcomes []string) {
		if tainted(outcomes) {
			os.Exit(exitTainted)
		}
		brittleCase = name
		j.note(name, outcomes)
	}
	o := cufiletest.Options{Note: note, Shm: *shmDir, Engine: func(t *testing.T, m *machine.Machine) cufiletest.Engine {
		v := openVendor(t, m)
		j.note(engineLine, []string{v.Name()})
		return v
	}}
	o.Skip = func(c *cufiletest.Case) bool { return ended[c.Name] != nil }
	if *engineName == "brittle" {
		o.Engine = openBrittle
		o.Skip = func(c *cufiletest.Case) bool { return ended[c.Name] != nil || !strings.HasPrefix(c.Name, "hole/") }
	}
	cufiletest.Run(t, openMachine, o)
}

// A brittle engine dies in one case, and after five writes it does not know any
// more which descriptors are free.
type brittle struct{ cufiletest.Engine }

type brittleHandle struct{ cufiletest.Handle }

var (
	brittleCase   string // that is being played
	brittleWrites int
)

func openBrittle(t *testing.T, m *machine.Machine) cufiletest.Engine {
	t.Helper()
	drv, err := cufile.Open(m)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { drv.Close() })
	return brittle{cufiletest.Culvert(drv, route.None)}
}

func (b brittle) Register(fd int) (cufiletest.Handle, error) {
	if brittleWrites >= 5 {
		return nil, cufile.HandleAlreadyRegistered
	}
	h, err := b.Engine.Register(fd)
	if err != nil {
		return nil, err
	}
	return brittleHandle{h}, nil
}

func (h brittleHandle) Write(base gpu.Addr, n uint64, off, buf int64) (int64, error) {
	if brittleWrites++; brittleCase == "hole/comb/disk/rw" {
		os.Exit(17)
	}
	return h.Handle.Write(base, n, off, buf)
}

// A death costs one case, lost descriptors cost none, and the others are played
// all the same.
func TestSupervise(t *testing.T) {
	if testing.Short() {
		t.Skip("needs the time of several processes: not in a short run")
	}
	cases := supervise(t, "-cufiletest.engine=brittle", "-cufiletest.machine=soft")
	deaths := 0
	for name, o := range cases {
		switch {
		case o[0] == "died: exit status 17":
			deaths++
		case len(o) != 6:
			t.Errorf("%s: %q", name, o)
		}
	}
	if len(cases) != 28 || deaths != 1 {
		t.Errorf("%d cases and %d deaths, want 28 and 1", len(cases), deaths)
	}
}
