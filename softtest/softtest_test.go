package softtest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/gpumem"
	"github.com/culvert-io/culvert/machine"
	"github.com/culvert-io/culvert/nvme"
	"github.com/culvert-io/culvert/soft"
	softnvme "github.com/culvert-io/culvert/soft/nvme"
	"github.com/culvert-io/culvert/softtest"
)

// A recorder is a test that keeps its errors.
type recorder struct {
	testing.TB
	cleanups []func()
	errs     []string
}

func (r *recorder) Cleanup(fn func()) { r.cleanups = append(r.cleanups, fn) }
func (r *recorder) Error(args ...any) { r.errs = append(r.errs, fmt.Sprint(args...)) }

func (r *recorder) end() string {
	for _, fn := range r.cleanups {
		fn()
	}
	return strings.Join(r.errs, "; ")
}

// What a test leaves open is an error of the test.
func TestLeaks(t *testing.T) {
	for _, leak := range []bool{false, true} {
		r := &recorder{TB: t}
		m := softtest.New(r, soft.Config{Memory: 16 << 20})
		c, err := gpumem.Open(m)
		if err != nil {
			t.Fatal(err)
		}
		if !leak {
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if got := r.end(); strings.Contains(got, "1 device nodes") != leak || leak != (got != "") {
			t.Errorf("leak %v: errors %q", leak, got)
		}
	}
}

// Memory whose pin was revoked is not locked any more.
func TestRevoke(t *testing.T) {
	m := softtest.New(t, soft.Config{Memory: 16 << 20})
	d, a := alloc(t, m)
	defer func() { _ = errors.Join(d.Free(a), d.Close()) }()
	c, err := gpumem.Open(m)
	if err != nil {
		t.Fatal(err)
	}
	l, err := c.Lock(a, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	softtest.Of(t, m).P2P().Revoke()
	if _, err := l.Pages(); err == nil {
		t.Error("the pages are still known")
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// A bad block of a drive is a read error, and the next block is read.
func TestBadBlock(t *testing.T) {
	m := softtest.New(t, soft.Config{Memory: 16 << 20, Drives: []soft.Drive{{Size: 1 << 20}}})
	s := softtest.Of(t, m)
	s.Drives()[0].FailBlock(1, 100, softnvme.Read)
	c, err := nvme.Open(s.Transport(0), nvme.Config{})
	if err != nil {
		t.Fatal(err)
	}
	b, err := c.AllocHost(4096)
	if err != nil {
		t.Fatal(err)
	}
	ns := c.Namespaces()[0]
	if err := ns.Read(context.Background(), b, 0, 100, 1); !errors.Is(err, nvme.StatusUnrecoveredRead) {
		t.Errorf("bad block: %v", err)
	}
	if err := ns.Read(context.Background(), b, 0, 101, 1); err != nil {
		t.Errorf("next block: %v", err)
	}
	if err := errors.Join(b.Close(), c.Close()); err != nil {
		t.Error(err)
	}
}

func alloc(t *testing.T, m *machine.Machine) (gpu.Device, gpu.Addr) {
	t.Helper()
	d, err := m.GPU.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	a, err := d.Alloc(gpu.KindDevice, 1<<20, 0)
	if err != nil {
		t.Fatal(err)
	}
	return d, a
}
