package ibverbs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/lab/inside"
	"github.com/culvert-io/culvert/rdma"
)

// The messages of the first guest to the second, one byte each.
const (
	cutPower = 'c'
	quit     = 'q'
)

// pairAddress is where the second guest listens.
const pairAddress = "10.0.0.2:7000"

// patience bounds waits that end soon unless something is broken, on a busy machine.
const patience = 2 * time.Minute

// TestPairPeerLosesPower moves data between two hosts, cuts the power of one under
// transfers, and connects again after it has booted.
func TestPairPeerLosesPower(t *testing.T) {
	inside.Wanted(t, "CULVERT_WANT_PAIR")
	own := netip.MustParsePrefix(fmt.Sprintf("10.0.0.%d/24", inside.Guest()))
	must(t, inside.SetAddress("eth0", own))
	must(t, inside.AddRXE("rxe0", "eth0"))
	p, err := Open()
	must(t, err)
	dev, err := p.Open("rxe0")
	must(t, err)
	h := &host{t: t, dev: dev}
	h.pd, err = dev.AllocPD()
	must(t, err)
	h.cq, err = dev.CreateCQ(64)
	must(t, err)
	h.buf, err = unix.Mmap(-1, 0, 1<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	must(t, err)
	h.mr, err = h.pd.Register(rdma.Host(h.buf), rdma.LocalWrite|rdma.RemoteWrite|rdma.RemoteRead)
	must(t, err)
	h.qp, err = h.pd.CreateQP(rdma.QPConfig{SendCQ: h.cq, RecvCQ: h.cq})
	must(t, err)
	if inside.Guest() == 2 {
		h.serve()
	} else {
		h.drive()
	}
	for _, c := range []interface{ Close() error }{h.qp, h.mr, h.cq, h.pd, dev, p} {
		must(t, c.Close())
	}
}

// A host is one of the two.
type host struct {
	t   *testing.T
	dev rdma.Device
	pd  rdma.PD
	cq  rdma.CQ
	qp  rdma.QP
	buf []byte
	mr  rdma.MR
}

// establish connects with the peer, which sends the key of its memory.
func (h *host) establish(conn net.Conn) rdma.Key {
	h.t.Helper()
	// rxe takes 7 retries for infinity. 2.1 s until each: emulated machines are slow.
	retries, timeout := uint8(3), uint8(19)
	ctx, cancel := context.WithTimeout(h.t.Context(), patience)
	defer cancel()
	k := rdma.Remote(h.mr)
	peer, err := rdma.Establish(ctx, conn, h.dev, h.qp, rdma.Options{
		Timeout: timeout, Retries: &retries, Data: fmt.Appendf(nil, "%d %d %d", k.Addr, k.Len, k.RKey),
	})
	must(h.t, err)
	var theirs rdma.Key
	_, err = fmt.Sscan(string(peer.Data), &theirs.Addr, &theirs.Len, &theirs.RKey)
	must(h.t, err)
	return theirs
}

// serve is the second host: it lets the first do what it wants.
func (h *host) serve() {
	l, err := net.Listen("tcp", pairAddress)
	must(h.t, err)
	defer l.Close()
	conn, err := l.Accept()
	must(h.t, err)
	defer conn.Close()
	h.establish(conn)
	var order [1]byte
	if _, err := conn.Read(order[:]); err != nil {
		h.t.Fatal(err)
	}
	if order[0] == cutPower {
		h.t.Fatal(inside.PowerCut())
	}
}

// drive is the first host.
func (h *host) drive() {
	conn := h.dial()
	key := h.establish(conn)
	h.move(key, 1)
	_, err := conn.Write([]byte{cutPower})
	must(h.t, err)
	h.lose(key)
	conn.Close()
	// The same queue pair works again with the peer that has booted.
	must(h.t, h.qp.Modify(rdma.QPAttr{State: rdma.Reset}, rdma.MaskState))
	conn = h.dial()
	defer conn.Close()
	h.move(h.establish(conn), 2)
	_, err = conn.Write([]byte{quit})
	must(h.t, err)
}

// dial waits until the peer has booted.
func (h *host) dial() net.Conn {
	h.t.Helper()
	for end := time.Now().Add(patience); ; {
		conn, err := net.DialTimeout("tcp", pairAddress, time.Second)
		if err == nil {
			return conn
		}
		if time.Now().After(end) {
			h.t.Fatal(err)
		}
	}
}

// post posts a request for n bytes of the buffer and of the peer's, and waits for its
// completion.
func (h *host) post(op rdma.Opcode, key rdma.Key, local, remote, n int) error {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), patience)
	defer cancel()
	must(h.t, rdma.Post(h.qp, rdma.SendWR{
		ID: uint64(local), Op: op, Flags: rdma.Signaled, SGE: []rdma.SGE{rdma.Local(h.mr, uint64(local), uint32(n))},
		RemoteAddr: key.Addr + uint64(remote), RKey: key.RKey,
	}))
	wc, err := rdma.One(ctx, h.cq)
	if wc.ID != uint64(local) {
		h.t.Fatalf("completion %+v, %v", wc, err)
	}
	return err
}

// move writes half of the buffer to the peer and reads it back into the other half.
func (h *host) move(key rdma.Key, seed byte) {
	h.t.Helper()
	half := len(h.buf) / 2
	for i := range h.buf[:half] {
		h.buf[i] = byte(i) ^ byte(i>>8)*31 ^ seed
	}
	const chunk = 64 << 10
	for off := 0; off < half; off += chunk {
		must(h.t, h.post(rdma.OpWrite, key, off, off, chunk))
	}
	for off := 0; off < half; off += chunk {
		must(h.t, h.post(rdma.OpRead, key, half+off, off, chunk))
	}
	if !bytes.Equal(h.buf[:half], h.buf[half:]) {
		h.t.Fatal("what was read is not what was written")
	}
}

// lose writes until the peer is gone: retries are exhausted, and what follows is flushed.
func (h *host) lose(key rdma.Key) {
	h.t.Helper()
	end := time.Now().Add(patience)
	for {
		err := h.post(rdma.OpWrite, key, 0, 0, 4096)
		if errors.Is(err, rdma.RetryExcErr) {
			break
		}
		if err != nil || time.Now().After(end) {
			h.t.Fatalf("a peer without power: %v", err)
		}
	}
	if s := h.qp.State(); s != rdma.ErrState {
		h.t.Errorf("the state is %v", s)
	}
	if err := h.post(rdma.OpRead, key, 0, 0, 8); !errors.Is(err, rdma.FlushErr) {
		h.t.Errorf("after it: %v", err)
	}
}
