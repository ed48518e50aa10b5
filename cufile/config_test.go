package cufile_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/internal/storage"
	"github.com/culvert-io/culvert/route"
)

// reconfigured is a fixture whose driver was opened with a configuration.
func reconfigured(t *testing.T, c cufile.Config) *fixture {
	t.Helper()
	f := newFixture(t, softConfig(), 1<<20)
	if err := errors.Join(f.drv.Close(), f.drv.Configure(c), f.drv.Open()); err != nil {
		t.Fatal(err)
	}
	var err error
	if f.dev, err = f.drv.Device(0); err != nil {
		t.Fatal(err)
	}
	return f
}

// Without staged routes, what only they can move is refused, with the reason.
func TestDirectOnlyRefusesStagedRoutes(t *testing.T) {
	f := reconfigured(t, cufile.Config{DirectOnly: true})
	h := f.open(os.O_RDWR)
	plain := f.alloc(1 << 20)
	buf := f.buffer(1 << 20)
	if r, err := h.ReadAt(context.Background(), buf.Span(), 0); err != nil || r.Route >= route.Ring {
		t.Errorf("registered and aligned: %v, %v", &r, err)
	}
	span := buf.Span().Slice(1, 1<<19)
	span.Base, span.Off = plain, 1
	_, err := h.ReadAt(context.Background(), span, 3)
	if _, ok := errors.AsType[*route.RequireError](err); err != nil && (!ok || cufile.CodeOf(err) != cufile.IONotSupported) {
		t.Errorf("unaligned: %v", err)
	}
	if p, err := h.Plan(0); err != nil || p.Usable()[len(p.Usable())-1] >= route.Ring {
		t.Errorf("the plan is %v, %v", p, err)
	}
}

func TestStagedOnlyUsesNoOtherRoute(t *testing.T) {
	f := reconfigured(t, cufile.Config{StagedOnly: true})
	h := f.open(os.O_RDONLY)
	r, err := h.ReadAt(context.Background(), f.buffer(4096).Span(), 0)
	if err != nil || r.Route != route.Ring {
		t.Errorf("%v, %v", &r, err)
	}
}

// Buffers beyond the limit have no BAR1 mapping.
func TestBARLimit(t *testing.T) {
	if _, ok := newFixture(t, softConfig(), 128<<10).usable()[route.Bar]; !ok {
		t.Skip("needs GPU memory that can be mapped")
	}
	for limit, want := range map[uint64]bool{0: true, 1: false, 64 << 10: false} {
		f := reconfigured(t, cufile.Config{BARLimit: limit})
		h := f.open(os.O_RDONLY)
		if err := h.Require(0, route.Bar); err != nil {
			t.Fatal(err)
		}
		_, err := h.ReadAt(context.Background(), f.buffer(4<<20).Span().Slice(0, 4096), 0)
		if (err == nil) != want {
			t.Errorf("with a limit of %d: %v", limit, err)
		}
	}
}

// Limits of an open driver hold for buffers that come later, and are checked.
func TestSetLimits(t *testing.T) {
	f := newFixture(t, softConfig(), 1<<20)
	if _, ok := f.usable()[route.Bar]; !ok {
		t.Skip("needs GPU memory that can be mapped")
	}
	h := f.open(os.O_RDONLY)
	if err := h.Require(0, route.Bar); err != nil {
		t.Fatal(err)
	}
	read := func() error {
		_, err := h.ReadAt(context.Background(), f.buffer(4<<20).Span().Slice(0, 4096), 0)
		return err
	}
	for _, c := range []struct {
		limit uint64
		fits  bool
	}{{64 << 10, false}, {0, true}, {1, false}} {
		if err := f.drv.SetLimits(cufile.Config{SlotSize: 64 << 10, BARLimit: c.limit}); err != nil {
			t.Fatal(err)
		}
		if err := read(); (err == nil) != c.fits {
			t.Errorf("with a limit of %d: %v", c.limit, err)
		}
	}
	if err := f.drv.SetLimits(cufile.Config{SlotSize: 100}); cufile.CodeOf(err) != cufile.DriverInvalidProps {
		t.Errorf("slots of 100 bytes: %v", err)
	}
	if err := errors.Join(f.drv.Close(), f.drv.SetLimits(cufile.Config{})); cufile.CodeOf(err) != cufile.DriverNotInitialized {
		t.Errorf("closed: %v", err)
	}
}

// Writes follow O_DIRECT where the configuration says so.
func TestODirect(t *testing.T) {
	for _, force := range []bool{false, true} {
		f := reconfigured(t, cufile.Config{ODirect: force})
		h := f.open(os.O_RDWR)
		if r, err := h.WriteAt(context.Background(), f.buffer(1<<20).Span(), 0); err != nil || r.Bytes != 1<<20 {
			t.Errorf("%v, %v", &r, err)
		}
	}
}

func TestInvalidConfigs(t *testing.T) {
	f := newFixture(t, softConfig(), 4096)
	if err := f.drv.Close(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []cufile.Config{{BatchSize: -1}, {BatchSize: 257}, {SlotSize: 4096}, {SlotSize: 65537}, {PinnedBudget: -1}, {Workers: -1}, {DirectOnly: true, StagedOnly: true}} {
		if err := f.drv.Configure(c); !errors.Is(err, cufile.DriverInvalidProps) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// A file that the denylist names takes a staged route, and its plan says why.
func TestDenylist(t *testing.T) {
	f := newFixture(t, softConfig(), 1<<20)
	here := f.open(os.O_RDONLY)
	if p, err := here.Plan(0); err != nil || p.Usable()[0] >= route.Ring {
		t.Skipf("needs a route that is not staged: %v, %v", p, err)
	}
	dir, kind := filepath.Dir(here.Name()), fileSystem(t, here.Name())
	for _, c := range []struct {
		name   string
		list   cufile.Denylist
		denied string
	}{
		{"mount", cufile.Denylist{Mounts: []string{"/elsewhere", dir + "/"}}, "mount " + dir},
		{"file system", cufile.Denylist{FileSystems: []string{kind}}, "file system " + kind},
		{"driver", cufile.Denylist{Drivers: []string{"nvme"}}, "driver nvme"}, // that of the software machine
		{"id", cufile.Denylist{FSIDs: []string{fsid(t, here.Name())}}, "file system id"},
		{"others", cufile.Denylist{Mounts: []string{dir[:len(dir)-1]}, FileSystems: []string{"no" + kind}, Devices: []string{"/dev/null"}, Drivers: []string{"none"}, FSIDs: []string{"", "x"}}, ""},
	} {
		// Each case frees its memory: a device of the lab has little peer memory.
		t.Run(c.name, func(t *testing.T) {
			f := reconfigured(t, cufile.Config{Denylist: c.list})
			f.path = here.Name()
			h := f.open(os.O_RDONLY)
			r, err := h.ReadAt(context.Background(), f.buffer(4096).Span(), 0)
			if err != nil || (r.Route == route.Ring) != (c.denied != "") {
				t.Errorf("%+v: %v, %v", c.list, &r, err)
			}
			p, err := h.Plan(0)
			if err != nil {
				t.Fatal(err)
			}
			why := slices.ContainsFunc(p.Declined, func(d *route.Decline) bool {
				return strings.Contains(d.Evidence, c.denied) && d.Test == "configuration"
			})
			if why != (c.denied != "") {
				t.Errorf("%+v: declined are %v", c.list, p.Declined)
			}
		})
	}
}

// fsid is what a user sees as the identifier of the file system.
func fsid(t *testing.T, path string) string {
	t.Helper()
	id, err := exec.Command("stat", "-f", "-c", "%i", path).Output()
	if err != nil {
		t.Skipf("needs stat of coreutils: %v", err)
	}
	return strings.TrimSpace(string(id))
}

func fileSystem(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	st, err := storage.Adopt(int(f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	return st.Facts.FS
}
