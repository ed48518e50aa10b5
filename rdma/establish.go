package rdma

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"
)

// Options are the choices of Establish. The zero value is right for most.
type Options struct {
	Port         int     // 0 means 1
	GID          GIDWant // if Peer is not set, the address of the connection's other end is used
	Access       Access  // what the peer may do; 0 means write, read and atomic
	MTU          MTU     // 0 means the port's
	RDAtomic     int     // 0 means as many as the device can, at most 16
	TrafficClass uint8
	HopLimit     uint8 // 0 means 64
	MinRNRTimer  uint8 // 0 means 12, 0.64 ms
	// Timeout is the code of the time until a retry: 4.096 µs × 2^Timeout. 0 means 18,
	// 1.07 s: with 7 retries a peer is lost after 8.6 s.
	Timeout uint8
	// Retries and RNRRetries are the numbers of retries; nil means 7, which for
	// RNRRetries is forever.
	Retries, RNRRetries *uint8
	// Data is given to the peer, at most 64 KiB: usually keys of regions.
	Data []byte
}

// A Peer is the other end of an established queue pair.
type Peer struct {
	Info QPInfo
	GID  GIDChoice // the local one
	Data []byte
}

// A QPInfo is what two ends tell each other.
type QPInfo struct {
	QPNum    uint32
	PSN      uint32
	LID      uint16
	MTU      MTU
	RDAtomic uint8
	GID      GID
}

// Establish connects qp, which is new, with the peer's: both ends call it with the ends
// of one stream connection, exchange their addresses, and bring their queue pairs to
// RTS. When it returns, the peer is ready to receive. The connection stays open and is
// not used afterwards. Receives can be posted before, after Prepare.
func Establish(ctx context.Context, conn net.Conn, dev Device, qp QP, o Options) (*Peer, error) {
	p, err := establish(ctx, conn, dev, qp, o.withDefaults())
	if err != nil {
		return nil, fmt.Errorf("establish QP %#x on %s of %s: %w", qp.Num(), dev.Info().Name, dev.Provider(), err)
	}
	return p, nil
}

func (o Options) withDefaults() Options {
	seven := uint8(7)
	o.Port = cmp.Or(o.Port, 1)
	o.Access = cmp.Or(o.Access, RemoteWrite|RemoteRead|RemoteAtomic)
	o.HopLimit = cmp.Or(o.HopLimit, 64)
	o.MinRNRTimer = cmp.Or(o.MinRNRTimer, 12)
	o.Timeout = cmp.Or(o.Timeout, 18)
	o.Retries = cmp.Or(o.Retries, &seven)
	o.RNRRetries = cmp.Or(o.RNRRetries, &seven)
	return o
}

// Prepare brings a new queue pair to INIT, so that receives can be posted before the
// peer can send. Establish does it otherwise.
func Prepare(qp QP, o Options) error {
	o = o.withDefaults()
	return qp.Modify(QPAttr{State: Init, Port: uint8(o.Port), Access: o.Access}, ToInit)
}

func establish(ctx context.Context, conn net.Conn, dev Device, qp QP, o Options) (*Peer, error) {
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	own, choice, err := describe(conn, dev, qp, o)
	if err != nil {
		return nil, err
	}
	other, data, err := exchange(conn, own, o.Data)
	if err != nil {
		return nil, ctxErr(ctx, fmt.Errorf("exchange addresses with %v: %w", conn.RemoteAddr(), err))
	}
	if err := Connect(qp, own, other, choice, o); err != nil {
		return nil, err
	}
	// The peer sends only when both are ready to receive.
	if err := meet(conn); err != nil {
		return nil, ctxErr(ctx, fmt.Errorf("wait until %v is ready: %w", conn.RemoteAddr(), err))
	}
	if !stop() {
		return nil, ctx.Err()
	}
	return &Peer{other, choice, data}, nil
}

func ctxErr(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return errors.Join(ctx.Err(), err)
	}
	return err
}

// describe is what the peer has to know of this end.
func describe(conn net.Conn, dev Device, qp QP, o Options) (QPInfo, GIDChoice, error) {
	port, err := dev.Port(o.Port)
	if err != nil {
		return QPInfo{}, GIDChoice{}, err
	}
	if port.State != PortActive {
		return QPInfo{}, GIDChoice{}, fmt.Errorf("port %d is %v, not active (fix: ip link set up on its interface, and check the cable)", o.Port, port.State)
	}
	table, err := dev.GIDs(o.Port)
	if err != nil {
		return QPInfo{}, GIDChoice{}, err
	}
	if !o.GID.Peer.IsValid() {
		o.GID.Peer = remoteIP(conn)
	}
	choice, err := ChooseGID(table, port.Link, o.GID)
	if err != nil && port.Link != LinkInfiniBand {
		return QPInfo{}, GIDChoice{}, err
	}
	attr, err := dev.Attr()
	if err != nil {
		return QPInfo{}, GIDChoice{}, err
	}
	i := QPInfo{QPNum: qp.Num(), PSN: randomPSN(), LID: port.LID, MTU: port.ActiveMTU, RDAtomic: uint8(min(attr.MaxRDAtomic, 16)), GID: choice.GID}
	if o.MTU != 0 {
		i.MTU = min(o.MTU, port.ActiveMTU)
	}
	if o.RDAtomic != 0 {
		i.RDAtomic = uint8(min(o.RDAtomic, attr.MaxRDAtomic, 255))
	}
	return i, choice, nil
}

func remoteIP(conn net.Conn) netip.Addr {
	if a, ok := conn.RemoteAddr().(*net.TCPAddr); ok {
		return a.AddrPort().Addr().Unmap().WithZone("")
	}
	return netip.Addr{}
}

func randomPSN() uint32 {
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails
	return binary.LittleEndian.Uint32(b[:]) & 0xffffff
}

// Connect brings a queue pair from its state (new, or INIT) to RTS with the information
// that both ends exchanged by other means.
func Connect(qp QP, own, other QPInfo, choice GIDChoice, o Options) error {
	o = o.withDefaults()
	if qp.State() == Reset {
		if err := Prepare(qp, o); err != nil {
			return err
		}
	}
	global := !other.GID.IsZero() && !own.GID.IsZero()
	err := qp.Modify(QPAttr{
		State: RTR, PathMTU: min(own.MTU, other.MTU), DestQPN: other.QPNum, RQPSN: other.PSN,
		MaxDestRDAtomic: own.RDAtomic, MinRNRTimer: o.MinRNRTimer,
		AV: AV{
			DGID: other.GID, SGIDIndex: uint8(choice.Index), HopLimit: o.HopLimit, TrafficClass: o.TrafficClass,
			DLID: other.LID, Global: global, Port: uint8(o.Port),
		},
	}, ToRTR)
	if err != nil {
		return fmt.Errorf("%w (local %s, remote GID %v)", err, choice.Why, other.GID)
	}
	return qp.Modify(QPAttr{
		State: RTS, Timeout: o.Timeout, RetryCount: *o.Retries, RNRRetry: *o.RNRRetries,
		SQPSN: own.PSN, MaxRDAtomic: min(own.RDAtomic, other.RDAtomic),
	}, ToRTS)
}

const (
	infoMagic = "CVRDMA1\n"
	infoSize  = len(infoMagic) + 4 + 4 + 2 + 1 + 1 + 16 + 4
	maxData   = 64 << 10
)

// appendInfo appends the message of the exchange: magic, QPN, PSN, LID, MTU, reads, GID,
// length of the data; big-endian.
func appendInfo(b []byte, i QPInfo, data []byte) []byte {
	b = append(b, infoMagic...)
	b = binary.BigEndian.AppendUint32(b, i.QPNum)
	b = binary.BigEndian.AppendUint32(b, i.PSN)
	b = binary.BigEndian.AppendUint16(b, i.LID)
	b = append(b, byte(i.MTU), i.RDAtomic)
	b = append(b, i.GID[:]...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(data)))
	return append(b, data...)
}

func readInfo(r io.Reader) (i QPInfo, data []byte, err error) {
	var b [infoSize]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return i, nil, err
	}
	if string(b[:len(infoMagic)]) != infoMagic {
		return i, nil, fmt.Errorf("the peer sent %q instead of its address: it is no culvert, or another version", b[:len(infoMagic)])
	}
	p := b[len(infoMagic):]
	i.QPNum = binary.BigEndian.Uint32(p)
	i.PSN = binary.BigEndian.Uint32(p[4:])
	i.LID = binary.BigEndian.Uint16(p[8:])
	i.MTU, i.RDAtomic = MTU(p[10]), p[11]
	copy(i.GID[:], p[12:])
	n := binary.BigEndian.Uint32(p[28:])
	switch {
	case i.QPNum > 0xffffff, i.PSN > 0xffffff:
		return i, nil, fmt.Errorf("the peer's QP number %#x or PSN %#x has more than 24 bits", i.QPNum, i.PSN)
	case i.MTU < 1 || i.MTU > 5:
		return i, nil, fmt.Errorf("the peer's MTU code %d must be 1 to 5", i.MTU)
	case n > maxData:
		return i, nil, fmt.Errorf("the peer's data of %d bytes exceeds %d", n, maxData)
	}
	data = make([]byte, n)
	_, err = io.ReadFull(r, data)
	return i, data, err
}

// exchange sends our information while it reads the peer's: neither end is first.
func exchange(conn net.Conn, own QPInfo, data []byte) (other QPInfo, theirs []byte, err error) {
	if len(data) > maxData {
		return other, nil, fmt.Errorf("data of %d bytes exceeds %d", len(data), maxData)
	}
	sent := make(chan error, 1)
	go func() {
		_, err := conn.Write(appendInfo(nil, own, data))
		sent <- err
	}()
	other, theirs, err = readInfo(conn)
	if err != nil {
		_ = conn.SetWriteDeadline(time.Unix(1, 0))
	}
	return other, theirs, errors.Join(err, <-sent)
}

// meet returns when the peer calls it, too.
func meet(conn net.Conn) error {
	sent := make(chan error, 1)
	go func() {
		_, err := conn.Write([]byte{'!'})
		sent <- err
	}()
	var b [1]byte
	_, err := io.ReadFull(conn, b[:])
	if err != nil {
		_ = conn.SetWriteDeadline(time.Unix(1, 0))
	}
	return errors.Join(err, <-sent)
}
