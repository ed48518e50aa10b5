package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/culvert-io/culvert/internal/abi/perftest"
	"github.com/culvert-io/culvert/internal/human"
	"github.com/culvert-io/culvert/internal/rdmabench"
	"github.com/culvert-io/culvert/machine"
	"github.com/culvert-io/culvert/rdma"
	"github.com/culvert-io/culvert/soft/nic"
)

type rdmaBench struct {
	access   rdmaAccess
	port     uint16
	op       string
	size     string
	iters    int
	depth    int
	addrFile string
}

func newRDMABench() *cobra.Command {
	var o rdmaBench
	cmd := &cobra.Command{
		Use:   "bench [HOST]",
		Short: "Measure verbs between two processes, with perftest's exchange and table",
		Long: `Measure requests from this end to HOST, where the same command runs without HOST, or
wait for such a client. One end can be perftest's ib_write_bw (--op write) or
ib_read_bw (--op read), release 4.5, on the same kind of device: with --provider soft
and "culvert run", that of the software machine. Both ends need the same options.

MB are MiB, as in perftest. The peak is that of the fastest --depth requests in a row.

` + rdmaAbout + rdmaStatus,
		Example: `  culvert rdma bench &                                # verbs over TCP
  culvert rdma bench 127.0.0.1
  CULVERT_MACHINE=soft culvert rdma bench --provider soft &
  CULVERT_MACHINE=soft culvert run -- ib_write_bw 127.0.0.1`,
		Args: args(cobra.MaximumNArgs(1)),
		RunE: run(o.run),
	}
	f := cmd.Flags()
	o.access.flags(f)
	f.Uint16VarP(&o.port, "port", "p", perftest.Port, "TCP port of the exchange; 0 means any free one")
	f.StringVar(&o.op, "op", "write", "write: into the server's memory; read: from it")
	f.StringVarP(&o.size, "size", "s", "64K", "bytes of a request")
	f.IntVarP(&o.iters, "iters", "n", 5000, "number of requests")
	f.IntVar(&o.depth, "depth", 128, "requests in flight")
	f.StringVar(&o.addrFile, "address-file", "", "write HOST:PORT to this file once the server listens")
	return cmd
}

func (o *rdmaBench) config() (c rdmabench.Config, err error) {
	ops := map[string]rdma.Opcode{"write": rdma.OpWrite, "read": rdma.OpRead}
	op, ok := ops[o.op]
	if !ok {
		return c, usageError{fmt.Errorf("--op %s must be write or read", o.op)}
	}
	size, err := human.ParseSize(o.size)
	if err != nil {
		return c, usageError{err}
	}
	if size > 1<<30 {
		return c, usageError{fmt.Errorf("--size %s must be at most 1G", o.size)}
	}
	c = rdmabench.Config{Op: op, Size: uint32(size), Iterations: o.iters, Depth: o.depth}
	if err := c.Check(); err != nil {
		return c, usageError{err}
	}
	return c, nil
}

func (o *rdmaBench) run(ctx context.Context, a []string, out io.Writer) (err error) {
	cfg, err := o.config()
	if err != nil {
		return err
	}
	var m *machine.Machine // the memory is the host's
	if o.access.name() == nic.Name {
		if m, err = machine.Open(); err != nil {
			return err
		}
		defer m.Close()
	}
	host := o.access.local
	if host == "" {
		host = "127.0.0.1"
	}
	dev, err := o.access.open(m, host)
	if err != nil {
		return err
	}
	defer dev.close()
	conn, err := o.peer(ctx, dev, host, a, out)
	if err != nil {
		return fmt.Errorf("rdma bench, provider=%s: %w", dev.Provider(), err)
	}
	defer conn.Close()
	r, err := rdmabench.Run(ctx, conn, len(a) > 0, dev, cfg)
	if err != nil {
		return fmt.Errorf("rdma bench, provider=%s: %w", dev.Provider(), err)
	}
	fmt.Fprintf(out, " %s BW Test   provider=%s device=%s depth=%d\n%s\n%s\n", strings.ToUpper(o.op), dev.Provider(), dev.Info().Name, o.depth, rdmabench.Header, rdmabench.Row(r))
	return nil
}

// peer is the connection to the server, or from the first client.
func (o *rdmaBench) peer(ctx context.Context, dev *rdmaDevice, host string, a []string, out io.Writer) (net.Conn, error) {
	port := strconv.Itoa(int(o.port))
	if len(a) > 0 {
		return new(net.Dialer).DialContext(ctx, "tcp", withPort(a[0], o.port))
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(host, port))
	if err != nil {
		return nil, err
	}
	defer l.Close()
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	fmt.Fprintf(out, "waiting for a client on %s provider=%s device=%s\n", l.Addr(), dev.Provider(), dev.Info().Name)
	if o.addrFile != "" {
		if err := os.WriteFile(o.addrFile, []byte(l.Addr().String()+"\n"), 0o666); err != nil {
			return nil, err
		}
	}
	c, err := l.Accept()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return c, err
}
