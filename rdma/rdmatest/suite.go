package rdmatest

import (
	"context"
	"encoding/binary"
	"errors"
	"syscall"
	"testing"

	"github.com/culvert-io/culvert/rdma"
)

// Run runs the suite.
func Run(t *testing.T, b Backend) {
	for _, c := range []struct {
		name string
		run  func(*testing.T, Backend)
	}{
		{"Device", device},
		{"Steps", stepsInOrder},
		{"Write", write},
		{"Read", read},
		{"Sizes", sizes},
		{"SendReceive", sendReceive},
		{"Immediate", immediate},
		{"Inline", inline},
		{"ScatterGather", scatterGather},
		{"Atomics", atomics},
		{"Unsignaled", unsignaled},
		{"Order", order},
		{"ManyReads", manyReads},
		{"BothWays", bothWays},
		{"Events", events},
		{"QueueFull", queueFull},
		{"Register", register},
		{"RemoteAccess", remoteAccess},
		{"Deregistered", deregistered},
		{"LocalProtection", localProtection},
		{"ReceiveTooSmall", receiveTooSmall},
		{"NotReady", notReady},
		{"NotReadyExceeded", notReadyExceeded},
		{"RetryExceeded", retryExceeded},
		{"Flush", flush},
		{"Drain", drain},
		{"ResetAndReuse", resetAndReuse},
		{"OtherDomain", otherDomain},
		{"Busy", busy},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(t, b) })
	}
}

func device(t *testing.T, b Backend) {
	p := b.Connect(t, setup{})
	attr, err := p.A.Dev.Attr()
	p.A.ok(err)
	if attr.Ports < 1 || attr.MaxSGE < 1 || attr.MaxQPWR < 1 || p.A.Dev.Info().Name == "" || p.A.Dev.Provider() == "" {
		t.Errorf("attributes %+v of %+v", attr, p.A.Dev.Info())
	}
	port, err := p.A.Dev.Port(1)
	p.A.ok(err)
	if port.State != rdma.PortActive || port.MaxMsg == 0 {
		t.Errorf("port %+v", port)
	}
	if _, err := p.A.Dev.Port(attr.Ports + 1); err == nil {
		t.Error("a port that does not exist was described")
	}
	gids, err := p.A.Dev.GIDs(1)
	p.A.ok(err)
	for _, g := range gids {
		if g.GID.IsZero() {
			t.Errorf("empty GID %+v", g)
		}
	}
}

func stepsInOrder(t *testing.T, b Backend) {
	d, d2 := b.Open(t)
	if d2 != d {
		defer closing(t, d2)
	}
	defer closing(t, d)
	e := b.end(t, d, setup{})
	defer e.close()
	if s := e.QP.State(); s != rdma.Reset {
		t.Errorf("a new queue pair is in state %v", s)
	}
	refused(t, e.QP.Modify(rdma.QPAttr{State: rdma.RTS}, rdma.ToRTS), "RESET to RTS was accepted")
	refused(t, rdma.Post(e.QP, rdma.SendWR{Op: rdma.OpSend}), "a send was posted in RESET")
	e.ok(rdma.Prepare(e.QP, rdma.Options{}))
	e.recv(1, 0, 16)
	refused(t, rdma.Post(e.QP, rdma.SendWR{Op: rdma.OpSend}), "a send was posted in INIT")
	refused(t, e.QP.Modify(rdma.QPAttr{State: rdma.RTR}, rdma.MaskState), "INIT to RTR without a peer was accepted")
	e.ok(e.QP.Modify(rdma.QPAttr{State: rdma.ErrState}, rdma.MaskState))
	e.want(1, rdma.FlushErr)
	e.ok(e.QP.Modify(rdma.QPAttr{State: rdma.Reset}, rdma.MaskState))
	if s := e.QP.State(); s != rdma.Reset {
		t.Errorf("after RESET the state is %v", s)
	}
}

func write(t *testing.T, b Backend) {
	p := b.Connect(t, setup{})
	fill(p.A.Buf, 1)
	p.A.post(p.B, rdma.SendWR{ID: 7, Op: rdma.OpWrite, SGE: []rdma.SGE{p.A.at(100, 5000)}, RemoteAddr: 300})
	wc := p.A.want(7, rdma.Success)
	if wc.Op != rdma.WCWrite {
		t.Errorf("completion %+v", wc)
	}
	// The completion means that the data has arrived.
	p.B.equal(p.B.Buf[300:5300], p.A.Buf[100:5100], "written")
	p.B.equal(p.B.Buf[:300], make([]byte, 300), "before")
	p.B.equal(p.B.Buf[5300:], make([]byte, size-5300), "after")
	p.B.empty()
}

func read(t *testing.T, b Backend) {
	p := b.Connect(t, setup{})
	fill(p.B.Buf, 2)
	p.A.post(p.B, rdma.SendWR{ID: 8, Op: rdma.OpRead, SGE: []rdma.SGE{p.A.at(16, 70000)}, RemoteAddr: 1})
	wc := p.A.want(8, rdma.Success)
	if wc.Op != rdma.WCRead || wc.Len != 70000 {
		t.Errorf("completion %+v", wc)
	}
	p.A.equal(p.A.Buf[16:70016], p.B.Buf[1:70001], "read")
	p.A.equal(p.A.Buf[70016:], make([]byte, size-70016), "after")
}

// sizes moves whole buffers and single bytes, each way.
func sizes(t *testing.T, b Backend) {
	p := b.Connect(t, setup{})
	for i, n := range []uint32{1, 47, 48, 4095, 4096, 4097, 16383, 16384, 65537, size} {
		fill(p.A.Buf[:n], byte(i+1))
		p.A.post(p.B, rdma.SendWR{ID: 1, Op: rdma.OpWrite, SGE: []rdma.SGE{p.A.at(0, n)}})
		p.A.want(1, rdma.Success)
		p.B.equal(p.B.Buf[:n], p.A.Buf[:n], "written")
		fill(p.B.Buf[:n], byte(i+101))
		p.A.post(p.B, rdma.SendWR{ID: 2, Op: rdma.OpRead, SGE: []rdma.SGE{p.A.at(0, n)}})
		p.A.want(2, rdma.Success)
		p.A.equal(p.A.Buf[:n], p.B.Buf[:n], "read")
	}
}

func sendReceive(t *testing.T, b Backend) {
	p := b.Connect(t, setup{})
	fill(p.A.Buf[:100], 3)
	p.B.recv(5, 200, 150)
	p.A.post(p.B, rdma.SendWR{ID: 6, Op: rdma.OpSend, SGE: []rdma.SGE{p.A.at(0, 100)}})
	p.A.want(6, rdma.Success)
	wc := p.B.want(5, rdma.Success)
	if wc.Op != rdma.WCRecv || wc.Len != 100 || wc.Flags&rdma.WithImm != 0 {
		t.Errorf("completion %+v", wc)
	}
	p.B.equal(p.B.Buf[200:300], p.A.Buf[:100], "received")
	// A send without data still consumes a receive.
	p.B.recv(9, 0, 10)
	p.A.post(p.B, rdma.SendWR{ID: 10, Op: rdma.OpSend})
	p.A.want(10, rdma.Success)
	if wc := p.B.want(9, rdma.Success); wc.Len != 0 {
		t.Errorf("completion %+v", wc)
	}
}

func immediate(t *testing.T, b Backend) {
	p := b.Connect(t, setup{})
	fill(p.A.Buf[:64], 4)
	p.B.recv(1, 0, 0)
	p.B.recv(2, 512, 64)
	p.A.post(p.B, rdma.SendWR{ID: 3, Op: rdma.OpWriteImm, Imm: 0x01020304, SGE: []rdma.SGE{p.A.at(0, 64)}, RemoteAddr: 128})
	p.A.post(p.B, rdma.SendWR{ID: 4, Op: rdma.OpSendImm, Imm: 0xfffefdfc, SGE: []rdma.SGE{p.A.at(0, 64)}})
	p.A.want(3, rdma.Success)
	p.A.want(4, rdma.Success)
	wc := p.B.want(1, rdma.Success)
	if wc.Op != rdma.WCRecvImm || wc.Imm != 0x01020304 || wc.Flags&rdma.WithImm == 0 || wc.Len != 64 {
		t.Errorf("write with immediate: %+v", wc)
	}
	wc = p.B.want(2, rdma.Success)
	if wc.Op != rdma.WCRecv || wc.Imm != 0xfffefdfc || wc.Flags&rdma.WithImm == 0 {
		t.Errorf("send with immediate: %+v", wc)
	}
	p.B.equal(p.B.Buf[128:192], p.A.Buf[:64], "written")
	p.B.equal(p.B.Buf[512:576], p.A.Buf[:64], "sent")
}

// inline data may change, and has no key, once it is posted.
func inline(t *testing.T, b Backend) {
	p := b.Connect(t, setup{caps: rdma.QPCaps{InlineData: 64}})
	copy(p.A.Buf, "inline data")
	p.A.post(p.B, rdma.SendWR{ID: 1, Op: rdma.OpWrite, Flags: rdma.Inline, SGE: []rdma.SGE{{Addr: uint64(p.A.address(0)), Len: 11}}})
	copy(p.A.Buf, "overwritten")
	p.A.want(1, rdma.Success)
	p.B.equal(p.B.Buf[:11], []byte("inline data"), "written")
	refused(t, rdma.Post(p.A.QP, rdma.SendWR{Op: rdma.OpWrite, Flags: rdma.Inline, SGE: []rdma.SGE{p.A.at(0, 4096)}}), "4096 bytes were posted inline")
}

func scatterGather(t *testing.T, b Backend) {
	p := b.Connect(t, setup{caps: rdma.QPCaps{SendSGE: 4, RecvSGE: 4}})
	fill(p.A.Buf[:1000], 5)
	gather := []rdma.SGE{p.A.at(900, 100), p.A.at(0, 1), p.A.at(10, 0), p.A.at(500, 33)}
	want := append(append(append([]byte(nil), p.A.Buf[900:1000]...), p.A.Buf[0]), p.A.Buf[500:533]...)
	p.A.post(p.B, rdma.SendWR{ID: 1, Op: rdma.OpWrite, SGE: gather, RemoteAddr: 64})
	p.A.want(1, rdma.Success)
	p.B.equal(p.B.Buf[64:64+len(want)], want, "gathered")
	p.B.ok(rdma.PostReceive(p.B.QP, rdma.RecvWR{ID: 2, SGE: []rdma.SGE{p.B.at(4096, 50), p.B.at(8192, 500)}}))
	p.A.post(p.B, rdma.SendWR{ID: 3, Op: rdma.OpSend, SGE: gather})
	p.A.want(3, rdma.Success)
	p.B.want(2, rdma.Success)
	p.B.equal(p.B.Buf[4096:4146], want[:50], "scattered")
	p.B.equal(p.B.Buf[8192:8192+len(want)-50], want[50:], "scattered")
	p.A.post(p.B, rdma.SendWR{ID: 4, Op: rdma.OpRead, SGE: []rdma.SGE{p.A.at(2000, 7), p.A.at(3000, 93)}, RemoteAddr: 64})
	p.A.want(4, rdma.Success)
	p.A.equal(append(append([]byte(nil), p.A.Buf[2000:2007]...), p.A.Buf[3000:3093]...), want[:100], "read")
	refused(t, rdma.Post(p.A.QP, rdma.SendWR{Op: rdma.OpWrite, SGE: make([]rdma.SGE, 1000)}), "1000 SGEs were posted")
}

func atomics(t *testing.T, b Backend) {
	p := b.Connect(t, setup{})
	e := binary.LittleEndian
	e.PutUint64(p.B.Buf[8:], 40)
	old := func() uint64 { return e.Uint64(p.A.Buf[:8]) }
	now := func() uint64 { return e.Uint64(p.B.Buf[8:]) }
	result := []rdma.SGE{p.A.at(0, 8)}
	p.A.post(p.B, rdma.SendWR{ID: 1, Op: rdma.OpFetchAdd, SGE: result, RemoteAddr: 8, CompareAdd: 2})
	if wc := p.A.want(1, rdma.Success); wc.Op != rdma.WCFetchAdd || old() != 40 || now() != 42 {
		t.Errorf("fetch and add: %+v, old %d, now %d", wc, old(), now())
	}
	p.A.post(p.B, rdma.SendWR{ID: 2, Op: rdma.OpCmpSwap, SGE: result, RemoteAddr: 8, CompareAdd: 42, Swap: 7})
	if wc := p.A.want(2, rdma.Success); wc.Op != rdma.WCCmpSwap || old() != 42 || now() != 7 {
		t.Errorf("compare and swap: %+v, old %d, now %d", wc, old(), now())
	}
	p.A.post(p.B, rdma.SendWR{ID: 3, Op: rdma.OpCmpSwap, SGE: result, RemoteAddr: 8, CompareAdd: 42, Swap: 9})
	if p.A.want(3, rdma.Success); old() != 7 || now() != 7 {
		t.Errorf("compare with another value: old %d, now %d", old(), now())
	}
	// An address that is not aligned fails at the peer, or at once.
	err := rdma.Post(p.A.QP, rdma.SendWR{ID: 4, Op: rdma.OpFetchAdd, Flags: rdma.Signaled, SGE: result, RemoteAddr: p.B.MR.Addr() + 12, RKey: p.B.MR.RKey(), CompareAdd: 1})
	if err == nil {
		p.A.want(4, rdma.RemInvReqErr)
	} else if !errors.Is(err, syscall.EINVAL) {
		t.Errorf("an atomic at an address that is not aligned: %v", err)
	}
}

// unsignaled requests complete silently, those that fail do not.
func unsignaled(t *testing.T, b Backend) {
	p := b.Connect(t, setup{})
	for i := range 10 {
		p.A.Buf[0] = byte(i)
		p.A.ok(rdma.Post(p.A.QP, rdma.SendWR{ID: 99, Op: rdma.OpWrite, SGE: []rdma.SGE{p.A.at(0, 1)}, RemoteAddr: p.B.MR.Addr() + uint64(i), RKey: p.B.MR.RKey()}))
	}
	p.A.post(p.B, rdma.SendWR{ID: 1, Op: rdma.OpWrite, SGE: []rdma.SGE{p.A.at(0, 1)}})
	p.A.want(1, rdma.Success)
	p.A.empty()
	p.A.ok(rdma.Post(p.A.QP, rdma.SendWR{ID: 2, Op: rdma.OpWrite, SGE: []rdma.SGE{p.A.at(0, 1)}, RemoteAddr: p.B.MR.Addr() + size, RKey: p.B.MR.RKey()}))
	p.A.want(2, rdma.RemAccessErr)
}

// order: completions come in the order of the posts, whatever the operations.
func order(t *testing.T, b Backend) {
	p := b.Connect(t, setup{receives: 20})
	for i := range 60 {
		wr := rdma.SendWR{ID: uint64(i), Op: []rdma.Opcode{rdma.OpRead, rdma.OpWrite, rdma.OpSend}[i%3], SGE: []rdma.SGE{p.A.at(uint64(i)*64, 64)}}
		if i%7 == 0 {
			wr.Flags = rdma.Fence
		}
		p.A.post(p.B, wr)
	}
	for i := range 60 {
		p.A.want(uint64(i), rdma.Success)
	}
	for i := range 20 {
		p.B.want(uint64(1000+i), rdma.Success)
	}
}

// manyReads has more reads in flight than a device may have.
func manyReads(t *testing.T, b Backend) {
	p := b.Connect(t, setup{options: rdma.Options{RDAtomic: 2}, caps: rdma.QPCaps{SendWR: 64}})
	fill(p.B.Buf, 6)
	for i := range 64 {
		p.A.post(p.B, rdma.SendWR{ID: uint64(i), Op: rdma.OpRead, SGE: []rdma.SGE{p.A.at(uint64(i)*4096, 4096)}, RemoteAddr: uint64(i) * 4096})
	}
	for i := range 64 {
		p.A.want(uint64(i), rdma.Success)
	}
	p.A.equal(p.A.Buf[:64*4096], p.B.Buf[:64*4096], "read")
}

// bothWays: large messages in both directions at once do not block each other.
func bothWays(t *testing.T, b Backend) {
	p := b.Connect(t, setup{})
	half := uint32(size / 2)
	fill(p.A.Buf[:half], 7)
	fill(p.B.Buf[:half], 8)
	const rounds = 20
	for i := range rounds {
		op := []rdma.Opcode{rdma.OpWrite, rdma.OpRead}[i%2]
		p.A.post(p.B, rdma.SendWR{ID: uint64(i), Op: op, SGE: []rdma.SGE{p.A.at(uint64(i%2)*uint64(half), half)}, RemoteAddr: uint64(1-i%2) * uint64(half)})
		p.B.post(p.A, rdma.SendWR{ID: uint64(i), Op: op, SGE: []rdma.SGE{p.B.at(uint64(i%2)*uint64(half), half)}, RemoteAddr: uint64(1-i%2) * uint64(half)})
	}
	for i := range rounds {
		p.A.want(uint64(i), rdma.Success)
		p.B.want(uint64(i), rdma.Success)
	}
	p.A.equal(p.A.Buf[half:], p.B.Buf[:half], "at A")
	p.B.equal(p.B.Buf[half:], p.A.Buf[:half], "at B")
}

func events(t *testing.T, b Backend) {
	p := b.Connect(t, setup{receives: 2})
	p.B.ok(p.B.CQ.Arm(false))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.B.CQ.Wait(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("wait without a completion: %v", err)
	}
	p.A.post(p.B, rdma.SendWR{ID: 1, Op: rdma.OpSend, SGE: []rdma.SGE{p.A.at(0, 8)}})
	ctx, cancel = context.WithTimeout(t.Context(), patience)
	defer cancel()
	p.B.ok(p.B.CQ.Wait(ctx))
	p.B.want(1000, rdma.Success)
	p.A.want(1, rdma.Success)
	// Only solicited ones.
	p.B.ok(p.B.CQ.Arm(true))
	p.A.post(p.B, rdma.SendWR{ID: 2, Op: rdma.OpSend, Flags: rdma.Solicited, SGE: []rdma.SGE{p.A.at(0, 8)}})
	p.B.ok(p.B.CQ.Wait(ctx))
	p.B.want(1001, rdma.Success)
	p.A.want(2, rdma.Success)
}

func queueFull(t *testing.T, b Backend) {
	p := b.Connect(t, setup{caps: rdma.QPCaps{RecvWR: 4, SendWR: 4}})
	var err error
	for i := 0; i < 1<<16 && err == nil; i++ {
		err = rdma.PostReceive(p.A.QP, rdma.RecvWR{ID: 1, SGE: []rdma.SGE{p.A.at(0, 8)}})
	}
	if !errors.Is(err, syscall.ENOMEM) {
		t.Errorf("a full receive queue: %v", err)
	}
	// Requests cannot complete while the peer has no receive.
	err = nil
	for i := 0; i < 1<<16 && err == nil; i++ {
		err = rdma.Post(p.A.QP, rdma.SendWR{ID: 1, Op: rdma.OpSend, SGE: []rdma.SGE{p.A.at(0, 8)}})
	}
	if !errors.Is(err, syscall.ENOMEM) {
		t.Errorf("a full send queue: %v", err)
	}
}

func register(t *testing.T, b Backend) {
	p := b.Connect(t, setup{})
	for name, c := range map[string]struct {
		m rdma.Memory
		a rdma.Access
	}{
		"nothing":                          {rdma.Address(p.A.address(0), 0), rdma.LocalWrite},
		"remote write without local write": {rdma.Host(p.A.Buf), rdma.RemoteWrite},
		"not mapped":                       {rdma.Address(1<<46+4096, 4096), rdma.LocalWrite},
		"wraps":                            {rdma.Address(1<<64-4096, 8192), rdma.LocalWrite},
	} {
		mr, err := p.A.PD.Register(c.m, c.a)
		var re *rdma.RegisterError
		if !errors.As(err, &re) || rdma.Errno(err) == 0 {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			closing(t, mr)
		}
	}
	// The same memory may be registered twice, with other rights and another key.
	mr, err := p.B.PD.Register(rdma.Host(p.B.Buf), 0)
	p.B.ok(err)
	defer closing(t, mr)
	if mr.RKey() == p.B.MR.RKey() {
		t.Error("two regions have one key")
	}
	p.A.post(p.B, rdma.SendWR{ID: 1, Op: rdma.OpWrite, SGE: []rdma.SGE{p.A.at(0, 8)}, RKey: mr.RKey()})
	p.A.want(1, rdma.RemAccessErr)
}
