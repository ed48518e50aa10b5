package dispatch

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/clib/internal/handle"
	"github.com/culvert-io/culvert/cufile"
)

// file registers a file of the given content.
func (p *program) file(content []byte) handle.ID {
	p.t.Helper()
	return p.open(content, os.O_RDWR)
}

func (p *program) open(content []byte, flags int) handle.ID {
	p.t.Helper()
	name := filepath.Join(p.t.TempDir(), "data")
	if err := os.WriteFile(name, content, 0o600); err != nil {
		p.t.Fatal(err)
	}
	f, err := os.OpenFile(name, flags, 0)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { f.Close() })
	descr, h := [3]uint64{1, uint64(f.Fd()), 0}, new(handle.ID)
	p.must("cuFileHandleRegister", out(h), out(&descr))
	return *h
}

// Numbers of parameters.
const (
	paramDirect  = 5
	paramBatch   = 9
	paramTimeout = 11
)

func (p *program) parameter(which uint64) uint64 {
	p.t.Helper()
	v := new(uint64)
	p.must("cuFileGetParameterSizeT", which, out(v))
	return *v
}

// A value set on a closed driver applies from the next open on, if it is in range;
// one set on an open driver until it closes.
func TestParameters(t *testing.T) {
	p := start(t)
	p.must("cuFileSetParameterSizeT", paramBatch, 32)
	p.must("cuFileSetParameterSizeT", paramTimeout, 5000) // too much
	if v := p.parameter(paramTimeout); v != 5000 {
		t.Errorf("closed, the timeout is %d", v)
	}
	p.must("cuFileDriverOpen")
	if b, o := p.parameter(paramBatch), p.parameter(paramTimeout); b != 32 || o != 5 {
		t.Errorf("open, the batch size is %d, the timeout %d", b, o)
	}
	p.want(int64(cufile.DriverAlreadyOpen), "cuFileSetParameterSizeT", paramBatch, 64)
	p.must("cuFileDriverSetMaxDirectIOSize", 1024)
	if v := p.parameter(paramDirect); v != 1024 {
		t.Errorf("the direct size is %d", v)
	}
	p.want(int64(cufile.DriverUnsupportedLimit), "cuFileDriverSetMaxDirectIOSize", 1023)
	var batch handle.ID
	p.want(int64(cufile.InvalidValue), "cuFileBatchIOSetUp", out(&batch), 33)
	p.must("cuFileDriverClose_v2")
	if v := p.parameter(paramDirect); v != 0 {
		t.Errorf("closed again, the direct size is %d", v)
	}
	p.must("cuFileDriverOpen")
	if v := p.parameter(paramDirect); v != 16384 {
		t.Errorf("open again, the direct size is %d", v)
	}
	least, most := new(uint64), new(uint64)
	p.must("cuFileGetParameterMinMaxValue", paramBatch, out(least), out(most))
	if *least != 1 || *most != 256 {
		t.Errorf("the batch size is from %d to %d", *least, *most)
	}
}

// An unsupported function explains itself in the log.
func TestUnsupportedFunctionsSayWhy(t *testing.T) {
	p := start(t)
	p.want(int64(cufile.InternalError), "cuFileExportPCIeTopology", out(&[]byte("/tmp/x\x00")[0]))
	if got := p.log.String(); !strings.Contains(got, "cuFileExportPCIeTopology") || !strings.Contains(got, "not implemented") {
		t.Errorf("the log says %q", got)
	}
}

// A P2P flag that is set is reported, and so is the route that an open driver has.
func TestP2PFlags(t *testing.T) {
	const nvme, last = 4, 14
	p := start(t)
	flags := func(target uint64) int32 {
		v := int32(77)
		p.must("cuFileDriverGetP2PFlags", target, out(&v))
		return v
	}
	if got := flags(nvme); got != 0 {
		t.Errorf("closed: %#x", got)
	}
	allowed := uint64(1)
	if runtime.GOARCH == "arm64" {
		allowed = 8
	}
	for bit := range 6 {
		if f := uint64(1) << bit; f != allowed {
			p.want(int64(cufile.InvalidValue), "cuFileDriverSetP2PFlags", last, f)
		}
	}
	if !strings.Contains(p.log.String(), "can be set") {
		t.Errorf("the log says %q", p.log.String())
	}
	p.must("cuFileDriverSetP2PFlags", last, allowed)
	p.must("cuFileDriverSetP2PFlags", last, 0) // adds nothing
	for _, target := range []uint64{last + 1, 1<<32 - 1} {
		p.want(int64(cufile.InvalidValue), "cuFileDriverSetP2PFlags", target, allowed)
		p.want(int64(cufile.InvalidValue), "cuFileDriverGetP2PFlags", target, out(new(int32)))
	}
	var props [14]uint32
	p.must("cuFileDriverOpen")
	p.must("cuFileDriverGetProperties", out(&props))
	if direct := props[6]>>nvme&1 != 0; (flags(nvme) != 0) != direct || flags(last) != int32(allowed) {
		t.Errorf("open: %#x and %#x, status %#x", flags(nvme), flags(last), props[6])
	}
	p.must("cuFileDriverClose_v2")
}

func TestBARSize(t *testing.T) {
	p := start(t)
	kb := new(uint64)
	p.must("cuFileGetBARSizeInKB", 0, out(kb))
	if want := uint64(256 << 20); *kb != want {
		t.Errorf("BAR1 has %d KiB, want %d", *kb, want)
	}
	p.want(int64(cufile.InvalidValue), "cuFileGetBARSizeInKB", 1, out(kb))
}

// An entry of a batch, as words.
func entry8(h handle.ID, write bool, mem *[4096]byte, at, n, off, cookie uint64) [8]uint64 {
	op := uint64(0)
	if write {
		op = 1
	}
	return [8]uint64{1, out(mem), off, at, n, uint64(h), op, cookie}
}

type event struct {
	cookie uint64
	status uint64
	ret    int64
}

func TestBatch(t *testing.T) {
	p := start(t)
	h := p.file(bytes.Repeat([]byte("x"), 1000))
	mem, batch := new([4096]byte), new(handle.ID)
	p.must("cuFileBatchIOSetUp", out(batch), 3)
	entries := [][8]uint64{
		entry8(h, false, mem, 0, 100, 0, 1),
		entry8(h, false, mem, 1000, 500, 900, 2), // across the end
		entry8(h, false, mem, 2000, 100, 0, 3),
	}
	const reserved = 77 // flags, which NVIDIA's library ignores
	submit := func(want cufile.Code, list ...[8]uint64) {
		t.Helper()
		p.want(int64(want), "cuFileBatchIOSubmit", uint64(*batch), uint64(len(list)), out(&list[0]), reserved)
	}
	opcode := entries[0]
	opcode[6] = 9
	submit(cufile.HandleNotRegistered, entries[0], entry8(h+16, false, mem, 0, 1, 0, 9))
	submit(cufile.InvalidValue, entries[0], entry8(h, false, mem, 0, 1, ^uint64(0), 9))
	submit(cufile.InternalBatchSubmitError, entries[0], opcode)
	submit(cufile.BatchFull, entries[0], entries[0], entries[0], entries[0])
	submit(0, entries...)
	submit(cufile.BatchFull, entries[0])
	events, n := new([3]event), new(uint32)
	*n = 3
	p.must("cuFileBatchIOGetStatus", uint64(*batch), 3, out(n), out(events), 0)
	got := map[uint64]int64{}
	for _, e := range events {
		if e.status&0xffffffff != 0x10 {
			t.Errorf("event %+v is not complete", e)
		}
		got[e.cookie] = e.ret
	}
	if *n != 3 || got[1] != 100 || got[2] != 100 || got[3] != 100 {
		t.Errorf("%d events: %v", *n, got)
	}
	if string(mem[:100]) != strings.Repeat("x", 100) || mem[100] != 0 || mem[1100] != 0 || mem[2099] != 'x' {
		t.Error("the bytes are not where they belong")
	}
	p.call("cuFileBatchIODestroy", uint64(*batch))
	*n = 1
	const gone = int64(cufile.InvalidContextError)
	p.want(gone, "cuFileBatchIOGetStatus", uint64(*batch), 1, out(n), out(events), 0)
	p.want(gone, "cuFileBatchIOSubmit", uint64(*batch), 1, out(&entries[0]), 0)
	p.want(gone, "cuFileBatchIOCancel", uint64(*batch))
}

// A failed entry returns its errno, and the others complete.
// TestBatchClosed: a batch does not open the driver, as with NVIDIA's library.
func TestBatchClosed(t *testing.T) {
	p := start(t)
	batch := new(handle.ID)
	p.want(int64(cufile.InvalidValue), "cuFileBatchIOSetUp", out(batch), 3)
	p.must("cuFileDriverOpen")
	p.must("cuFileBatchIOSetUp", out(batch), 3)
	p.must("cuFileDriverClose_v2")
	p.want(int64(cufile.InvalidValue), "cuFileBatchIOSetUp", out(batch), 3)
}

func TestBatchEntryFails(t *testing.T) {
	p := start(t)
	p.must("cudaFree", 0)
	h := p.file(bytes.Repeat([]byte("x"), 1000))
	dev, batch := new(uint64), new(handle.ID)
	p.must("cuMemAlloc_v2", out(dev), 100)
	p.must("cuFileBatchIOSetUp", out(batch), 2)
	list := [][8]uint64{{1, *dev, 0, 0, 1000, uint64(h), 0, 1}, {1, *dev, 0, 0, 100, uint64(h), 0, 2}}
	p.must("cuFileBatchIOSubmit", uint64(*batch), 2, out(&list[0]), 0)
	events, n := new([2]event), new(uint32)
	*n = 2
	p.must("cuFileBatchIOGetStatus", uint64(*batch), 2, out(n), out(events), 0)
	p.core.logMu.Lock()
	if got := p.log.String(); !strings.Contains(got, "cuFileBatchIOSubmit: ") || !strings.Contains(got, "range exceeds") {
		t.Errorf("the log says %q", got)
	}
	p.core.logMu.Unlock()
	for _, e := range events {
		want := event{2, 0x10, 100}
		if e.cookie == 1 {
			want = event{1, 0x40, -int64(unix.EIO)}
		}
		if e.status &= 0xffffffff; e != want {
			t.Errorf("event %+v, want %+v", e, want)
		}
	}
}

// Entries of one file and direction share a call. An entry that fails does not
// fail the others, and a wild pointer is an errno, not a crash.
func TestBatchGroups(t *testing.T) {
	const wild, entries = 0xdead0000, 40
	p := start(t)
	a, b := p.open(bytes.Repeat([]byte("a"), 4096), os.O_RDWR|unix.O_DIRECT), p.file(bytes.Repeat([]byte("b"), 4096))
	mem, batch := new([4096]byte), new(handle.ID)
	p.must("cuFileBatchIOSetUp", out(batch), entries)
	var list [][8]uint64
	want := map[uint64]event{}
	for i := range uint64(entries) {
		e, ret, status := entry8(a, false, mem, 10*i, 10, 0, i), int64(10), uint64(0x10)
		switch i {
		case 7:
			e[1], ret, status = wild, -int64(unix.EFAULT), 0x40
		case 8:
			e[4], ret = 0, 0
		case 20, 21:
			e[5] = uint64(b)
		case 30:
			e = entry8(b, true, mem, 3000, 10, 4090, i) // makes the file longer
		}
		list = append(list, e)
		want[i] = event{i, status, ret}
	}
	p.must("cuFileBatchIOSubmit", uint64(*batch), entries, out(&list[0]), 0)
	events, n := new([entries]event), new(uint32)
	for left := uint32(entries); left > 0; left -= *n {
		*n = left
		p.must("cuFileBatchIOGetStatus", uint64(*batch), 1, out(n), out(events), 0)
		for _, e := range events[:*n] {
			if e.status &= 0xffffffff; e != want[e.cookie] {
				t.Errorf("event %+v, want %+v", e, want[e.cookie])
			}
			delete(want, e.cookie)
		}
	}
	if len(want) > 0 {
		t.Errorf("no events for %v", want)
	}
	if got := string(mem[195:205]) + string(mem[215:225]); got != "aaaaabbbbbbbbbbaaaaa" && got != "aaaaabbbbbbbbbbbaaaa" {
		t.Errorf("around entries 20 and 21 the memory has %q", got)
	}
}

// As with readv, the buffers before an invalid one count.
func TestVector(t *testing.T) {
	p := start(t)
	h := p.file([]byte("0123456789"))
	mem := new([64]byte)
	at := out(mem)
	for _, tt := range []struct {
		iov   [][2]uint64
		want  int64
		errno int32
	}{
		{[][2]uint64{{at, 3}, {0, 0}, {at + 8, 3}}, 6, 0},
		{[][2]uint64{{at, 8}, {at + 8, 8}, {at + 16, 8}}, 10, 0}, // across the end
		{[][2]uint64{{at, 2}, {at + 8, 2}, {0xdead0000, 3}, {at + 16, 1}}, 4, 0},
		{[][2]uint64{{at, 2}, {0, 3}}, 2, 0},
		{[][2]uint64{{0xdead0000, 3}, {at, 3}}, -1, int32(unix.EFAULT)},
		{[][2]uint64{{0, 3}, {at, 3}}, -1, int32(unix.EINVAL)},
	} {
		n, errno := p.call("cuFileReadv", uint64(h), out(&tt.iov[0]), uint64(len(tt.iov)), 0, 0)
		if n != tt.want || errno != tt.errno {
			t.Errorf("%x: %d, errno %d, want %d and %d", tt.iov, n, errno, tt.want, tt.errno)
		}
	}
	if string(mem[:2]) != "01" || string(mem[8:10]) != "23" {
		t.Errorf("the memory has %q", mem[:])
	}
}

// Statistics count only between start and stop.
func TestStatistics(t *testing.T) {
	p := start(t)
	h := p.file(bytes.Repeat([]byte("x"), 8192))
	mem := new([8192]byte)
	read := func() { p.call("cuFileRead", uint64(h), out(mem), 8192, 0, 0) }
	all := new([512 / 8]uint64)
	p.want(int64(cufile.InvalidValue), "cuFileGetStatsL1", out(all))
	p.must("cuFileSetStatsLevel", 2)
	read()
	p.must("cuFileStatsStart")
	read()
	read()
	p.call("cuFileRead", uint64(h), out(mem), 10, ^uint64(0), 0)
	p.must("cuFileStatsStop")
	read()
	p.must("cuFileGetStatsL1", out(all))
	if ok, failed, bytes := all[0], all[1], all[12]; ok != 2 || failed != 1 || bytes != 16384 {
		t.Errorf("%d reads, %d failed, %d bytes; want 2, 1 and 16384", ok, failed, bytes)
	}
	two := new([1024 / 8]uint64)
	p.must("cuFileGetStatsL2", out(two))
	if n := two[512/8+1]; n != 2 {
		t.Errorf("%d reads of up to 8 KiB, want 2", n)
	}
	p.want(int64(cufile.InvalidValue), "cuFileGetStatsL3", out(two))
	p.must("cuFileStatsReset")
	p.must("cuFileGetStatsL1", out(all))
	if all[0] != 0 || all[12] != 0 {
		t.Error("a reset left something")
	}
}
