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

	"github.com/culvert-io/culvert/internal/abi/gdra"
	"github.com/culvert-io/culvert/internal/remote"
	"github.com/culvert-io/culvert/machine"
	"github.com/culvert-io/culvert/soft/nic"
)

const rdmaStatus = `EXIT STATUS
  0  success
  1  an error; the message names the file and the cause
  2  invalid command line`

const rdmaAbout = `Providers (--provider):

  tcp      verbs over TCP: the processors of both hosts move the data, and GPU memory
           is staged in pinned host memory. It is not RDMA, and the output
           never calls it so.
  ibverbs  network adapters of this host, by libibverbs (InfiniBand and RoCE)
  soft     network adapters of the software machine, on this host only: they write into
           and read from the memory of its GPUs directly, by emulated DMA

Without more options everything stays on this host (127.0.0.1). On other addresses a
server needs a token, which both ends read from --token-file or CULVERT_RDMA_TOKEN, or
TLS with certificates of both ends. A token keeps strangers out; only TLS encrypts.

`

func newRDMA() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rdma",
		Short: "Move files between hosts, into and out of GPU memory",
		Long: `Move files between hosts, into and out of GPU memory. The server has the files. The
client registers GPU memory and asks for data, which the server writes into that
memory, or reads from it, with one-sided verbs.

` + rdmaAbout + rdmaStatus,
		Example: `  culvert rdma serve models                                            # on one terminal
  culvert rdma read 127.0.0.1:18515 models/a.bin a.bin --via gpu:0     # on another`,
		Args: noCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newRDMAServe(), newRDMAMove("read"), newRDMAMove("write"), newRDMABench(), newRDMATune())
	return cmd
}

type rdmaServe struct {
	access   rdmaAccess
	port     uint16
	chunk    string
	debug    uint8
	tasks    int
	clients  int
	writable bool
	addrFile string
}

func newRDMAServe() *cobra.Command {
	var o rdmaServe
	cmd := &cobra.Command{
		Use:   "serve PATH...",
		Short: "Serve files to clients on this or other hosts",
		Long: `Serve files under their names, and the files of directories as DIRECTORY/NAME, until
interrupted. Clients do not learn other paths, and symbolic links are followed inside
a directory only.

With --writable clients can also write files into served directories. Such a file gets
its name when it is complete and on stable storage; if its client is gone for a minute,
it is removed.

` + rdmaAbout + rdmaStatus,
		Example: `  culvert rdma serve model.bin
  culvert rdma serve /data/models --writable
  culvert rdma serve /data/models -a 192.0.2.1 --token-file token`,
		Args: args(cobra.MinimumNArgs(1)),
		RunE: run(o.run),
	}
	f := cmd.Flags()
	o.access.flags(f)
	f.Uint16VarP(&o.port, "port", "p", gdra.Port, "TCP port; 0 means any free one")
	f.StringVarP(&o.chunk, "size", "s", "1M", "largest task in bytes")
	f.Uint8VarP(&o.debug, "debug", "D", 0, "1 prints every task")
	f.IntVar(&o.tasks, "tasks", 8, "tasks of a client at a time")
	f.IntVar(&o.clients, "clients", 32, "clients at a time")
	f.BoolVar(&o.writable, "writable", false, "let clients write files into served directories")
	f.StringVar(&o.addrFile, "address-file", "", "write HOST:PORT to this file once the server listens")
	return cmd
}

func (o *rdmaServe) run(ctx context.Context, paths []string, out io.Writer) error {
	chunk, err := parseTaskSize(o.chunk)
	if err != nil {
		return usageError{err}
	}
	if o.tasks < 1 || o.tasks > 1024 || o.clients < 1 {
		return usageError{fmt.Errorf("--tasks %d must be 1 to 1024, and --clients %d at least 1", o.tasks, o.clients)}
	}
	exports, err := remote.NewExports(paths)
	if err != nil {
		return fmt.Errorf("rdma serve: %w", err)
	}
	defer exports.Close()
	host := cmp.Or(o.access.local, "127.0.0.1")
	var m *machine.Machine // a server needs no GPU
	if o.access.name() == nic.Name {
		if m, err = machine.Open(); err != nil {
			return err
		}
		defer m.Close()
	}
	dev, err := o.access.open(m, host)
	if err != nil {
		return err
	}
	defer dev.close()
	l, err := dev.listen(ctx, net.JoinHostPort(host, strconv.Itoa(int(o.port))))
	if err != nil {
		return fmt.Errorf("rdma serve: %w", err)
	}
	log := func(format string, args ...any) { fmt.Fprintf(out, format+"\n", args...) }
	log("serving %s on %s provider=%s device=%s", strings.Join(exports.Names(), " "), l.Addr(), dev.Provider(), dev.Info().Name)
	if o.addrFile != "" {
		if err := os.WriteFile(o.addrFile, []byte(l.Addr().String()+"\n"), 0o666); err != nil {
			return errors.Join(err, l.Close())
		}
	}
	s := remote.NewServer(remote.ServerConfig{
		Device: dev, Exports: exports, Token: dev.token, Writable: o.writable, Chunk: chunk,
		Depth: o.tasks, Clients: o.clients, Log: log, Trace: o.debug&1 != 0,
	})
	if err := s.Serve(ctx, l); err != nil {
		return err
	}
	log("stopped provider=%s", dev.Provider())
	return nil
}
