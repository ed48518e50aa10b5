package p2p

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/culvert-io/culvert/gpu"
	abi "github.com/culvert-io/culvert/internal/abi/p2p"
	"github.com/culvert-io/culvert/soft/pcie"
)

func TestGetPagesErrors(t *testing.T) {
	r := newFixture(t, setup{gpus: 2})
	defer r.close()
	a, b := r.alloc(2<<20), r.alloc(2<<20)
	host, err := r.dev.Alloc(gpu.KindHost, 2<<20, 0)
	r.check(err)
	managed, err := r.dev.Alloc(gpu.KindManaged, 2<<20, 0)
	r.check(err)
	gone := r.alloc(2 << 20)
	r.free(gone)
	cb := func(*Task, *PageTable) { t.Error("called back") }
	for _, tc := range []struct {
		name  string
		va, n uint64
	}{
		{"address 0", 0, PageSize},
		{"length 0", a, 0},
		{"address in a page", a + 4096, PageSize},
		{"length not of pages", a, PageSize + 1},
		{"length below a page", a, 4096},
		{"wraps", a, -PageSize & (1<<64 - 1)},
		{"past the end", a + PageSize, 2 << 20},
		{"two allocations", a, b - a + PageSize},
		{"host memory", uint64(host), PageSize},
		{"managed memory", uint64(managed), PageSize},
		{"freed memory", gone, PageSize},
		{"no GPU's", 1 << 20, PageSize},
	} {
		if table, err := r.rm.GetPages(r.task, tc.va, tc.n, cb); table != nil || !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%s: %v, want EINVAL", tc.name, err)
		}
		if table, err := r.rm.GetPagesPersistent(r.task, tc.va, tc.n, 0); table != nil || !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%s, persistent: %v, want EINVAL", tc.name, err)
		}
		if r.rm.Live() != 0 || r.rm.BAR1Used(0) != 0 {
			t.Fatalf("%s: something stayed pinned", tc.name)
		}
	}
	if _, err := r.rm.GetPages(r.task, a, PageSize, nil); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("no callback: %v", err)
	}
	for flags, want := range map[uint32]error{2: syscall.EINVAL, 3: syscall.EINVAL, abi.NVIDIA_P2P_FLAGS_FORCE_BAR1_MAPPING: abi.ENOTSUPP} {
		if _, err := r.rm.GetPagesPersistent(r.task, a, PageSize, flags); !errors.Is(err, want) {
			t.Errorf("flags %d: %v, want %v", flags, err, want)
		}
	}
	r.rm.cards[1].port.Unplug()
	second, err := r.drv.Open(1)
	r.check(err)
	defer second.Close()
	c, err := second.Alloc(gpu.KindDevice, 2<<20, 0)
	r.check(err)
	if _, err := r.rm.GetPagesPersistent(r.task, uint64(c), PageSize, 0); !errors.Is(err, syscall.ENODEV) {
		t.Errorf("unplugged GPU: %v", err)
	}
	r.check(r.dev.Free(host))
	r.check(r.dev.Free(managed))
}

// Invariant B: entries = len / 65536, and the table says what it is.
func TestEntriesPerPage(t *testing.T) {
	r := newFixture(t, setup{})
	defer r.close()
	va := r.alloc(4 << 20)
	for n := uint64(PageSize); n <= 4<<20; n += 7 * PageSize {
		table, _ := r.pin(va, n)
		if table.Entries() != uint32(n/65536) || table.UUID != r.dev.Info().UUID {
			t.Errorf("%d bytes: %d entries, %+v", n, table.Entries(), table)
		}
		m, err := r.rm.DMAMapPages(r.near, table)
		r.check(err)
		if len(m.Addresses) != len(table.Pages) {
			t.Errorf("mapping of %d bytes: %+v", n, m)
		}
		r.put(va, table)
	}
}

func TestOtherCalls(t *testing.T) {
	r := newFixture(t, setup{})
	defer r.close()
	va := r.alloc(2 << 20)
	table, _ := r.pin(va, PageSize)
	persistent, err := r.rm.GetPagesPersistent(r.task, va, PageSize, 0)
	r.check(err)
	m, err := r.rm.DMAMapPages(r.near, table)
	r.check(err)
	other := newFixture(t, setup{})
	defer other.close()
	for name, tc := range map[string]struct {
		err  error
		want error
	}{
		"put nothing":                    {r.rm.PutPages(r.task, va, nil), nil},
		"put nothing, persistent":        {r.rm.PutPagesPersistent(r.task, va, nil, 0), nil},
		"put at another address":         {r.rm.PutPages(r.task, va+PageSize, table), syscall.EINVAL},
		"put a table of nobody":          {r.rm.PutPages(r.task, va, &PageTable{}), syscall.EINVAL},
		"put into another RM":            {other.rm.PutPages(r.task, va, table), syscall.EINVAL},
		"put with flags":                 {r.rm.PutPagesPersistent(r.task, va, persistent, 1), syscall.EINVAL},
		"map nothing":                    {mapErr(r.rm.DMAMapPages(r.near, nil)), syscall.EINVAL},
		"map for nobody":                 {mapErr(r.rm.DMAMapPages(nil, table)), syscall.EINVAL},
		"map a table of nobody":          {mapErr(r.rm.DMAMapPages(r.near, &PageTable{})), syscall.EINVAL},
		"map a table without a UUID":     {mapErr(r.rm.DMAMapPages(r.near, &PageTable{pin: table.pin})), syscall.EINVAL},
		"unmap nothing":                  {r.rm.DMAUnmapPages(r.near, table, nil), syscall.EINVAL},
		"unmap of no table":              {r.rm.DMAUnmapPages(r.near, nil, m), syscall.EINVAL},
		"unmap of another table":         {r.rm.DMAUnmapPages(r.near, persistent, m), syscall.EINVAL},
		"unmap for nobody":               {r.rm.DMAUnmapPages(nil, table, m), syscall.EINVAL},
		"map a page of nobody for a CPU": {vmaErr(r.rm.Mmap(&PageTable{}, 0, 4096, 0)), syscall.EINVAL},
	} {
		if !errors.Is(tc.err, tc.want) {
			t.Errorf("%s: %v, want %v", name, tc.err, tc.want)
		}
	}
	if err := r.rm.Close(); err == nil || !strings.Contains(err.Error(), "2 pins") {
		t.Errorf("Close with pins: %v", err)
	}
	r.put(va, table)
	r.check(r.rm.PutPagesPersistent(r.task, va, persistent, 0))
}

func mapErr(_ *DMAMapping, err error) error { return err }
func vmaErr(_ *VMA, err error) error        { return err }

// Invariant B: put_pages_persistent on a non-persistent table, or the reverse,
// is a caller error that the model rejects.
func TestWrongPutIsRejected(t *testing.T) {
	r := newFixture(t, setup{})
	defer r.close()
	va := r.alloc(2 << 20)
	table, _ := r.pin(va, PageSize)
	persistent, err := r.rm.GetPagesPersistent(r.task, va, PageSize, 0)
	r.check(err)
	if err := r.rm.PutPages(r.task, va, persistent); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("put of a persistent pin: %v", err)
	}
	if err := r.rm.PutPagesPersistent(r.task, va, table, 0); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("persistent put of a pin: %v", err)
	}
	if r.rm.Live() != 2 {
		t.Errorf("%d pins are left of 2", r.rm.Live())
	}
	r.put(va, table)
	if err := r.rm.PutPages(r.task, va, table); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("second put: %v", err)
	}
	r.check(r.rm.PutPagesPersistent(r.task, va, persistent, 0))
}

func TestForceBAR1(t *testing.T) {
	r := newFixture(t, setup{force: true})
	defer r.close()
	va := r.alloc(2 << 20)
	forced, err := r.rm.GetPagesPersistent(r.task, va, PageSize, abi.NVIDIA_P2P_FLAGS_FORCE_BAR1_MAPPING)
	r.check(err)
	plain, err := r.rm.GetPagesPersistent(r.task, va, PageSize, 0)
	r.check(err)
	_, err = r.rm.DMAMapPages(r.near, plain)
	r.check(err)
	if _, err := r.rm.DMAMapPages(r.near, forced); !errors.Is(err, abi.ENOTSUPP) {
		t.Errorf("DMA mapping of a forced pin: %v", err)
	}
	r.check(r.rm.PutPagesPersistent(r.task, va, forced, 0))
	r.check(r.rm.PutPagesPersistent(r.task, va, plain, 0))
}

// Each allocation on the way fails in turn; nothing stays behind, and the next
// try succeeds.
func TestFailureAtEveryAllocation(t *testing.T) {
	for failing := 0; ; failing++ {
		calls, armed := 0, true
		r := newFixture(t, setup{fail: func(string) bool { calls++; return armed && calls == failing }})
		va := r.alloc(2 << 20)
		try := func() error {
			table, err := r.rm.GetPages(r.task, va, 2*PageSize, func(*Task, *PageTable) {})
			if err != nil {
				return err
			}
			defer r.put(va, table)
			_, err = r.rm.DMAMapPages(r.near, table)
			return err
		}
		err := try()
		if failing > 0 && calls >= failing && !errors.Is(err, syscall.ENOMEM) {
			t.Errorf("allocation %d fails: %v, want ENOMEM", failing, err)
		}
		done := calls < failing
		armed = false
		if err := try(); err != nil {
			t.Errorf("after the failure of allocation %d: %v", failing, err)
		}
		r.close()
		if done {
			if failing < 9 {
				t.Errorf("only %d allocations were asked for", failing-1)
			}
			return
		}
	}
}

// Invariant B: the lookup key is the calling process. Memory of another process
// cannot be pinned.
func TestProcesses(t *testing.T) {
	r := newFixture(t, setup{})
	defer r.close()
	mine, theirs := r.alloc(2<<20), r.alloc(2<<20)
	other := &Process{PID: 2}
	r.check(r.rm.Give(other, gpu.Addr(theirs)))
	for _, tc := range []struct {
		p    *Process
		va   uint64
		want error
	}{
		{r.rm.Self, mine, nil},
		{other, theirs, nil},
		{r.rm.Self, theirs, syscall.EINVAL},
		{other, mine, syscall.EINVAL},
		{&Process{PID: 3}, mine, syscall.EINVAL},
		{&Process{PID: 3}, theirs, syscall.EINVAL},
	} {
		table, err := r.rm.GetPagesPersistent(tc.p.Task(), tc.va, PageSize, 0)
		if !errors.Is(err, tc.want) {
			t.Errorf("process %d pins: %v, want %v", tc.p.PID, err, tc.want)
		}
		if err == nil {
			r.check(r.rm.PutPagesPersistent(tc.p.Task(), tc.va, table, 0))
		}
	}
	for _, va := range []uint64{0, theirs + 64<<20} {
		if err := r.rm.Give(other, gpu.Addr(va)); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("give %#x: %v", va, err)
		}
	}
	r.free(theirs)
	if len(r.rm.owners) != 0 {
		t.Error("the owner of freed memory is still known")
	}
}

// A process that exits with pins held loses them: its memory is freed.
func TestExitWithPins(t *testing.T) {
	r := newFixture(t, setup{})
	defer r.close()
	p := &Process{PID: 2}
	va := r.alloc(2 << 20)
	r.check(r.rm.Give(p, gpu.Addr(va)))
	order := ""
	p.OnExit(func() { order += "memory "; r.free(va) })
	cancel := p.OnExit(func() { order += "cancelled " })
	p.OnExit(func() { order += "file " })
	cancel()
	calls := 0
	table, err := r.rm.GetPages(p.Task(), va, PageSize, func(*Task, *PageTable) { calls++ })
	r.check(err)
	p.Exit()
	p.Exit()
	if calls != 1 || order != "memory file " {
		t.Errorf("called back %d times, in the order %s", calls, order)
	}
	if err := r.rm.PutPages(p.Task(), va, table); err != nil {
		t.Errorf("put after exit: %v", err)
	}
}

// nvidia_p2p maps regardless of the topology; the fabric decides.
func TestMapsRegardlessOfTopology(t *testing.T) {
	r := newFixture(t, setup{})
	defer r.close()
	lonely, err := r.fabric.AddHostBridge(pcie.ForwardNone).AddRootPort("root9")
	r.check(err)
	fn, err := lonely.AddFunction("lonely")
	r.check(err)
	va := r.alloc(2 << 20)
	table, _ := r.pin(va, PageSize)
	m, err := r.rm.DMAMapPages(fn, table)
	r.check(err)
	e := pcie.Engine{Port: fn}
	if _, err := e.Write(ranges(m.Addresses), make([]byte, 8)); !errors.Is(err, pcie.ErrNoRoute) {
		t.Errorf("the fabric says %v", err)
	}
	r.put(va, table)
}

// A resource manager that cannot be made leaves nothing on the fabric.
func TestNewRMFails(t *testing.T) {
	r := newFixture(t, setup{})
	defer r.close()
	_, err := NewRM(Config{GPUs: r.drv, Ports: []*pcie.Function{r.near, r.far}})
	if err == nil || !strings.Contains(err.Error(), "GPU 1") {
		t.Errorf("more ports than GPUs: %v", err)
	}
}
