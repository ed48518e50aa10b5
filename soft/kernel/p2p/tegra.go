package p2p

import (
	"slices"
	"sync/atomic"
	"syscall"

	abi "github.com/culvert-io/culvert/internal/abi/p2p"
	"github.com/culvert-io/culvert/soft/pcie"
	"github.com/culvert-io/culvert/soft/pcie/syncpoint"
)

// Tegra is nvidia_p2p_* as integrated GPUs have it: their memory is the
// process's. It is safe for concurrent use.
type Tegra struct {
	Fabric *pcie.Fabric
	Points *syncpoint.Points
	// Fail, if any, is asked at every allocation and makes it fail.
	Fail func(site string) bool

	lastID atomic.Uint64
	live   atomic.Int64
	warned atomic.Int64
}

// Live is the number of tables that were not freed.
func (tg *Tegra) Live() int { return int(tg.live.Load()) }

// Warnings is how often a table was freed with DMA mappings on it.
func (tg *Tegra) Warnings() int { return int(tg.warned.Load()) }

func (tg *Tegra) fails(site string) bool { return tg.Fail != nil && tg.Fail(site) }

// The flags of a table.
const (
	TegraPinned = 1
	TegraMapped = 2
)

// A TegraTable is struct nvidia_p2p_page_table of this implementation.
type TegraTable struct {
	Version  uint32
	PageSize abi.PageSize
	Size     uint64
	Pages    []uint64 // physical addresses

	tg    *Tegra
	id    uint64
	mm    *MM
	vaddr uint64
	free  func(*Task, *TegraTable)
	hosts []*pcie.HostMemory

	// Guarded by MM.mu.
	flags  uint32
	caller *Task // of the callback, while it runs
	called bool  // it has returned
	freed  bool
	maps   []*TegraMapping
}

// Entries is the number of pages.
func (t *TegraTable) Entries() uint32 { return uint32(len(t.Pages)) }

// Flags are TegraPinned and TegraMapped.
func (t *TegraTable) Flags() uint32 {
	t.mm.mu.Lock()
	defer t.mm.mu.Unlock()
	return t.flags
}

// GetPages pins whole pages of user memory. free is called once, whichever way
// the pin ends, and must call FreePageTable.
func (tg *Tegra) GetPages(mm *MM, vaddr, size uint64, free func(*Task, *TegraTable)) (*TegraTable, error) {
	n := int(size / userPage)
	if n <= 0 || free == nil {
		return nil, syscall.EINVAL
	}
	if tg.fails("page_table") || tg.fails("pages") {
		return nil, syscall.ENOMEM
	}
	t := &TegraTable{
		Version: abi.TEGRA_P2P_PAGE_TABLE_VERSION, PageSize: abi.NVIDIA_P2P_PAGE_SIZE_4KB, Size: size,
		tg: tg, id: tg.lastID.Add(1), mm: mm, vaddr: vaddr, free: free, flags: TegraPinned,
	}
	parts := mm.find(vaddr&^(userPage-1), n)
	if parts == nil {
		return nil, syscall.ENOMEM // fewer pages than asked for
	}
	for _, mem := range parts {
		h, err := tg.Fabric.AddHost(mem)
		if err != nil {
			t.release()
			return nil, syscall.ENOMEM
		}
		t.hosts = append(t.hosts, h)
		for off := 0; off < len(mem); off += userPage {
			t.Pages = append(t.Pages, h.Phys()+uint64(off))
		}
	}
	if tg.fails("notifier") {
		t.release()
		return nil, syscall.ENOMEM
	}
	tg.live.Add(1)
	mm.mu.Lock()
	mm.pinned += len(t.Pages)
	mm.notifiers = append(mm.notifiers, t)
	mm.mu.Unlock()
	tg.Points.At("tegra.pinned", t.id)
	return t, nil
}

// release lets the pages go. It waits for DMA in flight.
func (t *TegraTable) release() {
	for _, h := range t.hosts {
		h.Remove()
	}
}

// callBack tells the client that the pin has ended. Whoever took the table from
// the notifier's list comes here.
func (t *TegraTable) callBack() {
	task := &Task{}
	t.mm.mu.Lock()
	t.caller = task
	t.mm.mu.Unlock()
	t.tg.Points.At("tegra.ending", t.id)
	t.free(task, t)
	t.tg.Points.At("tegra.called", t.id)
	t.mm.mu.Lock()
	defer t.mm.mu.Unlock()
	t.caller, t.called = nil, true
	t.mm.changed.Broadcast()
}

// PutPages ends a pin: it takes the notifier off, which calls the client back.
// Should the callback run already it waits for it; in the callback itself that
// would be for ever, and is refused with EDEADLK.
func (tg *Tegra) PutPages(task *Task, t *TegraTable) error {
	if t == nil || t.tg != tg {
		return syscall.EINVAL
	}
	tg.Points.At("tegra.put", t.id)
	t.mm.mu.Lock()
	if i := slices.Index(t.mm.notifiers, t); i >= 0 {
		t.mm.notifiers = slices.Delete(t.mm.notifiers, i, i+1)
		t.mm.mu.Unlock()
		t.callBack()
		return nil
	}
	if t.caller != nil && t.caller == task {
		t.mm.mu.Unlock()
		return syscall.EDEADLK
	}
	for !t.called {
		t.mm.changed.Wait()
	}
	t.mm.mu.Unlock()
	tg.Points.At("tegra.woken", t.id)
	return nil
}

// FreePageTable releases the pages, and DMA mappings that are left, with a
// warning.
func (tg *Tegra) FreePageTable(t *TegraTable) error {
	if t == nil || t.tg != tg {
		return syscall.EINVAL
	}
	tg.Points.At("tegra.free", t.id)
	t.mm.mu.Lock()
	if t.freed {
		t.mm.mu.Unlock()
		return syscall.EINVAL
	}
	t.freed = true
	maps := t.maps
	t.maps, t.flags = nil, 0
	t.mm.pinned -= len(t.Pages)
	t.mm.mu.Unlock()
	if len(maps) > 0 {
		tg.warned.Add(1)
	}
	for _, m := range maps {
		m.m.Unmap()
	}
	t.release()
	tg.live.Add(-1)
	return nil
}
