package nvme_test

import (
	"bytes"
	"testing"
	"time"
	"unsafe"

	abi "github.com/culvert-io/culvert/internal/abi/nvme"
	"github.com/culvert-io/culvert/soft/nvme"
	"github.com/culvert-io/culvert/soft/pcie"
)

func TestBringUp(t *testing.T) {
	r := newRaw(t, options{cfg: nvme.Config{Entries: 64, Stride: 2}})
	cap := abi.CAP(r.c.Load64(abi.REG_CAP))
	if cap.MQES() != 63 || cap.DSTRD() != 2 || !cap.CQR() || cap.CSS()&1 == 0 || r.c.Load32(abi.REG_VS) != 0x10400 {
		t.Errorf("CAP %#x, VS %#x", uint64(cap), r.c.Load32(abi.REG_VS))
	}
	if got := uint64(r.c.Load32(0)) | uint64(r.c.Load32(4))<<32; got != uint64(cap) {
		t.Errorf("CAP in halves is %#x", got)
	}
	r.c.Store32(abi.REG_CAP, 0)
	r.c.Store32(abi.REG_CSTS, 3)
	if r.c.Load64(abi.REG_CAP) != uint64(cap) || r.csts() != 0 {
		t.Error("registers that cannot be written were")
	}
	for range 3 {
		r.used = 0
		r.enable(8)
		q := r.queue(1, 16)
		r.must(q.do(r.rw(abi.NVM_READ, 0, 8, r.alloc(2))))
		r.disable()
	}
}

// TestNothingBeforeReady rings doorbells before the controller is up and after
// it is down.
func TestNothingBeforeReady(t *testing.T) {
	r := newRaw(t, options{})
	r.c.Store32(abi.SQTDBL(0, 0), 1)
	r.c.Store32(abi.SQTDBL(1, 0), 1)
	r.enable(8)
	time.Sleep(5 * time.Millisecond) // for a controller that would go after it
	if n := r.c.Stats().Commands; n != 0 {
		t.Errorf("%d commands were fetched for doorbells that were rung too early", n)
	}
	q := r.queue(1, 8)
	r.must(q.do(abi.Command{Opcode: abi.NVM_FLUSH, NSID: 1}))
	before := r.c.Stats()
	r.disable()
	for off := uint64(abi.REG_SQ0TD); off < abi.REG_SQ0TD+32; off += 4 {
		if v := r.c.Load32(off); v != 0 {
			t.Errorf("doorbell %#x is %d after the reset", off, v)
		}
	}
	q.push(abi.Command{Opcode: abi.NVM_FLUSH, NSID: 1})
	q.ring()
	r.enableAgain()
	r.admin.status("create a submission queue whose completion queue went with the reset", q.createSQ(1), abi.CQ_INVALID)
	if got := r.c.Stats().Commands - before.Commands; got != 1 {
		t.Errorf("%d commands were fetched after the reset, want the last one alone", got)
	}
}

func TestIdentify(t *testing.T) {
	m := memory(t, 1000) // ends inside a block
	r := newRaw(t, options{cfg: nvme.Config{
		Namespaces: []nvme.Namespace{{Medium: m}, {Medium: memory(t, 1<<20), BlockSize: 4096}},
		Serial:     "S1", MaxTransfer: 128 << 10, Queues: 3,
	}})
	r.enable(8)
	data := r.alloc(1)
	id := func(cns, nsid uint32) abi.Command {
		return abi.Command{Opcode: abi.ADMIN_IDENTIFY, NSID: nsid, PRP1: r.bus + uint64(data), CDW10: cns}
	}
	r.must(r.admin.do(id(abi.CNS_CONTROLLER, 0)))
	c := (*abi.IdentifyController)(unsafe.Pointer(&r.mem[data]))
	if c.MDTS != 5 || c.SQES != 0x66 || c.CQES != 0x44 || c.NN != 2 || string(c.SN[:]) != "S1                  " {
		t.Errorf("MDTS %d, SQES %#x, CQES %#x, NN %d, SN %q", c.MDTS, c.SQES, c.CQES, c.NN, c.SN)
	}
	ns := (*abi.IdentifyNamespace)(unsafe.Pointer(&r.mem[data]))
	for i, want := range []struct {
		size uint64
		ds   uint8
	}{{2, 9}, {256, 12}} {
		r.must(r.admin.do(id(abi.CNS_NAMESPACE, uint32(i+1))))
		if ns.NSZE != want.size || ns.LBAF[ns.FLBAS&abi.FLBAS_INDEX_MASK].LBADS != want.ds {
			t.Errorf("namespace %d: %d blocks of 2^%d", i+1, ns.NSZE, ns.LBAF[0].LBADS)
		}
	}
	r.must(r.admin.do(id(abi.CNS_ACTIVE_NAMESPACE, 1)))
	if list := (*abi.NamespaceList)(unsafe.Pointer(&r.mem[data])); list[0] != 2 || list[1] != 0 {
		t.Errorf("namespaces after 1: %v", list[:3])
	}
	for _, nsid := range []uint32{0, 3, abi.NSID_ALL} {
		r.admin.status("identify a namespace that is not there", id(abi.CNS_NAMESPACE, nsid), abi.INVALID_NAMESPACE)
	}
	r.admin.status("identify what is not there", id(0x55, 0), abi.INVALID_FIELD)
	e := r.must(r.admin.do(abi.Command{Opcode: abi.ADMIN_SET_FEATURES, CDW10: abi.FEAT_NUM_QUEUES, CDW11: 7<<16 | 7}))
	if e.DW0 != 2<<16|2 {
		t.Errorf("granted queues: %#x, want 3 of each, less one", e.DW0)
	}
}

func TestAdminErrors(t *testing.T) {
	r := newRaw(t, options{cfg: nvme.Config{Queues: 2, Entries: 32}})
	r.enable(8)
	a := r.admin
	q := &rawQueue{r: r, id: 1, n: 16, sq: r.alloc(1), cq: r.alloc(1), phase: true}
	with := func(cmd abi.Command, change func(*abi.Command)) abi.Command {
		change(&cmd)
		return cmd
	}
	size := func(n uint32) func(*abi.Command) {
		return func(c *abi.Command) { c.CDW10 = c.CDW10&0xffff | (n-1)<<abi.QUEUE_SIZE_SHIFT }
	}
	id := func(n uint32) func(*abi.Command) {
		return func(c *abi.Command) { c.CDW10 = c.CDW10&^0xffff | n }
	}
	a.status("create SQ without CQ", q.createSQ(1), abi.CQ_INVALID)
	a.status("create CQ 0", with(q.createCQ(), id(0)), abi.INVALID_QUEUE_ID)
	a.status("create CQ 3 of 2", with(q.createCQ(), id(3)), abi.INVALID_QUEUE_ID)
	a.status("create CQ of 1 entry", with(q.createCQ(), size(1)), abi.INVALID_QUEUE_SIZE)
	a.status("create CQ of 33 entries", with(q.createCQ(), size(33)), abi.INVALID_QUEUE_SIZE)
	a.status("create CQ at an odd address", with(q.createCQ(), func(c *abi.Command) { c.PRP1 += 64 }), abi.PRP_OFFSET_INVALID)
	a.status("create CQ in pieces", with(q.createCQ(), func(c *abi.Command) { c.CDW11 &^= abi.QUEUE_PC }), abi.INVALID_FIELD)
	a.status("create CQ with vector 3", with(q.createCQ(), func(c *abi.Command) { c.CDW11 |= 3 << abi.CQ_IV_SHIFT }), abi.INVALID_INTERRUPT_VECTOR)
	r.must(a.do(q.createCQ()))
	a.status("create CQ twice", q.createCQ(), abi.INVALID_QUEUE_ID)
	a.status("number of queues, too late", abi.Command{Opcode: abi.ADMIN_SET_FEATURES, CDW10: abi.FEAT_NUM_QUEUES}, abi.COMMAND_SEQUENCE_ERROR)
	a.status("create SQ on CQ 0", q.createSQ(0), abi.CQ_INVALID)
	r.must(a.do(q.createSQ(1)))
	a.status("create SQ twice", q.createSQ(1), abi.INVALID_QUEUE_ID)
	del := func(op uint8, id uint32) abi.Command { return abi.Command{Opcode: op, CDW10: id} }
	a.status("delete CQ that is used", del(abi.ADMIN_DELETE_CQ, 1), abi.INVALID_QUEUE_DELETION)
	for _, id := range []uint32{0, 2, 99} {
		a.status("delete SQ that is not there", del(abi.ADMIN_DELETE_SQ, id), abi.INVALID_QUEUE_ID)
		a.status("delete CQ that is not there", del(abi.ADMIN_DELETE_CQ, id), abi.INVALID_QUEUE_ID)
	}
	r.must(a.do(del(abi.ADMIN_DELETE_SQ, 1)))
	r.must(a.do(del(abi.ADMIN_DELETE_CQ, 1)))
	a.status("an opcode that is none", abi.Command{Opcode: 0xc5}, abi.INVALID_OPCODE)
	a.status("a fused command", abi.Command{Opcode: abi.ADMIN_IDENTIFY, Flags: 1}, abi.INVALID_FIELD)
	a.status("a feature that is none", abi.Command{Opcode: abi.ADMIN_GET_FEATURES, CDW10: 0x77}, abi.INVALID_FIELD)
	if e := r.must(a.do(abi.Command{Opcode: abi.ADMIN_ABORT, CDW10: 7<<16 | 1})); e.DW0 != abi.ABORT_NOT_DONE {
		t.Errorf("abort of nothing: %#x", e.DW0)
	}
	// All of it left the controller in order.
	q = r.queue(2, 32)
	r.must(q.do(abi.Command{Opcode: abi.NVM_FLUSH, NSID: abi.NSID_ALL}))
}

func TestIOErrors(t *testing.T) {
	r := newRaw(t, options{cfg: nvme.Config{MaxTransfer: 16 << 10}, disk: 100 * 512})
	r.enable(8)
	q := r.queue(1, 8)
	data := r.alloc(8)
	rd := func(change func(*abi.Command)) abi.Command {
		c := r.rw(abi.NVM_READ, 0, 16, data)
		change(&c)
		return c
	}
	q.status("namespace 0", rd(func(c *abi.Command) { c.NSID = 0 }), abi.INVALID_NAMESPACE)
	q.status("namespace 2", rd(func(c *abi.Command) { c.NSID = 2 }), abi.INVALID_NAMESPACE)
	q.status("opcode", rd(func(c *abi.Command) { c.Opcode = 0x7f }), abi.INVALID_OPCODE)
	q.status("SGLs", rd(func(c *abi.Command) { c.Flags = 1 << 6 }), abi.INVALID_FIELD)
	q.status("more than MDTS", rd(func(c *abi.Command) { c.CDW12 = 32 }), abi.INVALID_FIELD)
	q.status("one block too far", rd(func(c *abi.Command) { c.CDW10 = 85 }), abi.LBA_OUT_OF_RANGE)
	q.status("far too far", rd(func(c *abi.Command) { c.CDW11 = 1 << 31 }), abi.LBA_OUT_OF_RANGE)
	q.status("wrapping round", rd(func(c *abi.Command) { c.CDW10, c.CDW11 = 1<<32-1, 1<<32-1 }), abi.LBA_OUT_OF_RANGE)
	q.status("zeroes too far", rd(func(c *abi.Command) { c.Opcode, c.CDW10 = abi.NVM_WRITE_ZEROES, 85 }), abi.LBA_OUT_OF_RANGE)
	q.status("PRP1 at an odd byte", rd(func(c *abi.Command) { c.PRP1++ }), abi.PRP_OFFSET_INVALID)
	q.status("PRP2 inside a page", rd(func(c *abi.Command) { c.PRP2 += 512 }), abi.PRP_OFFSET_INVALID)
	q.status("PRP1 nowhere", rd(func(c *abi.Command) { c.PRP1 = 1 << 40 }), abi.DATA_TRANSFER_ERROR)
	q.status("list at an odd byte", rd(func(c *abi.Command) { c.CDW12, c.PRP2 = 31, c.PRP2+4 }), abi.PRP_OFFSET_INVALID)
	q.status("list nowhere", rd(func(c *abi.Command) { c.CDW12, c.PRP2 = 31, 1<<40 }), abi.DATA_TRANSFER_ERROR)
	r.must(q.do(rd(func(c *abi.Command) { c.CDW10 = 84 })))
}

// TestCompletionsAreNeverOverwritten fills a completion queue that nobody
// empties, with more completions than it holds.
func TestCompletionsAreNeverOverwritten(t *testing.T) {
	r := newRaw(t, options{})
	r.enable(8)
	small := &rawQueue{r: r, id: 1, n: 4, sq: r.alloc(1), cq: r.alloc(1), phase: true}
	r.must(r.admin.do(small.createCQ()))
	wide := &rawQueue{r: r, id: 2, n: 64, sq: r.alloc(1), cq: small.cq}
	r.must(r.admin.do(wide.createSQ(1)))
	const total = 50
	for i := range total {
		wide.push(abi.Command{Opcode: abi.NVM_FLUSH, NSID: 1, CID: uint16(i)})
	}
	wide.ring()
	seen := map[uint16]bool{}
	for len(seen) < total {
		// Three fit: the fourth slot stays free for good.
		for range min(3, total-len(seen)) {
			e := small.pop(false)
			if seen[abi.CID(e.DW3)] || e.SQID != 2 {
				t.Fatalf("completion %+v came twice or for another queue", e)
			}
			seen[abi.CID(e.DW3)] = true
		}
		if len(seen) < total && small.peek() {
			t.Fatal("an entry was written where the last one was not consumed")
		}
		small.tell()
	}
	if small.peek() {
		t.Error("more completions than commands")
	}
	// A head that is none is no reason to write either.
	r.c.Store32(abi.CQHDBL(1, 0), 77)
	wide.push(abi.Command{Opcode: abi.NVM_FLUSH, NSID: 1})
	wide.ring()
	small.pop(true)
}

// TestBadTail rings with a tail that the queue does not have.
func TestBadTail(t *testing.T) {
	r := newRaw(t, options{})
	r.enable(8)
	q := r.queue(1, 8)
	for _, tail := range []uint32{8, 1 << 20, 1<<32 - 1} {
		r.c.Store32(abi.SQTDBL(1, 0), tail)
	}
	q.ring()
	r.must(q.do(abi.Command{Opcode: abi.NVM_FLUSH, NSID: 1}))
	if r.csts() != abi.CSTS_RDY {
		t.Errorf("CSTS is %#x", r.csts())
	}
}

func TestLastBlockIsNotFull(t *testing.T) {
	var r *raw
	var q *rawQueue
	var data int
	for _, file := range []bool{false, true} {
		r = newRaw(t, options{disk: 1000, file: file})
		r.enable(8)
		q = r.queue(1, 8)
		data = r.alloc(1)
		copy(r.mem[data:], bytes.Repeat([]byte{0xee}, 1024))
		r.must(q.do(r.rw(abi.NVM_READ, 0, 2, data)))
		if !bytes.Equal(r.mem[data:][:1024], make([]byte, 1024)) {
			t.Errorf("file %v: behind the medium's end something was read", file)
		}
	}
	copy(r.mem[data:], bytes.Repeat([]byte{0xdd}, 512))
	r.must(q.do(r.rw(abi.NVM_WRITE, 1, 1, data)))
	clear(r.mem[data:][:512])
	r.must(q.do(r.rw(abi.NVM_READ, 1, 1, data)))
	if !bytes.Equal(r.mem[data:][:512], bytes.Repeat([]byte{0xdd}, 512)) {
		t.Error("the last block lost what was written")
	}
}

func TestWriteZeroes(t *testing.T) {
	r := newRaw(t, options{file: true})
	r.enable(8)
	q := r.queue(1, 8)
	data := r.alloc(2)
	copy(r.mem[data:], bytes.Repeat([]byte{7}, 2*page))
	r.must(q.do(r.rw(abi.NVM_WRITE, 0, 16, data)))
	r.must(q.do(r.rw(abi.NVM_WRITE_ZEROES, 3, 5, 0)))
	r.must(q.do(r.rw(abi.NVM_READ, 0, 16, data)))
	for i := range 16 {
		want := byte(7)
		if i >= 3 && i < 8 {
			want = 0
		}
		if got := r.mem[data+i*512]; got != want {
			t.Errorf("block %d holds %d, want %d", i, got, want)
		}
	}
}

// TestTrafficIsCounted compares the controller's account with the fabric's.
func TestTrafficIsCounted(t *testing.T) {
	r := newRaw(t, options{iommu: pcie.Translating})
	r.enable(8)
	q := r.queue(1, 8)
	data := r.alloc(4)
	list := r.alloc(1)
	for i := range 3 {
		r.put64(list+8*i, r.bus+uint64(data+(i+1)*page))
	}
	cmd := r.rw(abi.NVM_READ, 0, 32, data)
	cmd.PRP2 = r.bus + uint64(list)
	r.must(q.do(cmd))
	r.must(q.do(r.rw(abi.NVM_WRITE, 0, 16, data)))
	s, host := r.c.Stats(), r.m.Fabric().HostTraffic()
	want := nvme.Stats{Commands: 4, Fetched: 4 * 64, Listed: 3 * 8, Posted: 4 * 16, In: 2 * page, Out: 4 * page}
	if s != want {
		t.Errorf("%+v, want %+v", s, want)
	}
	if host.Read != s.Fetched+s.Listed+s.In || host.Written != s.Posted+s.Out {
		t.Errorf("host memory saw %+v, the controller %+v", host, s)
	}
}

// TestInterrupts has queues with and without an interrupt.
func TestInterrupts(t *testing.T) {
	r := newRaw(t, options{})
	r.enable(8)
	data := r.alloc(1)
	loud := r.queue(1, 4)
	quiet := &rawQueue{r: r, id: 2, n: 4, sq: r.alloc(1), cq: r.alloc(1), phase: true, stride: r.admin.stride}
	silent := quiet.createCQ()
	silent.CDW11 &^= abi.CQ_IEN
	r.must(r.admin.do(silent))
	r.must(r.admin.do(quiet.createSQ(2)))
	vector := func(i int) <-chan struct{} {
		c, err := r.c.Interrupt(i)
		r.check(err)
		return c
	}
	<-vector(0) // of the admin queue
	for range 5 {
		r.must(quiet.do(r.rw(abi.NVM_READ, 0, 1, data)))
		if n := len(vector(1)) + len(vector(2)); n != 0 {
			t.Errorf("a queue without an interrupt raised %d", n)
		}
		loud.push(r.rw(abi.NVM_READ, 0, 1, data))
		loud.ring()
		<-vector(1)
		if !loud.peek() {
			t.Error("an interrupt came before the completion")
		}
		r.must(loud.pop(true))
	}
	for _, v := range []int{-1, 1 << 10} {
		if _, err := r.c.Interrupt(v); err == nil {
			t.Errorf("there is a vector %d", v)
		}
	}
}
