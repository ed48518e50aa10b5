package main

import (
	"cmp"
	"context"
	"errors"
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
	latency  bool
	addrFile string
}

func newRDMABench() *cobra.Command {
	var o rdmaBench
	cmd := &cobra.Command{
		Use:   "bench [HOST]",
		Short: "Measure verbs between two processes, with perftest's exchange and table",
		Long: `Measure requests from this end to HOST, where the same command runs without HOST, or
wait for such a client. One end can be perftest's ib_write_bw (--op write), ib_read_bw
(--op read) or ib_send_bw (--op send), release 4.5, on the same kind of device: with
--provider ibverbs a network adapter, with --provider soft and "culvert run" that of the
software machine. Both ends need the same options. The exchange has no secret: use it among friends.

With --latency there is one request at a time, as in ib_read_lat (--op read) and
ib_send_lat (--op send, half of the time until the answer is there); the client prints
the result.

MB are MiB, as in perftest. The peak is that of the fastest --depth requests in a row.

` + rdmaAbout + rdmaStatus,
		Example: `  culvert rdma bench &                                # verbs over TCP
  culvert rdma bench 127.0.0.1
  CULVERT_MACHINE=soft culvert rdma bench --provider soft &
  CULVERT_MACHINE=soft culvert run -- ib_write_bw 127.0.0.1
  culvert rdma bench --provider ibverbs -a 10.0.0.1 & # a network adapter; HOST may run ib_write_bw
  culvert rdma bench --provider ibverbs 10.0.0.1`,
		Args: args(cobra.MaximumNArgs(1)),
		RunE: runUnfolded(o.run),
	}
	f := cmd.Flags()
	o.access.flags(f)
	f.Uint16VarP(&o.port, "port", "p", perftest.Port, "TCP port of the exchange; 0 means any free one")
	f.StringVar(&o.op, "op", "write", "write: into the server's memory; read: from it; send: messages that it receives")
	f.StringVarP(&o.size, "size", "s", "", "bytes of a request (default 64K, with --latency 2)")
	f.IntVarP(&o.iters, "iters", "n", 0, "number of requests (default 5000, with --latency 1000)")
	f.IntVar(&o.depth, "depth", 128, "requests in flight")
	f.BoolVar(&o.latency, "latency", false, "measure the time of single requests, read or send")
	f.StringVar(&o.addrFile, "address-file", "", "write HOST:PORT to this file once the server listens")
	return cmd
}

func (o *rdmaBench) config() (c rdmabench.Config, err error) {
	ops := map[string]rdma.Opcode{"write": rdma.OpWrite, "read": rdma.OpRead, "send": rdma.OpSend}
	op, ok := ops[o.op]
	if !ok {
		return c, usageError{fmt.Errorf("--op %s must be write, read or send", o.op)}
	}
	size, iters := "64K", 5000
	if o.latency {
		size, iters = "2", 1000
	}
	if o.latency && op == rdma.OpWrite {
		return c, usageError{errors.New("--latency needs --op read or --op send")}
	}
	return o.sized(op, cmp.Or(o.size, size), cmp.Or(o.iters, iters))
}

func (o *rdmaBench) sized(op rdma.Opcode, text string, iters int) (c rdmabench.Config, err error) {
	size, err := human.ParseSize(text)
	if err != nil {
		return c, usageError{err}
	}
	if size > 1<<30 {
		return c, usageError{fmt.Errorf("--size %s must be at most 1G", text)}
	}
	c = rdmabench.Config{Op: op, Size: uint32(size), Iterations: iters, Depth: o.depth}
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
	host, err := o.host(ctx, a)
	if err != nil {
		return err
	}
	o.access.perftest = true
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
	if err := o.measure(ctx, conn, len(a) > 0, dev, cfg, out); err != nil {
		return fmt.Errorf("rdma bench, provider=%s: %w", dev.Provider(), err)
	}
	return nil
}

func (o *rdmaBench) measure(ctx context.Context, conn net.Conn, client bool, dev *rdmaDevice, cfg rdmabench.Config, out io.Writer) error {
	op, on := strings.ToUpper(o.op), fmt.Sprintf("provider=%s device=%s", dev.Provider(), dev.Info().Name)
	if !o.latency {
		r, err := rdmabench.Run(ctx, conn, client, dev, cfg)
		if err == nil {
			fmt.Fprintf(out, " %s BW Test   %s depth=%d\n%s\n%s\n", op, on, o.depth, rdmabench.Header, rdmabench.Row(r))
		}
		return err
	}
	t, err := rdmabench.Latency(ctx, conn, client, dev, cfg)
	if err == nil {
		fmt.Fprintf(out, " %s Latency Test   %s\n", op, on)
		if client {
			fmt.Fprintf(out, "%s\n%v\n", rdmabench.LatencyHeader, t)
		}
	}
	return err
}

// host is the address of this end.
func (o *rdmaBench) host(ctx context.Context, a []string) (string, error) {
	switch {
	case o.access.local != "":
		return o.access.local, nil
	case len(a) > 0:
		return reaching(ctx, withPort(a[0], o.port))
	}
	return "127.0.0.1", nil
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
