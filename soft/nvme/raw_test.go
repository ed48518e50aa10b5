package nvme_test

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"go.uber.org/goleak"

	abi "github.com/culvert-io/culvert/internal/abi/nvme"
	"github.com/culvert-io/culvert/soft"
	"github.com/culvert-io/culvert/soft/block"
	"github.com/culvert-io/culvert/soft/nvme"
	"github.com/culvert-io/culvert/soft/pcie"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const page = 4096

type fataler interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
	Errorf(string, ...any)
}

// A raw host drives a controller by hand, entry by entry, so that the tests of
// the controller do not depend on a driver.
type raw struct {
	t    fataler
	m    *soft.Machine
	c    *nvme.Controller
	mem  []byte // host memory, mapped as a whole
	bus  uint64 // of mem, in one piece
	used int
	free func() error

	admin *rawQueue
}

// A rawQueue is a queue pair in host memory.
type rawQueue struct {
	r      *raw
	id     uint16
	n      uint32
	sq, cq int // offsets in mem
	tail   uint32
	head   uint32
	phase  bool
	stride uint8
}

type options struct {
	cfg   nvme.Config
	iommu pcie.IOMMU
	disk  int64 // of memory; 0 means 1 MiB
	file  bool
}

func newRaw(t testing.TB, o options) *raw {
	t.Helper()
	r := openRaw(t, t.TempDir(), o)
	t.Cleanup(r.close)
	return r
}

func openRaw(t fataler, dir string, o options) *raw {
	t.Helper()
	r := &raw{t: t}
	if o.disk == 0 {
		o.disk = 1 << 20
	}
	drive := soft.Drive{Config: o.cfg}
	switch {
	case len(o.cfg.Namespaces) > 0:
	case o.file:
		var err error
		drive.File, err = os.Create(filepath.Join(dir, "disk"))
		r.check(err)
		defer drive.File.Close()
		r.check(drive.File.Truncate(o.disk))
	default:
		drive.Size = o.disk
	}
	var err error
	r.m, err = soft.New(soft.Config{Memory: 2 << 20, Heap: raceEnabled, IOMMU: o.iommu, Drives: []soft.Drive{drive}})
	r.check(err)
	r.c = r.m.Drives()[0]
	r.mem = alignedPages(512)
	addrs, size, unmap, err := r.c.Transport(nil, nil).MapHost(r.mem)
	r.check(err)
	if size != page || len(addrs) != 512 {
		t.Fatalf("%d pages of %d bytes", len(addrs), size)
	}
	r.bus, r.free = addrs[0], unmap
	return r
}

// memory is what a namespace of n bytes is in.
func memory(t testing.TB, n int64) *block.File {
	t.Helper()
	m, err := block.NewMemory(n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// alignedPages is heap memory that begins at a page.
func alignedPages(n int) []byte {
	b := make([]byte, (n+1)*page)
	off := -int(uintptr(unsafe.Pointer(&b[0]))) & (page - 1)
	return b[off:][:n*page]
}

func (r *raw) close() {
	r.t.Helper()
	r.check(r.m.Close())
	r.check(r.free())
	if u := r.m.Fabric().Usage(); u != (pcie.Usage{}) {
		r.t.Errorf("the fabric is left with %+v", u)
	}
}

func (r *raw) check(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// alloc takes n pages of the mapped memory.
func (r *raw) alloc(n int) int {
	off := r.used
	r.used += n * page
	if r.used > len(r.mem) {
		r.t.Fatal("the test's memory is used up")
	}
	return off
}

// wait polls until ok, as a driver does, and gives up after a time that only a
// broken controller needs.
func (r *raw) wait(what string, ok func() bool) {
	r.t.Helper()
	for start := time.Now(); !ok(); time.Sleep(20 * time.Microsecond) {
		if time.Since(start) > 2*time.Minute {
			r.t.Fatalf("waited in vain for %s", what)
		}
	}
}

func (r *raw) csts() uint32 { return r.c.Load32(abi.REG_CSTS) }

// enable brings the controller up with admin queues of n entries.
func (r *raw) enable(n uint32) {
	r.t.Helper()
	stride := abi.CAP(r.c.Load64(abi.REG_CAP)).DSTRD()
	r.admin = &rawQueue{r: r, n: n, sq: r.alloc(1), cq: r.alloc(1), phase: true, stride: stride}
	r.enableAgain()
}

func (r *raw) enableAgain() {
	r.t.Helper()
	q := r.admin
	clear(r.mem[q.cq:][:page])
	q.tail, q.head, q.phase = 0, 0, true
	r.c.Store32(abi.REG_AQA, (q.n-1)<<abi.AQA_ASQS_SHIFT|(q.n-1)<<abi.AQA_ACQS_SHIFT)
	r.c.Store64(abi.REG_ASQ, r.bus+uint64(q.sq))
	r.c.Store64(abi.REG_ACQ, r.bus+uint64(q.cq))
	r.c.Store32(abi.REG_CC, abi.CC_EN|abi.SQES<<abi.CC_IOSQES_SHIFT|abi.CQES<<abi.CC_IOCQES_SHIFT)
	r.wait("RDY", func() bool { return r.csts()&abi.CSTS_RDY != 0 })
}

func (r *raw) disable() {
	r.t.Helper()
	r.c.Store32(abi.REG_CC, 0)
	r.wait("RDY to go", func() bool { return r.csts()&abi.CSTS_RDY == 0 })
}

// queue creates an I/O queue pair of n entries.
func (r *raw) queue(id uint16, n uint32) *rawQueue {
	r.t.Helper()
	q := &rawQueue{r: r, id: id, n: n, sq: r.alloc(pages(n * abi.CommandSize)), cq: r.alloc(pages(n * abi.CompletionSize)), phase: true, stride: r.admin.stride}
	r.must(r.admin.do(q.createCQ()))
	r.must(r.admin.do(q.createSQ(id)))
	return q
}

func pages(n uint32) int { return int(n+page-1) / page }

func (q *rawQueue) createCQ() abi.Command {
	return abi.Command{
		Opcode: abi.ADMIN_CREATE_CQ, PRP1: q.r.bus + uint64(q.cq),
		CDW10: (q.n-1)<<abi.QUEUE_SIZE_SHIFT | uint32(q.id), CDW11: abi.QUEUE_PC | abi.CQ_IEN | uint32(q.id)<<abi.CQ_IV_SHIFT,
	}
}

func (q *rawQueue) createSQ(cq uint16) abi.Command {
	return abi.Command{
		Opcode: abi.ADMIN_CREATE_SQ, PRP1: q.r.bus + uint64(q.sq),
		CDW10: (q.n-1)<<abi.QUEUE_SIZE_SHIFT | uint32(q.id), CDW11: abi.QUEUE_PC | uint32(cq)<<abi.SQ_CQID_SHIFT,
	}
}

func (r *raw) must(e abi.Completion) abi.Completion {
	r.t.Helper()
	if s := abi.StatusOf(e.DW3); s != abi.SUCCESS {
		r.t.Fatalf("status %v", s)
	}
	return e
}

// push writes a command into the queue, without ringing.
func (q *rawQueue) push(cmd abi.Command) {
	p := (*abi.Command)(unsafe.Pointer(&q.r.mem[q.sq+int(q.tail)*abi.CommandSize]))
	*p = cmd
	q.tail = (q.tail + 1) % q.n
}

func (q *rawQueue) ring() { q.r.c.Store32(abi.SQTDBL(q.id, q.stride), q.tail) }

// entry is the memory of completion i.
func (q *rawQueue) entry(i uint32) *abi.Completion {
	return (*abi.Completion)(unsafe.Pointer(&q.r.mem[q.cq+int(i)*abi.CompletionSize]))
}

// peek reports whether there is a completion at the head.
func (q *rawQueue) peek() bool {
	return abi.Phase(atomic.LoadUint32(&q.entry(q.head).DW3)) == q.phase
}

// pop waits for a completion and consumes it, with or without telling so.
func (q *rawQueue) pop(tell bool) abi.Completion {
	q.r.t.Helper()
	q.r.wait("a completion", q.peek)
	e := q.entry(q.head)
	got := abi.Completion{DW0: e.DW0, DW1: e.DW1, SQHD: e.SQHD, SQID: e.SQID, DW3: atomic.LoadUint32(&e.DW3)}
	if q.head++; q.head == q.n {
		q.head, q.phase = 0, !q.phase
	}
	if tell {
		q.tell()
	}
	return got
}

func (q *rawQueue) tell() { q.r.c.Store32(abi.CQHDBL(q.id, q.stride), q.head) }

func (q *rawQueue) do(cmd abi.Command) abi.Completion {
	q.r.t.Helper()
	q.push(cmd)
	q.ring()
	return q.pop(true)
}

// status does a command and expects a status.
func (q *rawQueue) status(what string, cmd abi.Command, want abi.Status) {
	q.r.t.Helper()
	if got := abi.StatusOf(q.do(cmd).DW3); got.Code() != want {
		q.r.t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func (r *raw) put64(off int, v uint64) { binary.LittleEndian.PutUint64(r.mem[off:], v) }

// rw is a read or write of blocks to or from data in mem.
func (r *raw) rw(op uint8, lba uint64, blocks uint32, data int) abi.Command {
	return abi.Command{
		Opcode: op, NSID: 1, PRP1: r.bus + uint64(data), PRP2: r.bus + uint64(data)&^(page-1) + page,
		CDW10: uint32(lba), CDW11: uint32(lba >> 32), CDW12: blocks - 1,
	}
}
