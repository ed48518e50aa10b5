package nvme_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io/fs"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	abi "github.com/culvert-io/culvert/internal/abi/nvme"
	"github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/soft/nvme"
	"github.com/culvert-io/culvert/soft/pcie"
	"github.com/culvert-io/culvert/soft/pcie/syncpoint"
)

func TestMediumErrors(t *testing.T) {
	r := newRaw(t, options{})
	r.enable(8)
	q := r.queue(1, 8)
	data := r.alloc(2)
	heal := r.c.FailBlock(1, 20, nvme.Read)
	healWrite := r.c.FailBlock(1, 30, nvme.Write)
	copy(r.mem[data:], bytes.Repeat([]byte{3}, 2*page))
	q.status("read up to the bad block", r.rw(abi.NVM_READ, 4, 16, data), abi.SUCCESS)
	copy(r.mem[data:], bytes.Repeat([]byte{3}, 2*page))
	q.status("read of the bad block", r.rw(abi.NVM_READ, 20, 1, data), abi.UNRECOVERED_READ)
	q.status("read over the bad block", r.rw(abi.NVM_READ, 13, 16, data), abi.UNRECOVERED_READ)
	q.status("write of a block that cannot be read", r.rw(abi.NVM_WRITE, 20, 1, data), abi.SUCCESS)
	q.status("write of the other bad block", r.rw(abi.NVM_WRITE, 30, 1, data), abi.WRITE_FAULT)
	q.status("zeroing it", r.rw(abi.NVM_WRITE_ZEROES, 25, 10, data), abi.WRITE_FAULT)
	q.status("reading it", r.rw(abi.NVM_READ, 30, 1, data), abi.SUCCESS)
	if !bytes.Equal(r.mem[data+512:][:page], bytes.Repeat([]byte{3}, page)) {
		t.Error("a read that failed wrote to memory")
	}
	heal()
	heal()
	healWrite()
	q.status("read of the healed block", r.rw(abi.NVM_READ, 20, 1, data), abi.SUCCESS)
	q.status("write of the healed block", r.rw(abi.NVM_WRITE, 30, 1, data), abi.SUCCESS)
}

func TestStallAndAbort(t *testing.T) {
	r := newRaw(t, options{})
	r.enable(8)
	q := r.queue(1, 8)
	r.c.Stall(2)
	for cid := range 3 {
		q.push(abi.Command{Opcode: abi.NVM_FLUSH, NSID: 1, CID: uint16(cid)})
		q.ring()
		if cid < 2 {
			r.wait("a command to be held up", func() bool { return r.c.Parked() == cid+1 })
		}
	}
	if e := q.pop(true); abi.CID(e.DW3) != 2 {
		t.Errorf("command %d was answered, want 2", abi.CID(e.DW3))
	}
	if e := r.must(r.admin.do(abi.Command{Opcode: abi.ADMIN_ABORT, CDW10: 1<<16 | 1})); e.DW0 != 0 {
		t.Errorf("abort: %#x", e.DW0)
	}
	if e := q.pop(true); abi.CID(e.DW3) != 1 || abi.StatusOf(e.DW3) != abi.ABORT_REQUESTED {
		t.Errorf("%+v", e)
	}
	// Deleting the queue answers the other.
	r.must(r.admin.do(abi.Command{Opcode: abi.ADMIN_DELETE_SQ, CDW10: 1}))
	if e := q.pop(true); abi.CID(e.DW3) != 0 || abi.StatusOf(e.DW3) != abi.ABORTED_SQ_DELETION {
		t.Errorf("%+v", e)
	}
}

func TestTamper(t *testing.T) {
	r := newRaw(t, options{})
	r.enable(8)
	q := r.queue(1, 8)
	flush := abi.Command{Opcode: abi.NVM_FLUSH, NSID: 1, CID: 5}
	r.c.Tamper(func(e nvme.Completion) []nvme.Completion { return []nvme.Completion{e, e} })
	r.must(q.do(flush))
	r.must(q.pop(true))
	r.c.Tamper(func(e nvme.Completion) []nvme.Completion {
		e.DW3 |= 1 << 16
		return []nvme.Completion{e}
	})
	before := r.c.Stats().Posted
	q.push(flush)
	q.ring()
	r.wait("the entry", func() bool { return r.c.Stats().Posted > before })
	if q.peek() {
		t.Error("an entry with the wrong phase tag shows")
	}
	r.c.Tamper(nil)
}

func TestFatal(t *testing.T) {
	r := newRaw(t, options{})
	r.enable(8)
	q := r.queue(1, 8)
	r.must(q.do(abi.Command{Opcode: abi.NVM_FLUSH, NSID: 1}))
	r.c.Fail()
	if r.csts()&abi.CSTS_CFS == 0 {
		t.Error("CFS is not set")
	}
	before := r.c.Stats()
	q.push(abi.Command{Opcode: abi.NVM_FLUSH, NSID: 1})
	q.ring()
	r.disable()
	if r.csts() != 0 || r.c.Stats() != before {
		t.Errorf("CSTS %#x, %+v, before %+v", r.csts(), r.c.Stats(), before)
	}
	r.enableAgain()
	r.must(r.admin.do(q.createCQ()))
}

// TestQueueMemoryLost takes the memory of a queue away.
func TestQueueMemoryLost(t *testing.T) {
	r := newRaw(t, options{iommu: pcie.Translating})
	r.enable(8)
	q := &rawQueue{r: r, id: 1, n: 8, sq: r.alloc(1), cq: r.alloc(1), phase: true}
	for name, change := range map[string]func(cq, sq *abi.Command){
		"completion queue": func(cq, _ *abi.Command) { cq.PRP1 = 1 << 40 },
		"submission queue": func(_, sq *abi.Command) { sq.PRP1 = 1 << 40 },
	} {
		cq, sq := q.createCQ(), q.createSQ(1)
		change(&cq, &sq)
		r.must(r.admin.do(cq))
		r.must(r.admin.do(sq))
		q.tail = 0
		q.push(abi.Command{Opcode: abi.NVM_FLUSH, NSID: 1})
		q.ring()
		r.wait(name, func() bool { return r.csts()&abi.CSTS_CFS != 0 })
		r.disable()
		r.enableAgain()
	}
}

func TestHangNeedsAFunctionReset(t *testing.T) {
	r := newRaw(t, options{})
	r.enable(8)
	r.c.Hang()
	r.c.Store32(abi.REG_CC, 0)
	if r.csts() != abi.CSTS_RDY {
		t.Errorf("CSTS is %#x", r.csts())
	}
	r.check(r.c.Reset())
	if r.csts() != 0 || r.c.Load32(abi.REG_CC) != 0 {
		t.Errorf("after the reset: CSTS %#x, CC %#x", r.csts(), r.c.Load32(abi.REG_CC))
	}
	r.enableAgain()
	r.must(r.admin.do(abi.Command{Opcode: abi.ADMIN_GET_FEATURES, CDW10: abi.FEAT_VWC}))
	r.c.Store32(abi.REG_CC, r.c.Load32(abi.REG_CC)|abi.CC_SHN_NORMAL)
	r.wait("the shutdown", func() bool { return r.csts()&abi.CSTS_SHST_MASK == abi.CSTS_SHST_COMPLETE })
}

func TestBadAdminQueues(t *testing.T) {
	r := newRaw(t, options{})
	q := r.alloc(2)
	good := func() {
		r.c.Store32(abi.REG_AQA, 7<<16|7)
		r.c.Store64(abi.REG_ASQ, r.bus+uint64(q))
		r.c.Store64(abi.REG_ACQ, r.bus+uint64(q+page))
	}
	for name, bad := range map[string]func() uint32{
		"admin queue of one entry": func() uint32 { r.c.Store32(abi.REG_AQA, 7<<16); return 0 },
		"odd address":              func() uint32 { r.c.Store64(abi.REG_ASQ, r.bus+64); return 0 },
		"no address":               func() uint32 { r.c.Store64(abi.REG_ACQ, 0); return 0 },
		"page size":                func() uint32 { return 5 << abi.CC_MPS_SHIFT },
		"command set":              func() uint32 { return 1 << abi.CC_CSS_SHIFT },
	} {
		good()
		r.c.Store32(abi.REG_CC, abi.CC_EN|bad())
		r.wait(name, func() bool { return r.csts() == abi.CSTS_CFS })
		r.c.Store32(abi.REG_CC, 0)
		r.wait(name, func() bool { return r.csts() == 0 })
	}
}

// TestUnplugUnderIO takes the drive out while it accesses memory.
func TestUnplugUnderIO(t *testing.T) {
	var points syncpoint.Points
	r := newRaw(t, options{cfg: nvme.Config{Points: &points}})
	r.enable(8)
	q := r.queue(1, 8)
	m, err := r.c.MapBAR(page, unix.PROT_READ|unix.PROT_WRITE)
	r.check(err)
	gate := points.Stop("nvme.acquired")
	q.push(r.rw(abi.NVM_READ, 0, 8, r.alloc(1)))
	q.ring()
	<-gate.Arrived()
	r.c.Unplug()
	gate.Open()
	if v := r.csts(); v != abi.GONE {
		t.Errorf("CSTS is %#x", v)
	}
	if v := r.c.Load64(abi.REG_CAP); v != 1<<64-1 {
		t.Errorf("CAP is %#x", v)
	}
	r.wait("the mapping to show it", func() bool { return load(m, abi.REG_CSTS) == abi.GONE })
	r.c.Store32(abi.REG_CC, 0)
	r.check(m.Unmap())
	if q.peek() {
		t.Error("a drive that is gone posted a completion")
	}
}

func load(m dev.Mapping, off int) uint32 {
	return atomic.LoadUint32((*uint32)(unsafe.Pointer(&dev.Bytes(m)[off])))
}

func store(m dev.Mapping, off uint64, v uint32) {
	atomic.StoreUint32((*uint32)(unsafe.Pointer(&dev.Bytes(m)[off])), v)
}

// TestMappedRegisters drives the controller by stores to memory alone.
func TestMappedRegisters(t *testing.T) {
	r := newRaw(t, options{})
	for _, n := range []int{0, -1, int(r.c.BARSize()) + 1} {
		if _, err := r.c.MapBAR(n, unix.PROT_READ); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("map %d bytes: %v", n, err)
		}
	}
	m, err := r.c.MapBAR(0x2000, unix.PROT_READ|unix.PROT_WRITE)
	r.check(err)
	q := &rawQueue{r: r, n: 8, sq: r.alloc(1), cq: r.alloc(1), phase: true}
	cap := load(m, abi.REG_CAP)
	store(m, abi.REG_CAP, 0)
	r.wait("CAP to come back", func() bool { return load(m, abi.REG_CAP) == cap })
	store(m, abi.SQTDBL(0, 0), 3) // too early, to be forgotten
	store(m, abi.REG_AQA, 7<<16|7)
	store(m, abi.REG_ASQ, uint32(r.bus)+uint32(q.sq))
	store(m, abi.REG_ASQ+4, uint32(r.bus>>32))
	store(m, abi.REG_ACQ, uint32(r.bus)+uint32(q.cq))
	store(m, abi.REG_ACQ+4, uint32(r.bus>>32))
	store(m, abi.REG_CC, abi.CC_EN)
	r.wait("RDY", func() bool { return load(m, abi.REG_CSTS)&abi.CSTS_RDY != 0 })
	for i := range 20 { // twice round the queue and more
		q.push(abi.Command{Opcode: abi.ADMIN_GET_FEATURES, CDW10: abi.FEAT_VWC, CID: uint16(i)})
		store(m, abi.SQTDBL(0, 0), q.tail)
		if e := r.must(q.pop(false)); abi.CID(e.DW3) != uint16(i) || e.DW0 != 1 {
			t.Fatalf("%+v", e)
		}
		store(m, abi.CQHDBL(0, 0), q.head)
	}
	store(m, abi.REG_CC, 0)
	r.wait("RDY to go", func() bool { return load(m, abi.REG_CSTS)&abi.CSTS_RDY == 0 })
	r.check(m.Unmap())
	r.check(m.Unmap())
}

// TestPeerRingsDoorbell has another device ring by DMA, as a GPU may.
func TestPeerRingsDoorbell(t *testing.T) {
	if raceEnabled {
		t.Skip("needs a peer whose stores are atomic: a DMA engine copies bytes")
	}
	r := newRaw(t, options{})
	r.enable(8)
	q := r.queue(1, 8)
	q.push(abi.Command{Opcode: abi.NVM_FLUSH, NSID: 1})
	var tail [4]byte
	binary.LittleEndian.PutUint32(tail[:], q.tail)
	e := pcie.Engine{Port: r.c.Function()}
	_, err := e.Write([]pcie.Range{{Bus: r.c.BAR().Base() + abi.SQTDBL(1, 0), Len: 4}}, tail[:])
	r.check(err)
	r.must(q.pop(true))
}

// TestResetUnderIO resets while commands are in flight: after RDY is 0 no
// memory is accessed, and nothing is posted.
func TestResetUnderIO(t *testing.T) {
	var points syncpoint.Points
	r := newRaw(t, options{cfg: nvme.Config{Points: &points}})
	r.enable(8)
	q := r.queue(1, 8)
	gate := points.Stop("nvme.acquired")
	data := r.alloc(1)
	copy(r.mem[data:], bytes.Repeat([]byte{1}, page))
	q.push(r.rw(abi.NVM_READ, 0, 8, data))
	q.ring()
	<-gate.Arrived()
	r.c.Store32(abi.REG_CC, 0)
	if r.csts()&abi.CSTS_RDY == 0 {
		t.Error("RDY is 0 while memory is on access")
	}
	gate.Open()
	r.wait("RDY to go", func() bool { return r.csts()&abi.CSTS_RDY == 0 })
	if n := r.m.Fabric().Usage().Accesses; n != 0 {
		t.Errorf("%d accesses are out after the reset", n)
	}
	r.enableAgain()
}

// TestManyQueues has several queues busy at once from several goroutines.
func TestManyQueues(t *testing.T) {
	r := newRaw(t, options{cfg: nvme.Config{Queues: 4}})
	r.enable(8)
	var qs []*rawQueue
	var datas []int
	for i := range 4 {
		qs = append(qs, r.queue(uint16(i+1), 8))
		datas = append(datas, r.alloc(1))
	}
	var all sync.WaitGroup
	for i, q := range qs {
		all.Go(func() {
			for n := range 200 {
				for k := range 3 {
					cmd := r.rw(abi.NVM_WRITE, uint64(i*64+k*8), 8, datas[i])
					cmd.CID = uint16(n*3 + k)
					q.push(cmd)
				}
				q.ring()
				seen := map[uint16]bool{}
				for range 3 {
					seen[abi.CID(r.must(q.pop(true)).DW3)] = true
				}
				if len(seen) != 3 {
					t.Errorf("queue %d, round %d: answers to %v", i, n, seen)
				}
			}
		})
	}
	all.Wait()
	if got := r.c.Stats().Commands; got != 8+4*200*3 {
		t.Errorf("%d commands", got)
	}
}

func TestConfigErrors(t *testing.T) {
	r := newRaw(t, options{})
	for _, cfg := range []nvme.Config{
		{Queues: -1},
		{Queues: 1 << 16},
		{Entries: 1},
		{Entries: 1<<16 + 1},
		{MaxTransfer: 4096},
		{MaxTransfer: 24576},
		{Stride: 16},
		{Workers: -1},
		{Serial: "123456789012345678901"},
		{Namespaces: []nvme.Namespace{{BlockSize: 1000}}},
		{Namespaces: []nvme.Namespace{{BlockSize: 8192}}},
	} {
		if _, err := nvme.New(r.c.Function(), cfg); err == nil {
			t.Errorf("%+v was accepted", cfg)
		}
	}
}

func TestResetAfterClose(t *testing.T) {
	r := openRaw(t, t.TempDir(), options{})
	r.close()
	if err := r.c.Reset(); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("reset of a closed controller: %v", err)
	}
}
