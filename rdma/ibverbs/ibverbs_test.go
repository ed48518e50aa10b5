//go:build linux && (amd64 || arm64) && !nodl

package ibverbs

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	abi "github.com/culvert-io/culvert/internal/abi/ibverbs"
	"github.com/culvert-io/culvert/rdma"
)

func TestDevices(t *testing.T) {
	f := openFake(t)
	list, err := f.Devices()
	must(t, err)
	want := []rdma.DeviceInfo{{Name: "fake0", GUID: 0x0102030405060708}, {Name: "fake1", GUID: 0x0102030405060709}}
	if diff := cmp.Diff(want, list); diff != "" {
		t.Error(diff)
	}
	d, err := f.Open("fake1")
	must(t, err)
	if d.Info().Name != "fake1" || d.Provider() != Name {
		t.Errorf("opened %+v of %s", d.Info(), d.Provider())
	}
	if err := f.Close(); !errors.Is(err, syscall.EBUSY) {
		t.Errorf("close with an open device: %v", err)
	}
	must(t, d.Close())
	if err := d.Close(); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("closed twice: %v", err)
	}
	if _, err := f.Open("mlx5_0"); !errors.Is(err, syscall.ENODEV) || !strings.Contains(err.Error(), "fake0, fake1") {
		t.Errorf("a device that does not exist: %v", err)
	}
	must(t, f.Close())
}

// A kernel without RDMA has no devices; other errors are errors.
func TestNoDevices(t *testing.T) {
	f := openFake(t)
	f.ListErrno = uint64(syscall.ENOSYS)
	if list, err := f.Devices(); len(list) != 0 || err != nil {
		t.Errorf("%v, %v", list, err)
	}
	if _, err := f.Open(""); !errors.Is(err, syscall.ENODEV) || !strings.Contains(err.Error(), "fix:") {
		t.Errorf("open: %v", err)
	}
	f.ListErrno = uint64(syscall.EACCES)
	if _, err := f.Devices(); !errors.Is(err, syscall.EACCES) {
		t.Errorf("without rights: %v", err)
	}
}

func TestNoLibrary(t *testing.T) {
	_, err := OpenLibrary(filepath.Join(t.TempDir(), "libibverbs.so.1"))
	if !errors.Is(err, ErrNoLibrary) || !strings.Contains(err.Error(), EnvLibrary) {
		t.Error(err)
	}
	if _, err := OpenLibrary("libc.so.6"); err == nil || !strings.Contains(err.Error(), "ibv_") {
		t.Errorf("libc as libibverbs: %v", err)
	}
}

func TestAttributes(t *testing.T) {
	f := openFake(t)
	o := f.objects(t)
	a, err := o.dev.Attr()
	must(t, err)
	want := rdma.DeviceAttr{Firmware: "1.2.3", Ports: 2, MaxMRSize: 1 << 40, MaxQP: 1000, MaxQPWR: 500, MaxSGE: 30, MaxCQE: 4000, MaxRDAtomic: 12, Atomics: true}
	if diff := cmp.Diff(want, a); diff != "" {
		t.Error(diff)
	}
	p, err := o.dev.Port(1)
	must(t, err)
	wantPort := rdma.PortAttr{State: rdma.PortActive, ActiveMTU: 4, MaxMTU: 5, MaxMsg: 1 << 30, LID: 7, Link: rdma.LinkEthernet, Gbps: 103.125, GIDs: 8}
	if diff := cmp.Diff(wantPort, p); diff != "" {
		t.Error(diff)
	}
	for _, n := range []int{0, -1, 3, 257} {
		if _, err := o.dev.Port(n); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("port %d: %v", n, err)
		}
	}
}

func TestGIDs(t *testing.T) {
	f := openFake(t)
	o := f.objects(t)
	table, err := o.dev.GIDs(1)
	must(t, err)
	if len(table) != 2 || table[1].Index != 3 || table[1].Type != rdma.GIDRoCEv2 || table[1].GID.Addr() != netip.MustParseAddr("10.0.0.1") {
		t.Errorf("port 1 has %+v", table)
	}
	if table, err = o.dev.GIDs(2); err != nil || len(table) != 1 || table[0].Port != 2 {
		t.Errorf("port 2 has %+v, %v", table, err)
	}
	// An old library has no table.
	o.dev.lib.queryGIDTable = 0
	table, err = o.dev.GIDs(1)
	must(t, err)
	if len(table) != 1 || table[0].Index != 2 || table[0].GID.Addr() != netip.MustParseAddr("10.0.0.2") {
		t.Errorf("one by one: %+v", table)
	}
}

func TestRegister(t *testing.T) {
	f := openFake(t)
	o := f.objects(t)
	file, err := os.Open(os.DevNull)
	must(t, err)
	defer file.Close()
	const rw = rdma.LocalWrite | rdma.RemoteWrite
	for name, c := range map[string]struct {
		m      rdma.Memory
		access rdma.Access
		want   [6]uint64 // kind and arguments
		addr   uint64
	}{
		"address":    {rdma.Address(0x7f0000001000, 8192), rw, [6]uint64{1, 0x7f0000001000, 8192, 0x7f0000001000, uint64(rw)}, 0x7f0000001000},
		"zero based": {rdma.Address(0x7f0000001234, 100), rw | rdma.ZeroBased, [6]uint64{1, 0x7f0000001234, 100, 0x234, uint64(rw)}, 0x234},
		"relaxed":    {rdma.Address(0x7f0000001000, 1), rdma.RelaxedOrdering, [6]uint64{1, 0x7f0000001000, 1, 0x7f0000001000, 0x100000}, 0x7f0000001000},
		"dma-buf":    {rdma.DMABuf(file, 0x2010, 4096, 0x7f0000003010), rw, [6]uint64{2, 0x2010, 4096, 0x7f0000003010, uint64(file.Fd()), uint64(rw)}, 0x7f0000003010},
	} {
		mr, err := o.pd.Register(c.m, c.access)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := [6]uint64(f.Registered[:6]); got != c.want {
			t.Errorf("%s: the library got %#x, want %#x", name, got, c.want)
		}
		if mr.Addr() != c.addr || mr.Len() != c.m.Len || mr.LKey() == mr.RKey() || mr.RKey() == 0 {
			t.Errorf("%s: region %#x+%d, keys %#x and %#x", name, mr.Addr(), mr.Len(), mr.LKey(), mr.RKey())
		}
		if err := o.pd.Close(); !errors.Is(err, syscall.EBUSY) {
			t.Errorf("closed a domain with a region: %v", err)
		}
		must(t, mr.Close())
		if err := mr.Close(); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%s: closed twice: %v", name, err)
		}
	}
}

func TestRegisterErrors(t *testing.T) {
	f := openFake(t)
	o := f.objects(t)
	f.RegErrno = uint64(syscall.EFAULT)
	_, err := o.pd.Register(rdma.Address(4096, 4096), 0)
	re, ok := errors.AsType[*rdma.RegisterError](err)
	if !ok || rdma.Errno(err) != syscall.EFAULT || re.Provider != Name || re.Device != "fake0" {
		t.Errorf("error %v", err)
	}
	o.dev.lib.regDMABuf = 0
	file, err := os.Open(os.DevNull)
	must(t, err)
	defer file.Close()
	if _, err := o.pd.Register(rdma.DMABuf(file, 0, 4096, 0), 0); rdma.Errno(err) != syscall.EOPNOTSUPP {
		t.Errorf("a dma-buf without ibv_reg_dmabuf_mr: %v", err)
	}
	for _, a := range []rdma.Access{rdma.RemoteWrite, rdma.RemoteAtomic} {
		if _, err := o.pd.Register(rdma.Address(4096, 4096), a); rdma.Errno(err) != syscall.EINVAL {
			t.Errorf("access %v: %v", a, err)
		}
	}
}

func TestSteps(t *testing.T) {
	f := openFake(t)
	o := f.objects(t)
	if err := o.qp.Modify(rdma.QPAttr{State: rdma.RTS}, rdma.ToRTS); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("RESET to RTS: %v", err)
	}
	must(t, rdma.Prepare(o.qp, rdma.Options{}))
	gid := rdma.GIDFrom(netip.MustParseAddr("10.0.0.2"))
	attr := rdma.QPAttr{
		State: rdma.RTR, PathMTU: 5, DestQPN: 0x77, RQPSN: 0xabcdef, MaxDestRDAtomic: 9, MinRNRTimer: 12,
		AV: rdma.AV{DGID: gid, SGIDIndex: 3, HopLimit: 64, TrafficClass: 96, FlowLabel: 0x12345, DLID: 8, SL: 2, Global: true, Port: 1},
	}
	must(t, o.qp.Modify(attr, rdma.ToRTR))
	got := *at[abi.QPAttr](address(&f.Attr[0]))
	want := abi.QPAttr{
		State: 2, PathMTU: 5, DestQPN: 0x77, RQPSN: 0xabcdef, MaxDestRDAtomic: 9, MinRNRTimer: 12,
		AH: abi.AHAttr{GRH: abi.GlobalRoute{DGID: gid, FlowLabel: 0x12345, SGIDIndex: 3, HopLimit: 64, TrafficClass: 96}, DLID: 8, SL: 2, IsGlobal: 1, Port: 1},
	}
	if got != want || f.Mask != uint64(rdma.ToRTR) {
		t.Errorf("the library got mask %#x and\n%+v, want\n%+v", f.Mask, got, want)
	}
	must(t, o.qp.Modify(rdma.QPAttr{State: rdma.RTS, Timeout: 14, RetryCount: 6, RNRRetry: 5, SQPSN: 0x123456, MaxRDAtomic: 4}, rdma.ToRTS))
	got = *at[abi.QPAttr](address(&f.Attr[0]))
	if got.Timeout != 14 || got.RetryCount != 6 || got.RNRRetry != 5 || got.SQPSN != 0x123456 || got.MaxRDAtomic != 4 {
		t.Errorf("to RTS the library got %+v", got)
	}
	if o.qp.State() != rdma.RTS {
		t.Errorf("state %v", o.qp.State())
	}
}

func TestPostSend(t *testing.T) {
	f := openFake(t)
	o := f.objects(t)
	if err := rdma.Post(o.qp, rdma.SendWR{}); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("posted in RESET: %v", err)
	}
	o.ready(t)
	sge := []rdma.SGE{{Addr: 0x1000, Len: 100, LKey: 7}, {Addr: 0x2000, Len: 28, LKey: 8}}
	n, err := o.qp.PostSend([]rdma.SendWR{
		{ID: 1, Op: rdma.OpWriteImm, Flags: rdma.Signaled, SGE: sge, Imm: 0x01020304, RemoteAddr: 0x5000, RKey: 0x99},
		{ID: 2, Op: rdma.OpCmpSwap, Flags: rdma.Signaled | rdma.Fence, SGE: sge[:1], RemoteAddr: 0x6000, RKey: 0x98, CompareAdd: 11, Swap: 12},
		{ID: 3, Op: rdma.OpSend},
	})
	if n != 3 || err != nil {
		t.Fatalf("posted %d: %v", n, err)
	}
	a, b := abi.SGE{Addr: 0x1000, Len: 100, LKey: 7}, abi.SGE{Addr: 0x2000, Len: 28, LKey: 8}
	want := []sent{
		{ID: 1, Op: 1, Flags: 2, Imm: 0x04030201, NumSGE: 2, SGE: [2]abi.SGE{a, b}, Remote: [4]uint64{0x5000, 0x99}},
		{ID: 2, Op: 5, Flags: 3, NumSGE: 1, SGE: [2]abi.SGE{a}, Remote: [4]uint64{0x6000, 11, 12, 0x98}},
		{ID: 3, Op: 2},
	}
	for i, w := range want {
		if f.Send[i] != w {
			t.Errorf("request %d arrived as\n%+v, want\n%+v", i, f.Send[i], w)
		}
	}
	var wcs [8]rdma.WC
	n, err = o.cq.Poll(wcs[:])
	must(t, err)
	wantWC := []rdma.WC{
		{ID: 1, Op: rdma.WCWrite, Len: 128, Imm: 0x01020304, QPNum: o.qp.Num(), Flags: rdma.WithImm},
		{ID: 2, Op: rdma.WCCmpSwap, Len: 100, QPNum: o.qp.Num(), Flags: rdma.WithImm},
	}
	if diff := cmp.Diff(wantWC, wcs[:n]); diff != "" {
		t.Error(diff)
	}
}

// TestPostMany posts more than one chain, up to a request that the library or this
// package refuses.
func TestPostMany(t *testing.T) {
	f := openFake(t)
	o := f.objects(t)
	o.ready(t)
	wrs := make([]rdma.SendWR, 100)
	for i := range wrs {
		wrs[i] = rdma.SendWR{ID: uint64(i), Flags: rdma.Signaled}
	}
	f.Limit = 71
	if n, err := o.qp.PostSend(wrs); n != 71 || !errors.Is(err, syscall.ENOMEM) {
		t.Errorf("posted %d of 71: %v", n, err)
	}
	for i := range 71 {
		if f.Send[i].ID != uint64(i) {
			t.Fatalf("request %d has ID %d", i, f.Send[i].ID)
		}
	}
	f.Sends, f.Limit = 0, 1<<20
	for name, bad := range map[string]rdma.SendWR{"ranges": {SGE: make([]rdma.SGE, 3)}, "operation": {Op: 99}} {
		f.Sends = 0
		wrs[40] = bad
		if n, err := o.qp.PostSend(wrs); n != 40 || f.Sends != 40 || !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%s: posted %d (the library got %d): %v", name, n, f.Sends, err)
		}
	}
	// More completions than one call of the library returns.
	var got []rdma.WC
	wcs := make([]rdma.WC, 45)
	for {
		n, err := o.cq.Poll(wcs)
		must(t, err)
		if n == 0 {
			break
		}
		got = append(got, wcs[:n]...)
	}
	if len(got) != 71+40+40 {
		t.Errorf("%d completions", len(got))
	}
}

func TestPostRecv(t *testing.T) {
	f := openFake(t)
	o := f.objects(t)
	if err := rdma.PostReceive(o.qp, rdma.RecvWR{}); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("posted in RESET: %v", err)
	}
	must(t, rdma.Prepare(o.qp, rdma.Options{}))
	wrs := make([]rdma.RecvWR, 50)
	for i := range wrs {
		wrs[i] = rdma.RecvWR{ID: uint64(i), SGE: []rdma.SGE{{Addr: uint64(i) * 64, Len: 64, LKey: 5}}}
	}
	if n, err := o.qp.PostRecv(wrs); n != 50 || err != nil {
		t.Fatalf("posted %d: %v", n, err)
	}
	for i := range wrs {
		if w := (sent{ID: uint64(i), NumSGE: 1, SGE: [2]abi.SGE{{Addr: uint64(i) * 64, Len: 64, LKey: 5}}}); f.Recv[i] != w {
			t.Fatalf("receive %d arrived as %+v", i, f.Recv[i])
		}
	}
	if n, err := o.qp.PostRecv([]rdma.RecvWR{{}, {SGE: make([]rdma.SGE, 3)}}); n != 1 || !errors.Is(err, syscall.EINVAL) {
		t.Errorf("posted %d with too many ranges: %v", n, err)
	}
	// In the error state the kernel is told.
	must(t, o.qp.Modify(rdma.QPAttr{State: rdma.ErrState}, rdma.MaskState))
	must(t, rdma.PostReceive(o.qp, rdma.RecvWR{}))
	if f.Kicks != 1 {
		t.Errorf("the kernel was told %d times of a receive in the error state", f.Kicks)
	}
}

func TestEvents(t *testing.T) {
	f := openFake(t)
	o := f.objects(t)
	o.ready(t)
	ctx, cancel := context.WithCancel(t.Context())
	must(t, o.cq.Arm(true))
	if f.Solicited != 1 {
		t.Error("armed for all completions")
	}
	done := make(chan error)
	go func() { done <- o.cq.Wait(ctx) }()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled wait: %v", err)
	}
	// After it, the queue works.
	must(t, o.cq.Arm(false))
	go func() { done <- o.cq.Wait(t.Context()) }()
	must(t, rdma.Post(o.qp, rdma.SendWR{ID: 5, Flags: rdma.Signaled}))
	must(t, <-done)
	if f.Acks != 1 {
		t.Errorf("%d events acknowledged", f.Acks)
	}
	if wc, err := rdma.One(t.Context(), o.cq); wc.ID != 5 || err != nil {
		t.Errorf("completion %+v, %v", wc, err)
	}
}

// An overflow and a failed device are reported once the queue is empty.
func TestAsyncEvents(t *testing.T) {
	for name, c := range map[string]struct {
		event func(o objects) (uintptr, uintptr)
		errno syscall.Errno
	}{
		"overflow":      {func(o objects) (uintptr, uintptr) { return o.cq.cq, abi.EventCQErr }, syscall.EOVERFLOW},
		"failed device": {func(o objects) (uintptr, uintptr) { return 0, abi.EventDeviceFatal }, syscall.EIO},
	} {
		t.Run(name, func(t *testing.T) {
			f := openFake(t)
			o := f.objects(t)
			o.ready(t)
			must(t, rdma.Post(o.qp, rdma.SendWR{ID: 6, Flags: rdma.Signaled}))
			element, kind := c.event(o)
			f.event.Call(element, kind)
			for !o.cq.lost.Load() && !o.dev.fatal.Load() {
				runtime.Gosched()
			}
			var wcs [2]rdma.WC
			if n, err := o.cq.Poll(wcs[:]); n != 1 || err != nil {
				t.Errorf("polled %d: %v", n, err)
			}
			if _, err := o.cq.Poll(wcs[:]); !errors.Is(err, c.errno) {
				t.Errorf("an empty queue: %v", err)
			}
		})
	}
}

func TestClosed(t *testing.T) {
	f := openFake(t)
	d, err := f.Open("")
	must(t, err)
	pd, err := d.AllocPD()
	must(t, err)
	cq, err := d.CreateCQ(8)
	must(t, err)
	cfg := rdma.QPConfig{SendCQ: cq, RecvCQ: cq}
	if _, err := pd.CreateQP(rdma.QPConfig{SendCQ: cq, RecvCQ: cq, Caps: rdma.QPCaps{SendWR: 501}}); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("a queue pair that is too large: %v", err)
	}
	if _, err := pd.CreateQP(rdma.QPConfig{}); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("a queue pair without completion queues: %v", err)
	}
	qp, err := pd.CreateQP(cfg)
	must(t, err)
	for _, c := range []interface{ Close() error }{d, pd, cq} {
		if err := c.Close(); !errors.Is(err, syscall.EBUSY) {
			t.Errorf("close %T in use: %v", c, err)
		}
	}
	must(t, rdma.Prepare(qp, rdma.Options{}))
	for _, c := range []interface{ Close() error }{qp, cq, pd, d} {
		must(t, c.Close())
	}
	for name, call := range map[string]func() error{
		"qp.Close": qp.Close,
		"cq.Close": cq.Close,
		"pd.Close": pd.Close,
		"PostSend": func() error { return rdma.Post(qp, rdma.SendWR{}) },
		"PostRecv": func() error { return rdma.PostReceive(qp, rdma.RecvWR{}) },
		"Modify":   func() error { return qp.Modify(rdma.QPAttr{}, rdma.MaskState) },
		"Poll":     func() error { _, err := cq.Poll(make([]rdma.WC, 1)); return err },
		"Arm":      func() error { return cq.Arm(false) },
		"Wait":     func() error { return cq.Wait(t.Context()) },
		"Register": func() error { _, err := pd.Register(rdma.Address(4096, 1), 0); return err },
		"CreateQP": func() error { _, err := pd.CreateQP(cfg); return err },
		"AllocPD":  func() error { _, err := d.AllocPD(); return err },
		"CreateCQ": func() error { _, err := d.CreateCQ(1); return err },
		"Attr":     func() error { _, err := d.Attr(); return err },
		"GIDs":     func() error { _, err := d.GIDs(1); return err },
	} {
		if err := call(); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%s after the end: %v", name, err)
		}
	}
}

func TestPollDoesNotAllocate(t *testing.T) {
	f := openFake(t)
	o := f.objects(t)
	o.ready(t)
	wrs := []rdma.SendWR{{ID: 1, Flags: rdma.Signaled}}
	wcs := make([]rdma.WC, 4)
	var qp rdma.QP = o.qp
	if n := testing.AllocsPerRun(100, func() {
		if _, err := qp.PostSend(wrs); err != nil {
			t.Fatal(err)
		}
		if n, err := o.cq.Poll(wcs); n != 1 || err != nil {
			t.Fatalf("polled %d, %v", n, err)
		}
	}); n != 0 && !raceEnabled {
		t.Errorf("a post and a poll make %v allocations", n)
	}
}

func TestResult(t *testing.T) {
	for _, c := range []struct {
		r     int32
		errno syscall.Errno
		want  error
	}{
		{0, syscall.EIO, nil},
		{12, 0, syscall.ENOMEM},
		{-12, syscall.EIO, syscall.ENOMEM},
		{-1, syscall.EAGAIN, syscall.EAGAIN},
		{-1, 0, syscall.EPERM},
	} {
		if got := result(c.r, c.errno); got != c.want {
			t.Errorf("result %d, errno %d: %v", c.r, c.errno, got)
		}
	}
}

func TestPCI(t *testing.T) {
	sys := t.TempDir()
	link := func(name, target string) {
		t.Helper()
		dir := filepath.Join(sys, "class/infiniband", name)
		must(t, os.MkdirAll(dir, 0o700))
		must(t, os.Symlink(target, filepath.Join(dir, "device")))
	}
	link("mlx5_0", "../../../0000:65:00.0")
	link("rxe0", "../../../virtio0")
	for name, want := range map[string]string{"mlx5_0": "0000:65:00.0", "rxe0": "", "none": ""} {
		if got := pciOf(sys, name); got != want {
			t.Errorf("%s is at %q, want %q", name, got, want)
		}
	}
}
