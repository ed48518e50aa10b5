package peermem

import (
	"errors"
	"io/fs"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"

	"github.com/culvert-io/culvert/soft/kernel"
	"github.com/culvert-io/culvert/soft/kernel/p2p"
	"github.com/culvert-io/culvert/soft/pcie"
	"github.com/culvert-io/culvert/soft/pcie/syncpoint"
)

var task = (&p2p.Process{PID: 1}).Task()

func register(t *testing.T, c *Core, f *fake, invalidates bool) *Registration {
	t.Helper()
	r, err := c.Register(&f.Client, invalidates)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Invariant C: peer clients are asked only after normal pinning failed; the
// first that claims wins; the order is registration order.
func TestOrderOfAsking(t *testing.T) {
	dev, pins := adapter(t, pcie.Off), 0
	c := New(plain(0x10000, 0x20000, &pins))
	a, b, d := newFake("a", 0x100000, 0x200000, 4096), newFake("b", 0x100000, 0x300000, 4096), newFake("d", 0x100000, 0x400000, 4096)
	for _, f := range []*fake{a, b, d} {
		f.gave = []Segment{{1, 4096}}
		register(t, c, f, false)
	}
	for _, tc := range []struct {
		addr    uint64
		flags   Flags
		peer    string
		a, b, d string
		err     error
	}{
		{0x10000, Allow, "", "", "", "", nil},
		{0x100000, Allow, "a", "acquire true, get true true, map, unmap, put, release", "", "", nil},
		{0x200000, Allow, "b", "acquire false", "acquire true, get true true, map, unmap, put, release", "", nil},
		{0x300000, Allow, "d", "acquire false", "acquire false", "acquire true, get true true, map, unmap, put, release", nil},
		{0x500000, Allow, "", "acquire false", "acquire false", "acquire false", syscall.EFAULT},
		{0x100000, 0, "", "", "", "", syscall.EFAULT},
	} {
		u, err := c.Get(task, dev, tc.addr, 4096, false, tc.flags)
		if !errors.Is(err, tc.err) {
			t.Errorf("%#x: %v, want %v", tc.addr, err, tc.err)
		}
		if err == nil {
			if u.Peer() != tc.peer {
				t.Errorf("%#x is of %q, want %q", tc.addr, u.Peer(), tc.peer)
			}
			u.Release(task, false)
		}
		for i, f := range []*fake{a, b, d} {
			if got, want := f.said(), []string{tc.a, tc.b, tc.d}[i]; got != want {
				t.Errorf("%#x, client %s: %q, want %q", tc.addr, f.Name, got, want)
			}
		}
	}
	if pins != 0 {
		t.Errorf("%d ordinary pins are left", pins)
	}
}

// The older flow: a context that is known to be a peer's asks the peers first.
func TestKnownContextAsksPeersFirst(t *testing.T) {
	dev, pins := adapter(t, pcie.Off), 0
	c := New(plain(0x10000, 0x20000, &pins))
	f := newFake("a", 0x10000, 0x18000, 4096) // memory that is also ordinary
	f.gave = []Segment{{1, 4096}}
	register(t, c, f, false)
	for _, tc := range []struct {
		name  string
		known bool
		addr  uint64
		flags Flags
		peer  string
		calls string
		err   error
	}{
		{"known", true, 0x10000, Allow, "a", "acquire true, get true false, map, unmap, put, release", nil},
		{"known, not the peer's", true, 0x18000, Allow, "", "acquire false", nil},
		{"known, not allowed", true, 0x10000, 0, "", "", nil},
		{"not known", false, 0x10000, Allow, "", "", nil},
		{"known, nobody's", true, 0x90000, Allow, "", "acquire false", syscall.EFAULT},
		{"not known, nobody's", false, 0x90000, Allow, "", "acquire false", syscall.EFAULT},
	} {
		u, err := c.GetKnown(task, &Context{Known: tc.known}, dev, tc.addr, 4096, true, tc.flags)
		if !errors.Is(err, tc.err) {
			t.Errorf("%s: %v, want %v", tc.name, err, tc.err)
		}
		if err == nil {
			if u.Peer() != tc.peer {
				t.Errorf("%s: of %q", tc.name, u.Peer())
			}
			u.Release(task, false)
		}
		if got := f.said(); got != tc.calls {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.calls)
		}
	}
	// A peer that fails leaves the way to ordinary memory open.
	f.failing = "map"
	u, err := c.GetKnown(task, &Context{Known: true}, dev, 0x10000, 4096, true, Allow)
	if err != nil || u.Peer() != "" {
		t.Fatalf("after a failing peer: %v", err)
	}
	if got := f.said(); got != "acquire true, get true false, map, put, release" {
		t.Errorf("a failing peer: %q", got)
	}
	u.Release(task, false)
	if pins != 0 {
		t.Errorf("%d ordinary pins are left", pins)
	}
}

// A client that invalidates is used only for registrations that declare support.
func TestInvalidatingClientsAreFiltered(t *testing.T) {
	dev := adapter(t, pcie.Off)
	c := New(Config{})
	inval, plain := newFake("inval", 0, 1<<40, 4096), newFake("plain", 0, 1<<40, 4096)
	inval.gave, plain.gave = []Segment{{1, 4096}}, []Segment{{1, 4096}}
	register(t, c, inval, true)
	register(t, c, plain, false)
	for flags, want := range map[Flags]string{Allow: "plain", Allow | Invalidate: "inval"} {
		u, err := c.Get(task, dev, 4096, 4096, true, flags)
		if err != nil || u.Peer() != want {
			t.Fatalf("flags %d: %v of %q, want %q", flags, err, u.Peer(), want)
		}
		if (u.ticket == noTicket) != (want == "plain") {
			t.Errorf("%s: ticket %d", want, u.ticket)
		}
		u.Activate(func() {})
		u.Release(task, true)
	}
}

// Invariant C: get_pages → dma_map → … → dma_unmap → put_pages → release, each
// exactly once on success; errors unwind only what was done.
func TestErrorsUnwindWhatWasDone(t *testing.T) {
	for _, invalidates := range []bool{false, true} {
		for site, want := range map[string]string{
			"umem":      "",
			"peer_umem": "acquire true, release",
			"ticket":    "acquire true, release",
			"get":       "acquire true, get true false, release",
			"map":       "acquire true, get true false, map, put, release",
			"sg_copy":   "acquire true, get true false, map, unmap, put, release",
		} {
			if site == "ticket" && !invalidates {
				continue
			}
			dev := adapter(t, pcie.Off)
			c := New(Config{Fail: func(s string) bool { return s == site }})
			f := newFake("f", 0, 1<<40, 4096)
			f.failing, f.gave = site, []Segment{{1, 4096}}
			r := register(t, c, f, invalidates)
			u, err := c.Get(task, dev, 4096, 4096, true, Allow|Invalidate)
			if u != nil || !errors.Is(err, syscall.ENOMEM) && !errors.Is(err, syscall.EIO) {
				t.Errorf("%s fails: %v", site, err)
			}
			if got := f.said(); got != want {
				t.Errorf("%s fails: %q, want %q", site, got, want)
			}
			if r.uses != 0 || len(r.tickets) != 0 {
				t.Errorf("%s fails: %d uses and %d tickets are left", site, r.uses, len(r.tickets))
			}
			r.Unregister() // does not wait
		}
	}
	c := New(Config{Fail: func(s string) bool { return s == "client" }})
	if _, err := c.Register(&newFake("f", 0, 1, 4096).Client, false); !errors.Is(err, syscall.ENOMEM) {
		t.Errorf("client: %v", err)
	}
	pins := 0
	cfg := plain(0, 1<<40, &pins)
	cfg.Fail = func(s string) bool { return s == "sg_table" }
	if _, err := New(cfg).Get(task, adapter(t, pcie.Off), 4096, 1, true, Allow); !errors.Is(err, syscall.ENOMEM) || pins != 0 {
		t.Errorf("sg_table: %v, %d pins", err, pins)
	}
}

func TestBadRegistrations(t *testing.T) {
	c := New(Config{})
	dev := adapter(t, pcie.Off)
	for name, tc := range map[string]struct {
		dev        *pcie.Function
		addr, size uint64
	}{"nothing": {dev, 4096, 0}, "wraps": {dev, 1 << 63, 1 << 63}, "ends at the end": {dev, 1<<64 - 4096, 4095}, "no device": {nil, 4096, 1}} {
		if _, err := c.Get(task, tc.dev, tc.addr, tc.size, true, Allow); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := c.GetKnown(task, &Context{}, tc.dev, tc.addr, tc.size, true, Allow); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%s, older flow: %v", name, err)
		}
	}
	f := newFake("f", 0, 1, 4096)
	for name, client := range map[string]*Client{"name": {Acquire: f.Acquire}, "acquire": {Name: "f"}, "client": nil} {
		if _, err := c.Register(client, false); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("without %s: %v", name, err)
		}
	}
	register(t, c, f, false)
	if _, err := c.Register(&f.Client, false); !errors.Is(err, syscall.EEXIST) {
		t.Errorf("twice: %v", err)
	}
}

// Invariant C: fix_peer_sgls: the sum of lengths after fixing = the 4 KiB-rounded
// span of [addr, addr+len); values are restored before unmap.
func TestTrimmedSpan(t *testing.T) {
	dev := adapter(t, pcie.Off)
	rapid.Check(t, func(t *rapid.T) {
		const page = 64 << 10
		c := New(Config{})
		f := newFake("f", 0, 1<<40, page)
		if _, err := c.Register(&f.Client, false); err != nil {
			t.Fatal(err)
		}
		addr := rapid.Uint64Range(0, 1<<20).Draw(t, "addr")
		size := rapid.Uint64Range(1, 1<<20).Draw(t, "size")
		first, end := addr&^(page-1), (addr+size+page-1)&^(page-1)
		for a := first; a < end; a += page {
			f.gave = append(f.gave, Segment{1<<40 + a, page})
		}
		u, err := c.Get(task, dev, addr, size, true, Allow)
		if err != nil {
			t.Fatal(err)
		}
		sg := u.SG()
		sum := uint64(0)
		for _, s := range sg {
			sum += s.Len
		}
		from, to := addr&^4095, (addr+size+4095)&^4095
		if sum != to-from || sg[0].Addr != 1<<40+from {
			t.Fatalf("%#x+%#x: %d bytes from %#x, want %d from %#x", addr, size, sum, sg[0].Addr, to-from, 1<<40+from)
		}
		u.Release(task, false)
		if !slices.Equal(f.took, f.gave) {
			t.Fatalf("unmapped %v, mapped %v", f.took, f.gave)
		}
	})
}

// Invariant C: a ticket is unique among live registrations and allocated
// cyclically; an invalidate with an erased ticket does nothing.
func TestTickets(t *testing.T) {
	dev := adapter(t, pcie.Off)
	c := New(Config{})
	f := newFake("f", 0, 1<<40, 4096)
	f.gave = []Segment{{1, 4096}}
	r := register(t, c, f, true)
	get := func() *Umem {
		u, err := c.Get(task, dev, 4096, 4096, true, Allow|Invalidate)
		if err != nil {
			t.Fatal(err)
		}
		u.Activate(func() {})
		return u
	}
	first, second := get(), get()
	if first.ticket != 0 || second.ticket != 1 || f.ticket != 1 {
		t.Errorf("tickets %d and %d, the client has %d", first.ticket, second.ticket, f.ticket)
	}
	first.Release(task, true)
	if third := get(); third.ticket != 2 {
		t.Errorf("ticket %d came back at once", third.ticket)
	} else {
		third.Release(task, true)
	}
	f.said()
	r.Invalidate(task, 0)
	r.Invalidate(task, noTicket)
	if got := f.said(); got != "" || r.Stats().FreeCallbacks != 2 {
		t.Errorf("a stale ticket did %q", got)
	}
	// At the end of the range they begin anew, and pass over those in use.
	r.nextTicket = noTicket - 1
	last, wrapped := get(), get()
	if last.ticket != noTicket-1 || wrapped.ticket != 0 {
		t.Errorf("tickets %d and %d at the end", last.ticket, wrapped.ticket)
	}
	over := get()
	if over.ticket != 2 { // 1 is in use
		t.Errorf("ticket %d", over.ticket)
	}
	for _, u := range []*Umem{second, last, wrapped, over} {
		u.Release(task, true)
	}
}

// Invariant C: deregistration after invalidation succeeds and does not unmap
// twice; the key is destroyed first.
func TestInvalidateThenRelease(t *testing.T) {
	for _, unmaps := range []bool{false, true} {
		dev := adapter(t, pcie.Off)
		c := New(Config{})
		f := newFake("f", 0, 1<<40, 4096)
		f.gave, f.InvalidateUnmaps = []Segment{{1, 4096}}, unmaps
		r := register(t, c, f, true)
		u, err := c.Get(task, dev, 4096, 4096, true, Allow|Invalidate)
		if err != nil {
			t.Fatal(err)
		}
		u.Activate(func() { f.note("key destroyed") })
		r.Invalidate(task, u.ticket)
		r.Invalidate(task, u.ticket)
		u.Release(task, true)
		want := "acquire true, get true false, map, key destroyed, unmap, put, release"
		if got := f.said(); got != want {
			t.Errorf("unmaps %v: %q, want %q", unmaps, got, want)
		}
		s := r.Stats()
		if s != (Stats{1, 1, 1, 1, 4096, 4096, 2}) {
			t.Errorf("statistics %+v", s)
		}
	}
}

// An invalidation that comes before the adapter is ready waits for it.
func TestInvalidateWaitsForActivate(t *testing.T) {
	for _, activate := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			dev := adapter(t, pcie.Off)
			c := New(Config{})
			f := newFake("f", 0, 1<<40, 4096)
			f.gave = []Segment{{1, 4096}}
			r := register(t, c, f, true)
			u, err := c.Get(task, dev, 4096, 4096, true, Allow|Invalidate)
			if err != nil {
				t.Fatal(err)
			}
			f.said()
			done := make(chan struct{})
			go func() {
				r.Invalidate(task, u.ticket)
				close(done)
			}()
			synctest.Wait()
			select {
			case <-done:
				t.Error("did not wait")
			default:
			}
			if activate {
				u.Activate(func() { f.note("key destroyed") })
				<-done
			}
			u.Release(task, activate)
			<-done
			want := "unmap, put, release"
			if activate {
				want = "key destroyed, " + want
			}
			if got := f.said(); got != want {
				t.Errorf("activated %v: %q, want %q", activate, got, want)
			}
		})
	}
}

// Invariant C: invalidate and deregistration of the same region are serialised:
// one that has found its registration is waited for.
func TestReleaseWaitsForInvalidate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var points syncpoint.Points
		dev := adapter(t, pcie.Off)
		c := New(Config{Points: &points})
		f := newFake("f", 0, 1<<40, 4096)
		f.gave = []Segment{{1, 4096}}
		r := register(t, c, f, true)
		u, err := c.Get(task, dev, 4096, 4096, true, Allow|Invalidate)
		if err != nil {
			t.Fatal(err)
		}
		u.Activate(func() {})
		f.said()
		gate := points.Stop("peermem.invalidate")
		go r.Invalidate(task, u.ticket)
		<-gate.Arrived()
		done := make(chan struct{})
		go func() {
			u.Release(task, true)
			close(done)
		}()
		synctest.Wait()
		select {
		case <-done:
			t.Error("did not wait")
		default:
		}
		gate.Open()
		<-done
		if got := f.said(); got != "unmap, put, release" {
			t.Errorf("the client was called: %q", got)
		}
	})
}

// Invariant C: unregister waits for use count 0.
func TestUnregisterWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dev := adapter(t, pcie.Off)
		c := New(Config{})
		f := newFake("f", 0, 1<<40, 4096)
		f.gave = []Segment{{1, 4096}}
		r := register(t, c, f, false)
		u, err := c.Get(task, dev, 4096, 4096, true, Allow)
		if err != nil {
			t.Fatal(err)
		}
		gone := make(chan struct{})
		go func() {
			r.Unregister()
			close(gone)
		}()
		synctest.Wait()
		select {
		case <-gone:
			t.Error("did not wait")
		default:
		}
		if _, err := c.Get(task, dev, 4096, 4096, true, Allow); !errors.Is(err, syscall.EFAULT) {
			t.Errorf("a client that is leaving was asked: %v", err)
		}
		u.Release(task, false)
		<-gone
	})
}

// Rereg releases the old before it gets the new.
func TestRereg(t *testing.T) {
	dev := adapter(t, pcie.Off)
	c := New(Config{})
	f := newFake("f", 0x1000, 0x10000, 4096)
	f.gave = []Segment{{1, 4096}}
	r := register(t, c, f, false)
	u, err := c.Get(task, dev, 0x1000, 4096, true, Allow)
	if err != nil {
		t.Fatal(err)
	}
	if u, err = u.Rereg(task, false, 0x2000, 4096, true, Allow); err != nil {
		t.Fatal(err)
	}
	if got := f.said(); got != "acquire true, get true false, map, unmap, put, release, acquire true, get true false, map" {
		t.Errorf("rereg: %q", got)
	}
	if _, err = u.Rereg(task, false, 0x20000, 4096, true, Allow); !errors.Is(err, syscall.EFAULT) || r.uses != 0 {
		t.Errorf("rereg elsewhere: %v, %d uses", err, r.uses)
	}
}

func TestSysfs(t *testing.T) {
	dev := adapter(t, pcie.Off)
	c := New(Config{})
	f := newFake("f", 0, 1<<40, 4096)
	f.gave = []Segment{{1, 4096}, {5, 4096}}
	r := register(t, c, f, false)
	o := kernel.New(kernel.Tree{})
	o.Mount("sys/kernel/mm/memory_peers/f", r.Tree())
	u, err := c.Get(task, dev, 4096, 8192, true, Allow)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"version": "1.0", "num_alloc_mrs": "1", "num_reg_pages": "2", "num_reg_bytes": "8192", "num_dealloc_mrs": "0", "num_free_callbacks": "0"} {
		got, err := fs.ReadFile(o.FS(), "sys/kernel/mm/memory_peers/f/"+name)
		if err != nil || strings.TrimSpace(string(got)) != want {
			t.Errorf("%s is %q, %v, want %s", name, got, err, want)
		}
	}
	u.Release(task, false)
	if got, err := fs.ReadFile(o.FS(), "sys/kernel/mm/memory_peers/f/num_dereg_bytes"); err != nil || string(got) != "8192\n" {
		t.Errorf("num_dereg_bytes is %q, %v", got, err)
	}
}

// A module whose second client cannot be registered leaves none.
func TestSecondClientFails(t *testing.T) {
	core := New(Config{})
	other := newFake("nv_mem_nc", 0, 1, 4096)
	if _, err := core.Register(&other.Client, false); err != nil {
		t.Fatal(err)
	}
	if _, err := NewNVIDIA(core, nil, NVIDIAConfig{Callback: true}); !errors.Is(err, syscall.EEXIST) || len(core.clients) != 1 {
		t.Errorf("a client that cannot be registered: %v, %d clients", err, len(core.clients))
	}
}
