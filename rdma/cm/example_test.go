package cm_test

import (
	"context"
	"log"
	"net/netip"

	"github.com/culvert-io/culvert/rdma"
	"github.com/culvert-io/culvert/rdma/cm"
	"github.com/culvert-io/culvert/rdma/ibverbs"
)

// A queue pair is connected with a service that listens by the connection manager.
func Example() {
	p, err := ibverbs.Open()
	if err != nil {
		log.Fatal(err)
	}
	dev, err := p.Open("mlx5_0")
	if err != nil {
		log.Fatal(err)
	}
	pd, err := dev.AllocPD()
	if err != nil {
		log.Fatal(err)
	}
	cq, err := dev.CreateCQ(64)
	if err != nil {
		log.Fatal(err)
	}
	qp, err := pd.CreateQP(rdma.QPConfig{SendCQ: cq, RecvCQ: cq})
	if err != nil {
		log.Fatal(err)
	}
	conn, err := cm.Dial(context.Background(), netip.MustParseAddrPort("192.0.2.1:4420"), dev, qp, cm.Options{Private: []byte("hello")})
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	log.Printf("connected; the peer says %q", conn.Private)
}
