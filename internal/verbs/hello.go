package verbs

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"

	"github.com/culvert-io/culvert/rdma"
)

// The handshake of a connection. The listener sends the magic and a nonce; the dialer its
// hello with a nonce and a proof of the token; the listener a welcome with its proof.
const (
	helloMagic  = "CVTCP1\r\n"
	nonceSize   = 32
	proofSize   = sha256.Size
	greetSize   = len(helloMagic) + nonceSize
	helloSize   = len(helloMagic) + nonceSize + 48
	welcomeSize = 16
	helloTime   = 5 * time.Second
)

// A hello names both ends of a connection and what the dialer has executed.
type hello struct {
	nonce    [nonceSize]byte
	src, dst uint32 // queue pairs
	lid      uint16
	sends    bool // sq is known: the dialer is ready to send
	gid      rdma.GID
	sq, rq   uint32 // the dialer's packet sequence numbers
	executed uint64
}

func (h *hello) bytes() []byte {
	b := append(make([]byte, 0, helloSize+proofSize), helloMagic...)
	b = append(b, h.nonce[:]...)
	e := binary.BigEndian
	b = e.AppendUint32(b, h.src)
	b = e.AppendUint32(b, h.dst)
	b = e.AppendUint16(b, h.lid)
	sends := byte(0)
	if h.sends {
		sends = 1
	}
	b = append(b, sends, 0, 0, 0, 0, 0)
	b = append(b, h.gid[:]...)
	b = e.AppendUint32(b, h.sq)
	b = e.AppendUint32(b, h.rq)
	return e.AppendUint64(b, h.executed)
}

func parseHello(b []byte) (h hello, err error) {
	if len(b) != helloSize || string(b[:len(helloMagic)]) != helloMagic {
		return h, errors.New("no hello")
	}
	b = b[copy(h.nonce[:], b[len(helloMagic):])+len(helloMagic):]
	e := binary.BigEndian
	h.src, h.dst, h.lid = e.Uint32(b), e.Uint32(b[4:]), e.Uint16(b[8:])
	h.sends = b[10] == 1
	copy(h.gid[:], b[16:])
	h.sq, h.rq, h.executed = e.Uint32(b[32:]), e.Uint32(b[36:]), e.Uint64(b[40:])
	return h, nil
}

func (d *Device) proof(label string, parts ...[]byte) []byte {
	m := hmac.New(sha256.New, d.cfg.Token)
	m.Write([]byte(label))
	for _, p := range parts {
		m.Write(p)
	}
	return m.Sum(nil)
}

// accept accepts connections of dialers.
func (d *Device) accept() {
	for {
		c, err := d.lis.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // out of descriptors, or the dialer is gone
			time.Sleep(10 * time.Millisecond)
			continue
		}
		if !d.hellos.TryAcquire(1) {
			_ = c.Close() // too many at once
			continue
		}
		d.tasks.Go(func() {
			defer d.hellos.Release(1)
			if !d.track(c) {
				_ = c.Close()
				return
			}
			if err := d.serve(c); err != nil {
				d.counters.refused.Add(1)
				d.untrack(c)
			}
		})
	}
}

// serve is the listener's half of the handshake. On success the connection belongs to a
// queue pair.
func (d *Device) serve(c net.Conn) error {
	_ = c.SetDeadline(time.Now().Add(helloTime))
	x := c
	if d.cfg.TLS != nil {
		x = tls.Server(c, d.cfg.TLS)
	}
	greet := append(make([]byte, 0, greetSize), helloMagic...)
	greet = append(greet, random()...)
	if _, err := x.Write(greet); err != nil {
		return err
	}
	b := make([]byte, helloSize+proofSize)
	if _, err := io.ReadFull(x, b); err != nil {
		return err
	}
	if !hmac.Equal(b[helloSize:], d.proof("dialer", greet, b[:helloSize])) {
		return errors.New("the token is wrong")
	}
	h, err := parseHello(b[:helloSize])
	if err != nil {
		return err
	}
	q := d.pair(h.dst)
	if q == nil {
		return fmt.Errorf("no QP %#x", h.dst)
	}
	return q.welcome(c, x, h, greet)
}

// welcome checks that the dialer is the peer, and takes its connection.
func (q *QP) welcome(c, x net.Conn, h hello, greet []byte) error {
	executed, life, err := q.expectHello(h)
	if err != nil {
		return err
	}
	w := binary.BigEndian.AppendUint64(make([]byte, 8, welcomeSize+proofSize), executed)
	if _, err := x.Write(append(w, q.dev.proof("listener", greet, h.bytes(), w)...)); err != nil {
		return err
	}
	return q.attach(c, x, life, h.executed)
}

func (q *QP) expectHello(h hello) (executed uint64, life int, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	a := &q.attr
	sends := q.state == rdma.RTS
	if q.ended == nil || !sends && !h.sends {
		return 0, 0, fmt.Errorf("QP %#x is not ready", q.num)
	}
	if h.src != a.DestQPN || h.gid != a.AV.DGID || h.lid != a.AV.DLID || h.sends && h.sq != a.RQPSN || sends && h.rq != a.SQPSN || q.lower() < 0 {
		return 0, 0, fmt.Errorf("the dialer is not the peer of QP %#x", q.num)
	}
	q.disconnect() // an older connection, which the peer has given up
	q.life++
	return q.resp.executed, q.life, nil
}

// attach gives a queue pair its connection.
func (q *QP) attach(c, x net.Conn, life int, executed uint64) error {
	_ = c.SetDeadline(time.Time{})
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.SetNoDelay(true)
	}
	n := newConn(q, x)
	q.mu.Lock()
	if q.life != life || q.ended == nil {
		q.mu.Unlock()
		return errCut
	}
	if err := q.resume(executed); err != nil {
		q.fail(nil, rdma.BadRespErr)
		q.mu.Unlock()
		return err
	}
	q.conn = n
	clear(q.resp.answers)
	q.resp.answers, q.resp.ackDue, q.resp.rnr = q.resp.answers[:0], false, false
	n.track = c
	n.start()
	q.mu.Unlock()
	n.kick()
	return nil
}

// dial keeps a queue pair connected until its life ends.
func (q *QP) dial(ended chan struct{}) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	q.dev.tasks.Go(func() {
		select {
		case <-ended:
		case <-ctx.Done():
		}
		cancel()
	})
	const first, most = time.Millisecond, 200 * time.Millisecond
	pause := first
	for {
		if err := q.call(ctx); err != nil {
			select {
			case <-ended:
				return
			case <-time.After(pause):
			}
			pause = min(2*pause, most)
			continue
		}
		pause = first
		select {
		case <-ended:
			return
		case <-q.lost:
		}
	}
}

// call is the dialer's half of the handshake.
func (q *QP) call(ctx context.Context) error {
	d := q.dev
	h, addr, life, ok := q.startCall()
	if !ok {
		return errCut
	}
	ctx, cancel := context.WithTimeout(ctx, helloTime)
	defer cancel()
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr.String())
	if err != nil {
		return err
	}
	if !d.track(c) {
		return errors.Join(net.ErrClosed, c.Close())
	}
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	_ = c.SetDeadline(time.Now().Add(helloTime))
	x := c
	if d.cfg.TLS != nil {
		x = tls.Client(c, d.clientTLS(addr.Addr()))
	}
	executed, err := d.greet(x, h)
	if err == nil && stop() {
		err = q.attach(c, x, life, executed)
	}
	if err != nil {
		d.untrack(c)
	}
	return err
}

func (d *Device) clientTLS(peer netip.Addr) *tls.Config {
	cfg := d.cfg.TLS.Clone()
	cfg.ServerName = cmp.Or(cfg.ServerName, peer.String())
	return cfg
}

func (q *QP) startCall() (h hello, addr netip.AddrPort, life int, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ended == nil {
		return h, addr, 0, false
	}
	q.disconnect()
	select {
	case <-q.lost:
	default:
	}
	q.life++
	a := &q.attr
	h = hello{
		src: q.num, dst: a.DestQPN, lid: q.dev.lid, sends: q.state == rdma.RTS, gid: q.dev.gids[a.AV.SGIDIndex].GID,
		sq: a.SQPSN, rq: a.RQPSN, executed: q.resp.executed,
	}
	copy(h.nonce[:], random())
	return h, netip.AddrPortFrom(a.AV.DGID.Addr(), a.AV.DLID), q.life, true
}

// greet sends a hello and reads the welcome.
func (d *Device) greet(c net.Conn, h hello) (executed uint64, err error) {
	greet := make([]byte, greetSize)
	if _, err := io.ReadFull(c, greet); err != nil {
		return 0, err
	}
	if string(greet[:len(helloMagic)]) != helloMagic {
		return 0, errors.New("the listener is no culvert")
	}
	b := h.bytes()
	if _, err := c.Write(append(b, d.proof("dialer", greet, b)...)); err != nil {
		return 0, err
	}
	w := make([]byte, welcomeSize+proofSize)
	if _, err := io.ReadFull(c, w); err != nil {
		return 0, err
	}
	if !hmac.Equal(w[welcomeSize:], d.proof("listener", greet, b, w[:welcomeSize])) {
		return 0, errors.New("the listener's token is wrong")
	}
	return binary.BigEndian.Uint64(w[8:]), nil
}

func random() []byte {
	b := make([]byte, nonceSize)
	_, _ = rand.Read(b) // never fails
	return b
}
