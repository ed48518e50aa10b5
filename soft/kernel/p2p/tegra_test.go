package p2p

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"syscall"
	"testing"
	"testing/synctest"

	"golang.org/x/sys/unix"

	abi "github.com/culvert-io/culvert/internal/abi/p2p"
	"github.com/culvert-io/culvert/soft/pcie"
	"github.com/culvert-io/culvert/soft/pcie/syncpoint"
)

// A soc is a machine with an integrated GPU: it has nothing but user memory.
type soc struct {
	t      fataler
	points syncpoint.Points
	fabric *pcie.Fabric
	peer   *pcie.Function
	tg     *Tegra
	mm     *MM
}

func newSoC(t fataler, mode pcie.IOMMU) *soc {
	s := &soc{t: t, mm: NewMM()}
	s.fabric = pcie.New(pcie.Config{IOMMU: mode, Points: &s.points})
	root, err := s.fabric.AddHostBridge(pcie.ForwardOwn).AddRootPort("root")
	s.check(err)
	s.peer, err = root.AddFunction("peer")
	s.check(err)
	s.tg = &Tegra{Fabric: s.fabric, Points: &s.points}
	return s
}

func (s *soc) check(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// pages maps n pages of memory that begins on a page.
func (s *soc) pages(n int) (uint64, []byte) {
	s.t.Helper()
	b := make([]byte, (n+1)*userPage)
	b = b[-addrOf(b)%userPage:][: n*userPage : n*userPage]
	addr, err := s.mm.Map(b)
	s.check(err)
	return addr, b
}

func (s *soc) close() {
	s.t.Helper()
	if s.tg.Live() != 0 || s.mm.Pinned() != 0 || s.fabric.Usage() != (pcie.Usage{}) {
		s.t.Errorf("left over: %d tables, %d pages, %+v", s.tg.Live(), s.mm.Pinned(), s.fabric.Usage())
	}
}

// Invariant B, Tegra: the callback runs once on put too; pages are released
// only by free_page_table.
func TestTegraCallbackOnPut(t *testing.T) {
	s := newSoC(t, pcie.Translating)
	defer s.close()
	addr, mem := s.pages(4)
	calls := 0
	table, err := s.tg.GetPages(s.mm, addr+userPage+100, 2*userPage+100, func(*Task, *TegraTable) { calls++ })
	s.check(err)
	if table.Entries() != 2 || table.PageSize != abi.NVIDIA_P2P_PAGE_SIZE_4KB || table.Version != abi.TEGRA_P2P_PAGE_TABLE_VERSION || table.Flags() != TegraPinned {
		t.Errorf("table %+v", table)
	}
	m, err := s.tg.DMAMapPages(s.peer, table)
	s.check(err)
	if m.Entries() != 1 || m.Lengths[0] != 2*userPage || table.Flags() != TegraPinned|TegraMapped {
		t.Errorf("mapping %+v, flags %d", m, table.Flags())
	}
	e := pcie.Engine{Port: s.peer}
	_, err = e.Write([]pcie.Range{{Bus: m.Addresses[0], Len: 2 * userPage}}, bytes.Repeat([]byte{7}, 2*userPage))
	s.check(err)
	if mem[userPage-1] != 0 || mem[userPage] != 7 || mem[3*userPage-1] != 7 || mem[3*userPage] != 0 {
		t.Error("the bytes went elsewhere")
	}
	s.check(s.tg.DMAUnmapPages(m))
	s.check(s.tg.FreeDMAMapping(m)) // the same, again
	s.check(s.tg.PutPages(s.mm.task(), table))
	if calls != 1 || s.mm.Pinned() != 2 || s.tg.Live() != 1 {
		t.Errorf("called back %d times, %d pages pinned", calls, s.mm.Pinned())
	}
	s.check(s.tg.PutPages(s.mm.task(), table))
	s.check(s.tg.FreePageTable(table))
	if err := s.tg.FreePageTable(table); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("second free: %v", err)
	}
	if calls != 1 {
		t.Errorf("called back %d times", calls)
	}
}

func (m *MM) task() *Task { return &Task{} }

func TestTegraErrors(t *testing.T) {
	s := newSoC(t, pcie.Off)
	defer s.close()
	addr, mem := s.pages(2)
	cb := func(*Task, *TegraTable) {}
	for _, tc := range []struct {
		name       string
		addr, size uint64
		cb         func(*Task, *TegraTable)
		want       error
	}{
		{"no bytes", addr, 0, cb, syscall.EINVAL},
		{"less than a page", addr, userPage - 1, cb, syscall.EINVAL},
		{"no callback", addr, userPage, nil, syscall.EINVAL},
		{"short", addr, 3 * userPage, cb, syscall.ENOMEM},
		{"not mapped", 1 << 20, userPage, cb, syscall.ENOMEM},
	} {
		if _, err := s.tg.GetPages(s.mm, tc.addr, tc.size, tc.cb); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", tc.name, err, tc.want)
		}
	}
	table, err := s.tg.GetPages(s.mm, addr, userPage, func(_ *Task, t *TegraTable) { s.check(s.tg.FreePageTable(t)) })
	s.check(err)
	for name, tc := range map[string]struct{ err, want error }{
		"put nothing":           {s.tg.PutPages(nil, nil), syscall.EINVAL},
		"free nothing":          {s.tg.FreePageTable(nil), syscall.EINVAL},
		"map nothing":           {tegraErr(s.tg.DMAMapPages(s.peer, nil)), syscall.EINVAL},
		"map no entries":        {tegraErr(s.tg.DMAMapPages(s.peer, &TegraTable{tg: s.tg})), syscall.EINVAL},
		"unmap nothing":         {s.tg.DMAUnmapPages(nil), syscall.EINVAL},
		"unmap without a table": {s.tg.DMAUnmapPages(&TegraMapping{}), syscall.EFAULT},
	} {
		if !errors.Is(tc.err, tc.want) {
			t.Errorf("%s: %v, want %v", name, tc.err, tc.want)
		}
	}
	_, err = s.tg.DMAMapPages(s.peer, table)
	s.check(err)
	s.check(s.tg.PutPages(nil, table))
	if s.tg.Warnings() != 1 {
		t.Error("no warning for a table that was freed with a mapping")
	}
	if _, err := s.tg.DMAMapPages(s.peer, table); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("map of a freed table: %v", err)
	}
	if _, err := s.mm.Map(mem[1:]); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("map of a part of a page: %v", err)
	}
	if _, err := s.mm.Map(nil); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("map of nothing: %v", err)
	}
	if err := s.mm.Unmap(addr + 1); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("unmap of what is not mapped: %v", err)
	}
}

func tegraErr(_ *TegraMapping, err error) error { return err }

func TestTegraFailureAtEveryAllocation(t *testing.T) {
	for failing := 1; ; failing++ {
		s := newSoC(t, pcie.Translating)
		addr, _ := s.pages(2)
		calls := 0
		s.tg.Fail = func(string) bool { calls++; return calls == failing }
		table, err := s.tg.GetPages(s.mm, addr, 2*userPage, func(_ *Task, t *TegraTable) { s.check(s.tg.FreePageTable(t)) })
		if err == nil {
			_, err = s.tg.DMAMapPages(s.peer, table)
			s.check(s.tg.PutPages(nil, table))
		}
		s.close()
		if calls < failing {
			if failing != 9 {
				t.Errorf("%d allocations were asked for", failing-1)
			}
			return
		}
		if !errors.Is(err, unix.ENOMEM) {
			t.Errorf("allocation %d fails: %v", failing, err)
		}
	}
}

// The memory is unmapped, or the process ends: the client is called back, and
// its DMA in flight is waited for.
func TestTegraInvoluntaryEnd(t *testing.T) {
	for name, end := range map[string]func(*MM, uint64){
		"unmap": func(m *MM, a uint64) { _ = m.Unmap(a) },
		"exit":  func(m *MM, _ uint64) { m.Exit() },
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newSoC(t, pcie.Off)
			addr, mem := s.pages(3)
			other, _ := s.pages(1)
			calls := 0
			cb := func(task *Task, table *TegraTable) {
				calls++
				if err := s.tg.PutPages(task, table); !errors.Is(err, syscall.EDEADLK) {
					t.Errorf("%s: put inside the callback: %v", name, err)
				}
				s.check(s.tg.FreePageTable(table))
			}
			table, err := s.tg.GetPages(s.mm, addr, 3*userPage, cb)
			s.check(err)
			l, err := s.peer.Lend(table.Pages[0], 3*userPage, pcie.Write)
			s.check(err)
			done := make(chan struct{})
			go func() {
				end(s.mm, addr)
				close(done)
			}()
			synctest.Wait()
			if _, err := s.peer.Lend(table.Pages[0], 1, pcie.Write); err == nil {
				t.Errorf("%s: lent while the pages go", name)
			}
			select {
			case <-done:
				t.Errorf("%s: did not wait for the DMA", name)
			default:
			}
			copy(l.Segs()[0], "last words")
			s.check(l.Return(10))
			<-done
			if calls != 1 || string(mem[:10]) != "last words" {
				t.Errorf("%s: called back %d times, memory %q", name, calls, mem[:10])
			}
			s.check(s.tg.PutPages(nil, table)) // too late, and harmless
			_ = other
			s.close()
		})
	}
}

// A range that does not hold the first byte of a pin is not noticed, as in the
// original; the pages stay, for they are pinned.
func TestTegraInvalidateLooksAtTheStart(t *testing.T) {
	s := newSoC(t, pcie.Off)
	defer s.close()
	addr, _ := s.pages(4)
	calls := 0
	table, err := s.tg.GetPages(s.mm, addr, 4*userPage, func(_ *Task, t *TegraTable) { calls++; s.check(s.tg.FreePageTable(t)) })
	s.check(err)
	s.mm.Invalidate(addr+userPage, addr+4*userPage)
	if calls != 0 {
		t.Error("the tail was noticed")
	}
	l, err := s.peer.Lend(table.Pages[0], 4*userPage, pcie.Read)
	s.check(err)
	s.check(l.Return(0))
	s.mm.Invalidate(addr, addr+1)
	if calls != 1 {
		t.Errorf("called back %d times", calls)
	}
}

// TestTegraInterleavings lets put, unmap, exit and DMA meet in all orders.
func TestTegraInterleavings(t *testing.T) {
	n := uint64(2000)
	if testing.Short() {
		n /= 10
	}
	synctest.Test(t, func(t *testing.T) {
		for seed := range n {
			rng := rand.New(rand.NewPCG(seed, 2))
			s := newSoC(t, []pcie.IOMMU{pcie.Off, pcie.Translating}[rng.IntN(2)])
			addr, _ := s.pages(2)
			calls := 0
			table, err := s.tg.GetPages(s.mm, addr, 2*userPage, func(_ *Task, t *TegraTable) { calls++; s.check(s.tg.FreePageTable(t)) })
			s.check(err)
			actors := []func(){
				func() { s.check(s.tg.PutPages(nil, table)) },
				func() {
					m, err := s.tg.DMAMapPages(s.peer, table)
					if err != nil {
						return
					}
					e := pcie.Engine{Port: s.peer, Points: &s.points}
					_, _ = e.Write([]pcie.Range{{Bus: m.Addresses[0], Len: 2 * userPage}}, make([]byte, 100))
					s.check(s.tg.DMAUnmapPages(m))
				},
			}
			if rng.IntN(2) == 0 {
				actors = append(actors, func() { _ = s.mm.Unmap(addr) })
			}
			if rng.IntN(2) == 0 {
				actors = append(actors, s.mm.Exit)
			}
			if trace, err := s.points.Run(seed, synctest.Wait, actors...); err != nil || calls != 1 {
				t.Fatalf("seed %d: %v, called back %d times\nafter %q", seed, err, calls, trace)
			}
			s.close()
		}
	})
}
