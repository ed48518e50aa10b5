package nvfs_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
	abi "github.com/culvert-io/culvert/internal/abi/nvfs"
	"github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/soft/kernel/nvfs"
)

// A scene is an mgroup and those who do something to it at the same time.
type scene struct {
	*play
	view   dev.Mapping
	mapped bool // before anybody acts
	names  []string
}

// actions are what can happen to an mgroup, by name.
func (s *scene) actions() map[string]func() {
	return map[string]func(){
		"map":         s.tie,
		"read":        func() { s.read(0) },
		"second read": func() { s.read(0) },
		"async read":  func() { s.read(0x77) },
		"revoke":      s.replace,
		"munmap":      func() { s.expect("munmap", s.view.Unmap()) },
		"close":       s.f.Release,
		"exit":        func() { s.m.Exit(); s.f.Release() },
	}
}

// set makes a fresh mgroup and the actors.
func (s *scene) set() (actors []func()) {
	va, err := s.GPU.Alloc(gpu.KindDevice, s.room, 0)
	s.check(err)
	s.va, s.owned, s.bad, s.fences = uint64(va), uint64(va), "", nil
	clear(s.meta)
	s.f = s.m.OpenFile()
	v, err := s.f.Mmap(0, page, rw)
	s.check(err)
	s.view, s.shadow = v, uint64(v.Addr())
	if s.mapped {
		s.Points.Hook(nil)
		s.tie()
	}
	all := s.actions()
	for _, name := range s.names {
		actors = append(actors, all[name])
	}
	return actors
}

// after takes down what is left and holds it against the invariants.
func (s *scene) after(trace []string) error {
	s.Points.Hook(nil)
	s.expect("munmap", s.view.Unmap())
	s.f.Release()
	s.m.Idle()
	freed := s.owned != s.va
	for _, name := range s.names {
		freed = freed || name == "revoke"
	}
	if bad := s.verdict(freed); bad != "" {
		return errors.New(bad)
	}
	return waited(trace)
}

// waited makes sure that the free callback ended after every transfer that had
// begun before.
func waited(trace []string) error {
	running := 0
	for _, at := range trace {
		switch name, _, _ := strings.Cut(at, "/"); name {
		case "nvfs.io":
			running++
		case "nvfs.io.end":
			running--
		case "nvfs.callback.end":
			if running > 0 {
				return errors.New("the free callback did not wait for a transfer")
			}
		}
	}
	return nil
}

// subsets are the choices of up to most of the names.
func subsets(names []string, most int) (all [][]string) {
	for mask := 1; mask < 1<<len(names); mask++ {
		var set []string
		for i, name := range names {
			if mask>>i&1 != 0 {
				set = append(set, name)
			}
		}
		// Two readers are alike: the second alone is the first.
		twin := slices.Contains(set, "second read") && !slices.Contains(set, "read")
		if len(set) <= most && !twin {
			all = append(all, set)
		}
	}
	return all
}

// TestEveryInterleaving lets any three of what can happen to an mgroup meet in
// every order in which they can pass the module's sync points: on one that was
// MAPped before, and on one that is being MAPped. Invariants A: it is freed exactly
// once, nobody waits for ever, munmap, close and exit wait for nobody, the free
// callback waits for transfers, no device touches memory that was freed, every
// accepted transfer ends, and counters add up.
func TestEveryInterleaving(t *testing.T) {
	most := 3
	if testing.Short() {
		most = 2
	}
	late := subsets([]string{"read", "second read", "async read", "revoke", "munmap", "close", "exit"}, most)
	early := subsets([]string{"read", "revoke", "munmap", "close", "exit"}, most-1)
	total := 0
	for _, callback := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			// One window, so that the orders can be counted.
			p := &play{fixture: newFixture(t, true, nvfs.Config{Callback: callback}), data: pattern(7, playSize), size: page, room: playSize}
			p.meta = p.memory(abi.MetaSize)
			var err error
			p.fd, err = unix.Open(p.file("a", playSize, map[int64][]byte{0: p.data}), unix.O_RDWR|unix.O_DIRECT, 0)
			p.check(err)
			p.check(unix.Fstat(p.fd, &p.st))
			for _, names := range late {
				total += explore(t, &scene{play: p, mapped: true, names: names})
			}
			for _, names := range early {
				total += explore(t, &scene{play: p, names: append([]string{"map"}, names...)})
			}
			p.check(unix.Close(p.fd))
			p.close()
		})
	}
	t.Logf("%d interleavings", total)
	if want := 10_000; total < want && !testing.Short() {
		t.Errorf("%d interleavings, want at least %d", total, want)
	}
}

func explore(t *testing.T, s *scene) int {
	t.Helper()
	n, err := s.Points.Explore("nvfs.", synctest.Wait, s.set, s.after)
	if err != nil {
		t.Fatal(fmt.Errorf("%s: %w", strings.Join(s.names, ", "), err))
	}
	return n
}
