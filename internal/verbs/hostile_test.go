package verbs

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/culvert-io/culvert/rdma"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type heap []byte

func (h heap) Acquire(segs [][]byte, off uint64, n int, _ bool) ([][]byte, Hold, error) {
	return append(segs, h[off:off+uint64(n)]), nil, nil
}
func (h heap) Close() error { return nil }

// A victim is a queue pair whose peer is the test itself.
type victim struct {
	t     testing.TB
	dev   *Device
	pd    rdma.PD
	cq    rdma.CQ
	qp    *QP
	mem   []byte // the region is in the middle of it
	mr    rdma.MR
	local rdma.GID
}

const (
	victimMem  = 12 << 10
	victimFrom = 4 << 10
	victimLen  = 4 << 10
)

func newVictim(t testing.TB, token string) *victim {
	t.Helper()
	v := &victim{t: t, local: rdma.GIDFrom(netip.MustParseAddr("127.0.0.1"))}
	var err error
	v.dev, err = Open(Config{
		Info: rdma.DeviceInfo{Name: "victim"}, Listen: netip.MustParseAddrPort("127.0.0.1:0"), Token: []byte(token),
		Register: func(m rdma.Memory, _ rdma.Access, _ func()) (Backing, error) { return heap(m.Bytes()), nil },
	})
	v.ok(err)
	v.pd, err = v.dev.AllocPD()
	v.ok(err)
	v.cq, err = v.dev.CreateCQ(64)
	v.ok(err)
	v.mem = bytes.Repeat([]byte{0x5a}, victimMem)
	v.mr, err = v.pd.Register(rdma.Host(v.mem[victimFrom:][:victimLen]), rdma.LocalWrite|rdma.RemoteWrite|rdma.RemoteRead|rdma.RemoteAtomic)
	v.ok(err)
	v.newQP()
	return v
}

// The peer: its number is lower in no order, so that it dials.
const peerQP, peerLID, peerPSN, ownPSN = 2, 1, 0x1111, 0x2222

// newQP makes a queue pair that waits for the peer's connection.
func (v *victim) newQP() {
	v.t.Helper()
	qp, err := v.pd.CreateQP(rdma.QPConfig{SendCQ: v.cq, RecvCQ: v.cq, Caps: rdma.QPCaps{RecvWR: 4, SendWR: 4}})
	v.ok(err)
	v.qp = qp.(*QP)
	own := rdma.QPInfo{QPNum: v.qp.Num(), PSN: ownPSN, LID: v.dev.lid, MTU: 5, RDAtomic: 4, GID: v.local}
	peer := rdma.QPInfo{QPNum: peerQP, PSN: peerPSN, LID: peerLID, MTU: 5, RDAtomic: 4, GID: v.local}
	v.ok(rdma.Connect(v.qp, own, peer, rdma.GIDChoice{}, rdma.Options{}))
}

func (v *victim) ok(err error) {
	v.t.Helper()
	if err != nil {
		v.t.Fatal(err)
	}
}

// until waits for something that happens at once unless it is broken.
func (v *victim) until(cond func() bool) {
	v.t.Helper()
	for end := time.Now().Add(30 * time.Second); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			v.t.Fatal("it does not happen")
		}
	}
}

func (v *victim) close() {
	v.t.Helper()
	for _, c := range []io.Closer{v.qp, v.mr, v.cq, v.pd, v.dev} {
		v.ok(c.Close())
	}
}

// hello is what the real peer would send.
func (v *victim) hello() hello {
	return hello{src: peerQP, dst: v.qp.Num(), lid: peerLID, sends: true, gid: v.local, sq: peerPSN, rq: ownPSN}
}

// dial connects as a peer with a hello and a token; it fails if the victim hangs up.
func (v *victim) dial(h hello, token string) (net.Conn, error) {
	v.t.Helper()
	c, err := net.Dial("tcp", v.dev.lis.Addr().String())
	v.ok(err)
	v.ok(c.SetDeadline(time.Now().Add(30 * time.Second)))
	greet := make([]byte, greetSize)
	_, err = io.ReadFull(c, greet)
	v.ok(err)
	as := &Device{cfg: Config{Token: []byte(token)}}
	b := h.bytes()
	_, err = c.Write(append(b, as.proof("dialer", greet, b)...))
	v.ok(err)
	// A stranger does not mind a wrong proof of the victim.
	if _, err := io.ReadFull(c, make([]byte, welcomeSize+proofSize)); err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

func (v *victim) outside() bool {
	want := bytes.Repeat([]byte{0x5a}, victimFrom)
	return bytes.Equal(v.mem[:victimFrom], want) && bytes.Equal(v.mem[victimFrom+victimLen:], want)
}

func send(c net.Conn, h header, data []byte) {
	var b [headerSize]byte
	h.put(&b)
	_, _ = c.Write(append(b[:], data...)) // the victim may have hung up
}

// A connection that does not prove to be the peer's is cut off, and the real one works.
func TestStrangersAreCutOff(t *testing.T) {
	v := newVictim(t, "secret")
	defer v.close()
	for name, change := range map[string]func(h *hello, token *string){
		"token":      func(_ *hello, token *string) { *token = "wrong" },
		"queue pair": func(h *hello, _ *string) { h.dst ^= 1 },
		"source":     func(h *hello, _ *string) { h.src = 3 },
		"PSN":        func(h *hello, _ *string) { h.sq++ },
		"other PSN":  func(h *hello, _ *string) { h.rq++ },
		"address":    func(h *hello, _ *string) { h.gid[15]++ },
		"port":       func(h *hello, _ *string) { h.lid++ },
	} {
		h, token := v.hello(), "secret"
		change(&h, &token)
		if c, err := v.dial(h, token); err == nil {
			t.Errorf("a stranger with a wrong %s was accepted", name)
			_ = c.Close()
		}
	}
	c, err := net.Dial("tcp", v.dev.lis.Addr().String())
	v.ok(err)
	_, _ = c.Write(bytes.Repeat([]byte("GET / HTTP/1.1\r\n"), 20))
	if _, err := io.Copy(io.Discard, c); err == nil {
		_ = c.Close()
	}
	good, err := v.dial(v.hello(), "secret")
	v.ok(err)
	send(good, header{kind: request(rdma.OpWrite), size: 4, addr: v.mr.Addr(), rkey: v.mr.RKey()}, []byte("good"))
	if got := answerOf(t, good); got.kind != kindAck || got.msn != 0 {
		t.Errorf("answer %+v", got)
	}
	v.ok(good.Close())
}

func answerOf(t *testing.T, c net.Conn) header {
	t.Helper()
	var b [headerSize]byte
	if _, err := io.ReadFull(c, b[:]); err != nil {
		t.Fatal(err)
	}
	h, err := parse(&b)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// A peer that lies gets an error or is cut off, the queue pair fails, and no byte outside
// of the region changes.
func TestHostilePeer(t *testing.T) {
	v := newVictim(t, "")
	write := header{kind: request(rdma.OpWrite), addr: v.mr.Addr(), rkey: v.mr.RKey(), size: 8}
	with := func(change func(h *header)) header { h := write; change(&h); return h }
	data := bytes.Repeat([]byte{0xff}, 64<<10)
	for name, c := range map[string]struct {
		h    header
		nak  uint8 // 0: cut off without an answer
		data int
	}{
		"behind the region":      {with(func(h *header) { h.size = victimLen + 1 }), nakAccess, victimLen + 1},
		"before the region":      {with(func(h *header) { h.addr-- }), nakAccess, 8},
		"wraps around":           {with(func(h *header) { h.addr = 1<<64 - 4 }), nakAccess, 8},
		"guessed key":            {with(func(h *header) { h.rkey ^= 1 }), nakAccess, 8},
		"length of a gigabyte":   {with(func(h *header) { h.size = 1 << 30 }), nakAccess, 1000},
		"read behind":            {with(func(h *header) { h.kind, h.size = request(rdma.OpRead), victimLen+1 }), nakAccess, 0},
		"odd atomic":             {with(func(h *header) { h.kind, h.addr = request(rdma.OpFetchAdd), h.addr+1 }), nakInvalid, 0},
		"number from the future": {with(func(h *header) { h.msn = 5 }), 0, 8},
		"answer to nothing":      {header{kind: kindAck, msn: 3}, 0, 0},
		"data of no read":        {header{kind: kindRead, size: 16}, 0, 16},
		"unknown frame":          {header{kind: 0x33}, 0, 0},
		"too long":               {with(func(h *header) { h.size = 1<<30 + 1 }), 0, 100},
	} {
		p, err := v.dial(v.hello(), "")
		v.ok(err)
		send(p, c.h, data[:c.data])
		b, _ := io.ReadAll(io.LimitReader(p, headerSize)) // a reset is an end, too
		var nak uint8
		if len(b) == headerSize && kind(b[0]) == kindNak {
			nak = b[2]
		}
		if nak != c.nak {
			t.Errorf("%s: answered with code %d, want %d", name, nak, c.nak)
		}
		v.ok(p.Close())
		v.until(func() bool { return v.qp.State() == rdma.ErrState })
		if !v.outside() {
			t.Fatalf("%s: bytes outside of the region have changed", name)
		}
		v.ok(v.qp.Close())
		v.newQP()
	}
	v.close()
}

// A peer that stops in the middle of a message does not hold memory: the region can be
// deregistered, and its key is dead for the rest of the message.
func TestStalledPeerHoldsNothing(t *testing.T) {
	v := newVictim(t, "")
	p, err := v.dial(v.hello(), "")
	v.ok(err)
	send(p, header{kind: request(rdma.OpWrite), addr: v.mr.Addr(), rkey: v.mr.RKey(), size: victimLen}, make([]byte, 100))
	v.until(func() bool { return v.dev.Counters().ReceivedFrames > 0 })
	v.ok(v.mr.Close())
	copy(v.mem[victimFrom:][:victimLen], bytes.Repeat([]byte{0x77}, victimLen))
	_, err = p.Write(make([]byte, victimLen-100))
	v.ok(err)
	if got := answerOf(t, p); got.kind != kindNak || got.code != nakAccess {
		t.Errorf("answer %+v", got)
	}
	if !bytes.Equal(v.mem[victimFrom:][:victimLen], bytes.Repeat([]byte{0x77}, victimLen)) {
		t.Error("memory changed after it was deregistered")
	}
	v.ok(p.Close())
	v.mr, err = v.pd.Register(rdma.Host(v.mem[victimFrom:][:8]), 0)
	v.ok(err)
	v.close()
}

// Polling allocates nothing.
func TestPollAllocatesNothing(t *testing.T) {
	v := newVictim(t, "")
	defer v.close()
	cq, wcs := v.cq.(*CQ), make([]rdma.WC, 4)
	if n := testing.AllocsPerRun(100, func() {
		cq.push(rdma.WC{ID: 1}, false)
		if k, err := v.cq.Poll(wcs); k != 1 || err != nil {
			t.Fatal(k, err)
		}
		_, _ = v.cq.Poll(wcs)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// A full completion queue is reported, not silently cut.
func TestOverrun(t *testing.T) {
	v := newVictim(t, "")
	defer v.close()
	for i := range 65 {
		v.cq.(*CQ).push(rdma.WC{ID: uint64(i)}, false)
	}
	wcs := make([]rdma.WC, 100)
	if n, err := v.cq.Poll(wcs); n != 64 || err != nil {
		t.Fatal(n, err)
	}
	if _, err := v.cq.Poll(wcs); err == nil {
		t.Error("completions were lost without an error")
	}
	if _, err := rdma.Await(context.Background(), v.cq, wcs); err == nil {
		t.Error("waiting on a queue that lost completions gives no error")
	}
}

// FuzzWire sends bytes to a queue pair as its peer does. Whatever they are, no byte outside
// of the region changes, and everything can be closed.
func FuzzWire(f *testing.F) {
	frame := func(h header, n int) []byte {
		var b [headerSize]byte
		h.put(&b)
		return append(b[:], make([]byte, n)...)
	}
	f.Add(frame(header{kind: request(rdma.OpWrite), size: 100}, 100))
	f.Add(append(frame(header{kind: request(rdma.OpRead), size: 64}, 0), frame(header{kind: request(rdma.OpSend), msn: 1, size: 9}, 9)...))
	f.Add(frame(header{kind: request(rdma.OpFetchAdd), size: 8, a: 1}, 0))
	f.Add(frame(header{kind: kindAck}, 0))
	f.Fuzz(func(t *testing.T, b []byte) {
		v := newVictim(t, "")
		v.ok(rdma.PostReceive(v.qp, rdma.RecvWR{SGE: []rdma.SGE{rdma.Local(v.mr, 0, 64)}}))
		// A fuzzer cannot guess addresses and keys.
		for at := 0; at+headerSize <= len(b); {
			h, err := parse((*[headerSize]byte)(b[at:]))
			if err != nil {
				break
			}
			if h.rkey == 0 {
				h.rkey, h.addr = v.mr.RKey(), h.addr+v.mr.Addr()
				h.put((*[headerSize]byte)(b[at:]))
			}
			at += headerSize + h.follows()
		}
		p, err := v.dial(v.hello(), "")
		v.ok(err)
		_, _ = p.Write(b)
		_ = p.(*net.TCPConn).CloseWrite()
		_, _ = io.Copy(io.Discard, p)
		v.ok(p.Close())
		if !v.outside() {
			t.Error("bytes outside of the region have changed")
		}
		v.close()
	})
}
