package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/bits"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/internal/check"
	culvertdev "github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/internal/human"
	"github.com/culvert-io/culvert/internal/object"
	"github.com/culvert-io/culvert/internal/remote"
	"github.com/culvert-io/culvert/internal/transfer"
	"github.com/culvert-io/culvert/internal/tune"
	"github.com/culvert-io/culvert/machine"
	"github.com/culvert-io/culvert/route"
	"github.com/culvert-io/culvert/tensor"
)

type checkOptions struct {
	json    bool
	require string
	config  string
	verbose bool
}

func newCheck() *cobra.Command {
	var o checkOptions
	cmd := &cobra.Command{
		Use:   "check [PATH [gpu:N]]",
		Short: "Show available routes, what is missing, and how to fix it",
		Long: `Inspect GPUs, device nodes, modules and limits of this computer and, if commands
use it, of the software machine. With PATH, say whether the data goes directly, and which
change would help most; with -v also, for each better route, the first failed check and
its fix.
If PATH is a model (a safetensors file, a shard index, or a directory with one of
them), the route is the one that load takes. If it is another directory, the route is
that of a file in it. PATH can also be s3://, https://, nvme://DRIVE (a drive without a
file system) or rdma://HOST:PORT/NAME (a file that culvert rdma serve has), as for cp.

In JSON, best_route is the best route that PATH can use, verdict.route the one of most
of its bytes. They differ for a file that is smaller than a block of the best route.

With --config, explain a cufile.json instead: for each setting of it and of the CUFILE_
variables, what it does here.

EXIT STATUS
  0  the report was printed (and the required route is available)
  1  an error, or an unknown key or invalid value in the file of --config; where the
     machine does not open, the report is printed all the same
  2  invalid command line
  3  the best route is worse than --require-route, or it is one of a software
     machine that was not asked for`,
		Example: `  culvert check
  culvert check /data/model.safetensors gpu:0
  culvert check /data/llama gpu:0
  culvert check /mnt/scratch
  culvert check nvme://soft:disk.img gpu:0
  culvert check /data/model.safetensors gpu:0 --require-route ring --json`,
		Args: args(cobra.MaximumNArgs(2)),
		RunE: run(o.run),
	}
	cmd.Flags().BoolVar(&o.json, "json", false, "print the report as JSON")
	cmd.Flags().BoolVarP(&o.verbose, "verbose", "v", false, "also print the attributes of GPUs; with PATH, also the layers below the file, declined routes, GPUs, device nodes, modules and limits")
	cmd.Flags().StringVar(&o.config, "config", "", "explain this cufile.json")
	cmd.Flags().StringVar(&o.require, "require-route", "", "exit with status 3 unless the best route is this one or better")
	return cmd
}

func (o *checkOptions) run(ctx context.Context, a []string, out io.Writer) error {
	if o.config != "" {
		return o.explain(a, out)
	}
	dev, require, err := o.parse(a)
	if err != nil {
		return err
	}
	m, failed := machine.Open()
	if _, ok := errors.AsType[*machine.SettingError](failed); ok {
		return failed
	}
	r, err := check.Look(m)
	if err != nil {
		return err
	}
	r.Verbose, r.Width = o.verbose, screenWidth(out)
	if failed == nil && len(a) > 0 {
		if r.Path, err = checkPath(ctx, m, a[0], dev); err != nil {
			return fmt.Errorf("check %s: %w", object.Redact(a[0]), err)
		}
		r.Path.Measure = measureCommand(r.Path, a[0])
		if gpus, err := m.GPU.Devices(); err == nil && r.Path.GPU < len(gpus) {
			r.Path.Pinned = tune.Pinned(gpus[r.Path.GPU], culvertdev.Of(m).FS()).Get(false)
		}
	}
	// A machine that does not open needs the report most.
	if err := show(out, o.json, r); err != nil || failed != nil {
		return errors.Join(failed, err)
	}
	if require != route.None {
		return r.Path.Require(require)
	}
	return nil
}

// measureCommand is how to measure a path; "" if no command does, or it has nothing.
func measureCommand(p *check.Path, path string) string {
	gpu := fmt.Sprintf("gpu:%d", p.GPU)
	switch {
	case p.Model != "":
		return commandLine([]string{"load", path, gpu})
	case strings.HasPrefix(path, driveScheme) || strings.HasPrefix(path, remoteScheme) || p.Directory || p.Size == 0:
		return ""
	}
	line := []string{"bench", path, gpu}
	if p.Size < benchBlock {
		line = append(line, "--bs", human.ShortSize(1<<(bits.Len64(uint64(p.Size))-1)))
	}
	return commandLine(line)
}

// benchBlock is the block of bench unless --bs is given. A file must have one.
const benchBlock = 1 << 20

// parse returns the GPU and the required route.
func (o *checkOptions) parse(a []string) (dev int, require route.ID, err error) {
	dev, err = gpuArg(a)
	if err == nil && len(a) == 1 && strings.HasPrefix(a[0], "gpu:") {
		if _, missing := os.Stat(a[0]); missing != nil {
			err = usageError{fmt.Errorf("%s needs a PATH before it (fix: culvert check PATH %s, or culvert check for all GPUs)", a[0], a[0])}
		}
	}
	if err != nil || o.require == "" {
		return dev, route.None, err
	}
	if require, err = route.Parse(o.require); err == nil && len(a) == 0 {
		err = errors.New("--require-route needs a PATH")
	}
	if err != nil {
		return 0, route.None, usageError{err}
	}
	return dev, require, nil
}

func checkPath(ctx context.Context, m *machine.Machine, path string, dev int) (*check.Path, error) {
	if err := checkGPUs(m, dev); err != nil {
		return nil, err
	}
	drv, err := cufile.Open(m)
	if err != nil {
		return nil, err
	}
	defer drv.Close()
	if strings.HasPrefix(path, driveScheme) {
		return checkDrive(m, drv, path, dev)
	}
	if far, ok := strings.CutPrefix(path, remoteScheme); ok {
		return checkRemote(ctx, m, drv, far, dev)
	}
	model, err := modelAt(path, dev)
	if st, serr := os.Stat(path); errors.Is(err, fs.ErrNotExist) && serr == nil && st.IsDir() {
		return check.LookDirectory(m, drv, path, dev) // a directory without a model
	}
	if err != nil {
		return nil, err
	}
	if model == nil {
		return check.LookPath(m, drv, path, dev)
	}
	return check.LookModel(m, drv, *model, dev)
}

// checkDrive looks at the routes of a drive without a file system.
func checkDrive(m *machine.Machine, drv *cufile.Driver, url string, dev int) (p *check.Path, err error) {
	c := &driveCopy{URL: url, machine: m}
	if err := c.parse(); err != nil {
		return nil, err
	}
	d, err := c.drive(drv, dev)
	if err != nil {
		return nil, err
	}
	err = d.use(func() error {
		end, err := c.open(d, &transfer.Options{})
		if err != nil {
			return err
		}
		defer end.Source.Close()
		size, err := end.Size()
		if err == nil {
			p, err = check.LookSource(m, drv, end, size, "drive "+c.name, dev)
		}
		return err
	})
	return p, err
}

// checkRemote looks at the routes of a file of another host, which must serve it.
func checkRemote(ctx context.Context, m *machine.Machine, drv *cufile.Driver, far string, dev int) (*check.Path, error) {
	host, name, err := parseRemote(far)
	if err != nil {
		return nil, err
	}
	client, err := dialRemote(ctx, m, rdmaAccess{}, remote.ClientConfig{Addr: host})
	if err != nil {
		return nil, err
	}
	f, err := client.Open(ctx, name)
	if err != nil {
		return nil, errors.Join(err, client.close())
	}
	s := remote.NewSource(ctx, f)
	size, err := s.Size()
	var p *check.Path
	if err == nil {
		p, err = check.LookSource(m, drv, s, size, "host "+host+", provider "+client.Provider(), dev)
	}
	return p, errors.Join(err, s.Close(ctx), client.close())
}

// isDir reports whether a path or a URL stands for several files.
func isDir(path string) (bool, error) {
	if object.IsURL(path) {
		return object.IsDir(object.Context(), path)
	}
	st, err := os.Stat(path)
	return err == nil && st.IsDir(), err
}

// modelAt plans the load of a model, as load does. It returns nil for a file that is
// none.
func modelAt(path string, dev int) (*check.Model, error) {
	dir, err := isDir(path)
	if err != nil {
		return nil, err
	}
	index := strings.HasSuffix(baseName(path), ".index.json")
	if !dir && !index && !strings.HasSuffix(baseName(path), ".safetensors") {
		return nil, nil
	}
	var all part
	_, plan, _, err := all.open(path, fmt.Sprintf("gpu:%d", dev), nil)
	if _, ok := errors.AsType[*tensor.FormatError](err); ok && !dir && !index {
		return nil, nil // whatever its name
	}
	if err != nil {
		return nil, err
	}
	return &check.Model{Path: path, Files: plan.Files, Blocks: plan.Blocks}, nil
}
