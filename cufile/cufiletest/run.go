package cufiletest

import (
	"os"
	"testing"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/machine"
	"github.com/culvert-io/culvert/route"
)

// Options say what Run runs.
type Options struct {
	// Engine makes the engine; nil is Culvert.
	Engine func(*testing.T, *machine.Machine) Engine
	// Route is forced on transfers to device memory; None leaves the choice to
	// the ladder.
	Route route.ID
	// Skip says which cases are not to run.
	Skip func(*Case) bool
}

// Run plays the suite on a machine and returns how many cases were played, and
// how many the forced route refused.
func Run(t *testing.T, open func(*testing.T) *machine.Machine, o Options) (played, refused int) {
	s := newSuite(t, open(t), o)
	for _, c := range Cases() {
		if o.Skip != nil && o.Skip(&c) || o.Route != route.None && !c.Mem.Kind.OnDevice() {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			if s.play(t, &c) {
				played++
			} else {
				refused++
			}
		})
	}
	return played, refused
}

// A suite is what the cases of a run share.
type suite struct {
	o    Options
	eng  Engine
	dev  gpu.Device
	dirs map[Place]string
}

func newSuite(t *testing.T, m *machine.Machine, o Options) *suite {
	t.Helper()
	dev, err := m.GPU.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	free, _, err := dev.MemInfo()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if after, _, err := dev.MemInfo(); err != nil || m.Soft && after != free {
			t.Errorf("%d bytes of GPU memory were free before, %d are now: %v", free, after, err)
		}
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	})
	s := &suite{o: o, dev: dev, dirs: map[Place]string{Disk: t.TempDir()}}
	if s.dirs[Shm], err = os.MkdirTemp("/dev/shm", "cufiletest"); err != nil {
		t.Logf("the cases on shm do not run: %v", err)
		delete(s.dirs, Shm)
	} else {
		t.Cleanup(func() { os.RemoveAll(s.dirs[Shm]) })
	}
	if o.Engine != nil {
		s.eng = o.Engine(t, m)
		return s
	}
	drv, err := cufile.Open(m)
	if err != nil {
		t.Fatal(err)
	}
	s.eng = Culvert(drv, o.Route)
	t.Cleanup(func() {
		if err := s.eng.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// play plays a case and reports false where it was refused.
func (s *suite) play(t *testing.T, c *Case) bool {
	dir, ok := s.dirs[c.On]
	if !ok {
		t.Skip("needs a writable /dev/shm")
	}
	unbind, err := s.dev.Bind()
	if err != nil {
		t.Fatal(err)
	}
	defer unbind()
	r := &player{eng: s.eng, dev: s.dev, c: c}
	if err := r.play(dir); err != nil {
		t.Fatal(err)
	}
	for _, err := range r.faults {
		t.Error(err)
	}
	return !r.refused
}
