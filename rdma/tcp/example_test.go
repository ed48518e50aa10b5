package tcp_test

import (
	"context"
	"fmt"
	"net"

	"github.com/culvert-io/culvert/rdma"
	"github.com/culvert-io/culvert/rdma/tcp"
)

// One end lets the other write into its memory.
func Example() {
	p, _ := tcp.New(tcp.Config{})
	defer p.Close()
	target := make([]byte, 5)
	conn, other := net.Pipe() // usually a TCP connection to another process
	keys := make(chan rdma.Key, 1)
	done := make(chan error, 1)
	go func() { done <- serve(p, other, target, keys) }()
	if err := write(p, conn, []byte("hello"), <-keys); err != nil {
		fmt.Println(err)
	}
	conn.Close()
	fmt.Println(<-done, string(target))
	// Output: <nil> hello
}

// serve lets the peer write into b until it closes the connection.
func serve(p *tcp.Provider, conn net.Conn, b []byte, keys chan rdma.Key) error {
	return withPair(p, func(dev rdma.Device, pd rdma.PD, _ rdma.CQ, qp rdma.QP) error {
		mr, err := pd.Register(rdma.Host(b), rdma.LocalWrite|rdma.RemoteWrite)
		if err != nil {
			return err
		}
		defer mr.Close()
		keys <- rdma.Remote(mr) // usually a part of Options.Data
		if _, err := rdma.Establish(context.Background(), conn, dev, qp, rdma.Options{}); err != nil {
			return err
		}
		_, _ = conn.Read(make([]byte, 1))
		return nil
	})
}

func write(p *tcp.Provider, conn net.Conn, b []byte, to rdma.Key) error {
	return withPair(p, func(dev rdma.Device, pd rdma.PD, cq rdma.CQ, qp rdma.QP) error {
		mr, err := pd.Register(rdma.Host(b), 0)
		if err != nil {
			return err
		}
		defer mr.Close()
		if _, err := rdma.Establish(context.Background(), conn, dev, qp, rdma.Options{}); err != nil {
			return err
		}
		err = rdma.Post(qp, rdma.SendWR{
			Op: rdma.OpWrite, Flags: rdma.Signaled, SGE: []rdma.SGE{rdma.Local(mr, 0, uint32(len(b)))}, RemoteAddr: to.Addr, RKey: to.RKey,
		})
		if err != nil {
			return err
		}
		_, err = rdma.One(context.Background(), cq)
		return err
	})
}

// withPair makes a queue pair, and closes everything in order.
func withPair(p rdma.Provider, use func(rdma.Device, rdma.PD, rdma.CQ, rdma.QP) error) error {
	dev, err := p.Open("")
	if err != nil {
		return err
	}
	defer dev.Close()
	pd, err := dev.AllocPD()
	if err != nil {
		return err
	}
	defer pd.Close()
	cq, err := dev.CreateCQ(16)
	if err != nil {
		return err
	}
	defer cq.Close()
	qp, err := pd.CreateQP(rdma.QPConfig{SendCQ: cq, RecvCQ: cq})
	if err != nil {
		return err
	}
	defer qp.Close()
	return use(dev, pd, cq, qp)
}
