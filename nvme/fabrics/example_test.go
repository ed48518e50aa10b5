package fabrics_test

import (
	"context"
	"fmt"
	"log"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/nvme/fabrics"
	"github.com/culvert-io/culvert/rdma"
	"github.com/culvert-io/culvert/rdma/tcp"
)

// A target serves a file as a drive; a host reads a block of it into registered memory.
func Example() {
	file, err := os.CreateTemp("", "drive")
	check(err)
	defer os.Remove(file.Name())
	_, err = file.WriteAt([]byte("hello from afar"), 512)
	check(err)
	check(file.Truncate(1 << 20))

	provider, err := tcp.New(tcp.Config{})
	check(err)
	dev, err := provider.Open("")
	check(err)
	defer dev.Close()
	target, err := fabrics.NewTarget(fabrics.TargetConfig{
		Device: dev, NQN: "nqn.2026-01.io.example:drive", Drives: []fabrics.Drive{{Backing: file, Blocks: 2048, Shift: 9}},
	})
	check(err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error)
	go func() { served <- target.Serve(ctx, l) }()

	c, err := fabrics.Connect(ctx, fabrics.Config{
		Device: dev, NQN: "nqn.2026-01.io.example:drive",
		Dial: func(ctx context.Context) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", l.Addr().String())
		},
	})
	check(err)
	mem, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	check(err)
	mr, err := c.PD().Register(rdma.Host(mem), rdma.LocalWrite|rdma.RemoteWrite)
	check(err)
	check(c.Namespaces()[0].Read(ctx, mr, 0, 512, 512))
	fmt.Println(string(mem[:15]), "by", dev.Provider())
	check(mr.Close())
	check(c.Close())
	cancel()
	check(<-served)
	// Output: hello from afar by tcp
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
