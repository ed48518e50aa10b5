package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/internal/abi/gdra"
	"github.com/culvert-io/culvert/internal/remote"
	"github.com/culvert-io/culvert/internal/transfer"
	"github.com/culvert-io/culvert/machine"
	"github.com/culvert-io/culvert/rdma"
	"github.com/culvert-io/culvert/route"
)

// rdmaMove reads or writes a file of a server.
type rdmaMove struct {
	access  rdmaAccess
	write   bool
	via     string
	pci     string
	port    uint16
	chunk   string
	times   int
	flags   uint8
	debug   uint8
	tasks   int
	tries   int
	require string
	refuse  []string
	verify  bool
	json    bool
	verbose bool
}

func newRDMAMove(verb string) *cobra.Command {
	o := rdmaMove{write: verb == "write"}
	short, long := "Read a file of a server into GPU memory and from there into FILE",
		`Read a file of a server into GPU memory and from there into FILE, which is replaced
atomically, as culvert cp does.`
	if o.write {
		short, long = "Write FILE through GPU memory to a server",
			`Write FILE through GPU memory to a server, as NAME. The server must be writable. The
file gets its name there when it is complete and on stable storage.`
		o.flags = gdra.TaskRead
	}
	flags := o.flags
	cmd := &cobra.Command{
		Use:   verb + " HOST:PORT NAME FILE",
		Short: short,
		Long: long + ` Print a receipt per direction. A lost
connection is made again, and the transfer resumes.

The options of gpu_direct_rdma_access that mean the same have its letters: -a, -p, -s,
-n, -t, -D and -u.

` + rdmaAbout + `EXIT STATUS
  0  all data was moved (and verified, with --verify)
  1  an error; the message names the file and the cause
  2  invalid command line
  3  --require-route cannot be met`,
		Example: fmt.Sprintf(`  culvert rdma %[1]s 127.0.0.1:18515 models/a.bin a.bin --via gpu:0 --verify
  culvert rdma %[1]s 192.0.2.1 models/a.bin a.bin -u 65:00.0 --token-file token`, verb),
		Args: args(cobra.ExactArgs(3)),
		RunE: run(func(ctx context.Context, a []string, out io.Writer) error {
			if o.flags != flags {
				return usageError{fmt.Errorf("-t %d: %s is -t %d", o.flags, verb, flags)}
			}
			return o.run(ctx, a, out)
		}),
	}
	f := cmd.Flags()
	o.access.flags(f)
	f.StringVar(&o.via, "via", "gpu:0", "GPU to move the data through")
	f.StringVarP(&o.pci, "pci", "u", "", "PCI address of the GPU to move the data through, such as 65:00.0 (instead of --via)")
	f.Uint16VarP(&o.port, "port", "p", gdra.Port, "TCP port, if HOST has none")
	f.StringVarP(&o.chunk, "size", "s", "1M", "bytes of a task, at most as many as the server allows")
	f.IntVarP(&o.times, "iters", "n", 1, "repeat the transfer")
	f.Uint8VarP(&o.flags, "task-flags", "t", o.flags, "0: the server writes into GPU memory (read), 1: it reads from it (write)")
	f.Uint8VarP(&o.debug, "debug", "D", 0, "1 prints lost connections at once")
	f.IntVar(&o.tasks, "tasks", 8, "tasks in flight")
	f.IntVar(&o.tries, "tries", 5, "attempts to reach the server, for each task")
	f.StringVar(&o.require, "require-route", "", "use this route or better ones for every byte in both directions, or fail")
	f.StringSliceVar(&o.refuse, "refuse", nil, "ways not to register GPU memory by: peer-memory, dma-buf/pcie, dma-buf")
	f.BoolVar(&o.verify, "verify", false, "read both files again and compare their CRC-32C")
	f.BoolVar(&o.json, "json", false, "print the result as JSON")
	f.BoolVarP(&o.verbose, "verbose", "v", false, "also print the receipts with every field")
	return cmd
}

func (o *rdmaMove) run(ctx context.Context, a []string, out io.Writer) (err error) {
	if err := hostFirst(a, o.write); err != nil {
		return usageError{err}
	}
	opts, cfg, err := o.parse(a[0])
	if err != nil {
		return err
	}
	file, err := besideRemote(a[2], a[1], o.write)
	if err != nil {
		return err
	}
	m, drv, err := openDriver()
	if err != nil {
		return err
	}
	defer drv.Close()
	if opts.GPU, err = o.gpu(m); err != nil {
		return err
	}
	far, err := dialRemote(ctx, m, o.access, cfg)
	if err != nil {
		return fmt.Errorf("rdma: %w", err)
	}
	defer func() { err = errors.Join(err, far.close()) }()
	start := time.Now()
	var total int64
	for range o.times {
		done := metered(&opts, normal)
		res, err := far.copy(ctx, drv, a[1], file, o.write, opts)
		done()
		if err != nil {
			return fmt.Errorf("rdma %s %s, provider=%s: %w", a[1], file, far.Provider(), err)
		}
		total += res.Bytes
		if err := showTransfer(out, o.json, o.verbose, remoteResult{res, far.Provider()}); err != nil {
			return err
		}
	}
	if o.times > 1 && !o.json {
		summary(out, total, o.times, time.Since(start), far.Provider())
	}
	return nil
}

// hostFirst rejects arguments in the order of cp, source before destination.
func hostFirst(a []string, write bool) error {
	verb := "read"
	if write {
		verb = "write"
	}
	st, err := os.Stat(a[0])
	local := err == nil && st.Mode().IsRegular() && !hasPort(a[0])
	if local || !hasPort(a[0]) && (hasPort(a[1]) || hasPort(a[2])) {
		return fmt.Errorf("rdma %s %s: HOST:PORT comes first (usage: culvert rdma %s HOST:PORT NAME FILE)", verb, a[0], verb)
	}
	return nil
}

// hasPort reports whether an argument can only be a host with its port.
func hasPort(arg string) bool {
	_, port, err := net.SplitHostPort(arg)
	if err != nil {
		return false
	}
	_, err = strconv.ParseUint(port, 10, 16)
	return err == nil
}

// summary prints the two lines of gpu_direct_rdma_access.
func summary(out io.Writer, bytes int64, times int, took time.Duration, provider string) {
	s := took.Seconds()
	fmt.Fprintf(out, "%d bytes in %.2f seconds = %.2f Mbit/sec provider=%s\n", bytes, s, float64(bytes)*8/1e6/s, provider)
	fmt.Fprintf(out, "%d iters in %.2f seconds = %.2f usec/iter provider=%s\n", times, s, s*1e6/float64(times), provider)
}

func (o *rdmaMove) parse(addr string) (opts transfer.Options, cfg remote.ClientConfig, err error) {
	bad := func(err error) (transfer.Options, remote.ClientConfig, error) { return opts, cfg, usageError{err} }
	if o.times < 1 || o.tasks < 1 || o.tasks > 1024 || o.tries < 1 {
		return bad(errors.New("--iters and --tries must be at least 1, --tasks 1 to 1024"))
	}
	opts.Verify = o.verify
	if o.require != "" {
		if opts.Require, err = route.Parse(o.require); err != nil {
			return bad(err)
		}
	}
	if cfg.Refuse, err = parseRefused(o.refuse); err != nil {
		return bad(err)
	}
	if cfg.Chunk, err = parseTaskSize(o.chunk); err != nil {
		return bad(err)
	}
	cfg.Depth, cfg.Tries = o.tasks, o.tries
	cfg.Addr = withPort(addr, o.port)
	if o.debug&1 != 0 {
		cfg.Log = func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
	}
	return opts, cfg, nil
}

// parseRefused reads the names of methods. Staging cannot be refused here; --require-route
// rdma does that.
func parseRefused(names []string) (list []rdma.Method, err error) {
	for _, name := range names {
		m, err := rdma.ParseMethod(name)
		if err != nil {
			return nil, fmt.Errorf("--refuse: %w", err)
		}
		if m == rdma.Staging {
			return nil, fmt.Errorf("--refuse %s: it is used if no other way works (fix: --require-route %v)", name, route.RDMA)
		}
		list = append(list, m)
	}
	return list, nil
}

// withPort adds a port to an address that has none.
func withPort(addr string, port uint16) string {
	if _, _, err := net.SplitHostPort(addr); err == nil {
		return addr
	}
	return net.JoinHostPort(strings.Trim(addr, "[]"), strconv.Itoa(int(port)))
}

// gpu is the index of the GPU that --via or -u names.
func (o *rdmaMove) gpu(m *machine.Machine) (int, error) {
	if o.pci == "" {
		dev, err := parseGPU(o.via)
		if err != nil {
			return 0, err
		}
		return dev, checkGPUs(m, dev)
	}
	list, err := m.GPU.Devices()
	if err != nil {
		return 0, err
	}
	for _, g := range list {
		if strings.EqualFold(g.PCI, o.pci) || strings.EqualFold(strings.TrimPrefix(g.PCI, "0000:"), o.pci) {
			return g.Index, nil
		}
	}
	return 0, fmt.Errorf("no GPU has PCI address %s (culvert check lists them)", o.pci)
}

// A farHost is a connection to a server.
type farHost struct {
	*remote.Client
	dev *rdmaDevice
}

func dialRemote(ctx context.Context, m *machine.Machine, access rdmaAccess, cfg remote.ClientConfig) (*farHost, error) {
	local, err := access.local, error(nil)
	if local == "" {
		if local, err = reaching(ctx, cfg.Addr); err != nil {
			return nil, err
		}
	}
	dev, err := access.open(m, local)
	if err != nil {
		return nil, err
	}
	cfg.Device, cfg.Token, cfg.TLS = dev, dev.token, dev.forHost(cfg.Addr)
	cfg.Register = knownRegistration(m, dev)
	c, err := remote.Dial(ctx, cfg)
	if err != nil {
		return nil, errors.Join(err, dev.close())
	}
	return &farHost{c, dev}, nil
}

func (f *farHost) close() error { return errors.Join(f.Client.Close(), f.dev.close()) }

// copy moves a file of the server to a local one, or the reverse.
func (f *farHost) copy(ctx context.Context, drv *cufile.Driver, name, file string, write bool, o transfer.Options) (transfer.Result, error) {
	if !write {
		from, err := f.Open(ctx, name)
		if err != nil {
			return transfer.Result{}, err
		}
		return transfer.Fetch(ctx, drv, remote.NewSource(ctx, from), file, o)
	}
	st, err := os.Stat(file)
	if err != nil {
		return transfer.Result{}, err
	}
	to, err := f.Create(ctx, name, st.Size())
	if err != nil {
		return transfer.Result{}, err
	}
	return transfer.Push(ctx, drv, file, remote.NewSource(ctx, to), o)
}

// A remoteResult is the result of a copy between hosts. Every line of its text names the
// provider.
type remoteResult struct {
	transfer.Result
	Provider string `json:"provider"`
}

func (r remoteResult) String() string { return r.named(r.Result.String()) }

// Fields is the receipts with every field.
func (r remoteResult) Fields() string { return strings.TrimSuffix(r.named(r.Result.Fields()), "\n") }

// named adds the provider to each line that does not name it.
func (r remoteResult) named(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if !strings.Contains(line, "provider=") {
			line += " provider=" + r.Provider
		}
		b.WriteString(line + "\n")
	}
	return b.String()
}
