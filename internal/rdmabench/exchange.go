package rdmabench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/culvert-io/culvert/internal/abi/perftest"
	"github.com/culvert-io/culvert/rdma"
)

// An exchange is the control connection of a test.
type exchange struct {
	conn   net.Conn
	in     *bufio.Reader // of conn
	client bool          // sends first
}

func newExchange(conn net.Conn, client bool) *exchange {
	return &exchange{conn, bufio.NewReader(conn), client}
}

// watch cancels the context if the peer goes away while this end waits for its messages: a
// queue pair would not tell. The peer says nothing before its own part is over. end waits for
// that after a test without an error.
func (x *exchange) watch(ctx context.Context) (watched context.Context, end func(error) error) {
	watched, cancel := context.WithCancelCause(ctx)
	over := make(chan error, 1)
	go func() {
		_, err := x.in.Peek(1)
		if err != nil {
			err = fmt.Errorf("wait for the peer: %w", err)
			cancel(err)
		}
		over <- err
	}()
	return watched, func(err error) error {
		defer cancel(nil)
		if err == nil {
			return <-over
		}
		_ = x.conn.SetReadDeadline(time.Unix(1, 0)) // ends the pending read
		<-over
		return err
	}
}

// swap sends own and reads as much from the peer.
func (x *exchange) swap(own []byte) ([]byte, error) {
	theirs := make([]byte, len(own))
	if x.client {
		if _, err := x.conn.Write(own); err != nil {
			return nil, err
		}
	}
	if _, err := io.ReadFull(x.in, theirs); err != nil {
		return nil, err
	}
	if !x.client {
		if _, err := x.conn.Write(own); err != nil {
			return nil, err
		}
	}
	return theirs, nil
}

// greet exchanges versions and settings. It returns the cycle and the MTU of both.
func (x *exchange) greet(mtu rdma.MTU) (cycle uint32, common rdma.MTU, err error) {
	own := make([]byte, perftest.VersionSize)
	copy(own, perftest.Version)
	theirs, err := x.swap(own)
	if err != nil {
		return 0, 0, fmt.Errorf("exchange versions: %w", err)
	}
	if !bytes.Equal(own, theirs) {
		return 0, 0, fmt.Errorf("the peer's version is %q, must be %q (fix: use culvert, or perftest 4.5, at the other end)", bytes.TrimRight(theirs, "\x00"), perftest.Version)
	}
	if cycle, err = x.number(perftest.Cycle); err != nil {
		return 0, 0, err
	}
	if _, err = x.number(perftest.CacheLine); err != nil {
		return 0, 0, err
	}
	theirs, err = x.swap([]byte{'0' + byte(mtu), 0})
	if err != nil {
		return 0, 0, fmt.Errorf("exchange MTUs: %w", err)
	}
	other := rdma.MTU(theirs[0]) - '0'
	if other < 1 || other > 5 || theirs[1] != 0 {
		return 0, 0, fmt.Errorf("the peer's MTU %q must be a digit from 1 to 5", theirs)
	}
	return cycle, min(mtu, other), nil
}

// maxCycle is more than any page.
const maxCycle = 1 << 30

// number exchanges a setting and returns the larger one.
func (x *exchange) number(own uint32) (uint32, error) {
	theirs, err := x.swap(binary.BigEndian.AppendUint32(nil, own))
	if err != nil {
		return 0, fmt.Errorf("exchange settings: %w", err)
	}
	n := binary.BigEndian.Uint32(theirs)
	if n > maxCycle {
		return 0, fmt.Errorf("the peer's cycle or cache line of %d bytes exceeds %d", n, maxCycle)
	}
	return max(own, n), nil
}

// endpoint exchanges queue pairs: to connect them, or as a barrier.
func (x *exchange) endpoint(own perftest.Endpoint) (perftest.Endpoint, error) {
	b, err := own.Append(nil, true)
	if err != nil {
		return perftest.Endpoint{}, err
	}
	theirs, err := x.swap(b)
	if err != nil {
		return perftest.Endpoint{}, fmt.Errorf("exchange queue pairs: %w", err)
	}
	return perftest.Parse(theirs)
}

// report exchanges results, number by number.
func (x *exchange) report(own perftest.Report) (perftest.Report, error) {
	var theirs [perftest.ReportSize]byte
	b := own.Append(nil)
	for at := 0; at < len(b); at += 8 {
		n, err := x.swap(b[at : at+8])
		if err != nil {
			return perftest.Report{}, fmt.Errorf("exchange results: %w", err)
		}
		copy(theirs[at:], n)
	}
	return perftest.ParseReport(theirs), nil
}
