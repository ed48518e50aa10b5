package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/culvert-io/culvert/internal/human"
	"github.com/culvert-io/culvert/lab"
	"github.com/culvert-io/culvert/lab/suite"
)

const execText = `Usage: lab exec [flags] -- PROGRAM [arguments]

Boots a guest with a blank NVMe drive, runs PROGRAM there and ends with its
exit code. A PROGRAM with a slash is a file of this machine, one without is a
command of the guest (a busybox applet). The working directory and the module
around it are there, read-only; TMPDIR lies on the drive. Variables that start
with CULVERT_ are passed on.

  go test -tags nodl -exec 'lab exec -fs xfs -sector 4096 --' ./route

Test binaries should be built with CGO_ENABLED=0. With -suite the program runs
on the guest of a suite, such as one with a switch and several drives.

EXIT STATUS
  the program's, up to 61
  62   it was killed by a signal
  124  the time was up
  125  the guest could not run it

Flags:
`

// guestFlags describe the guest on a command line: one drive and what hangs
// around it. Richer guests are described in the table of suites.
type guestFlags struct {
	guest   lab.Guest
	drive   lab.Drive
	faults  faultFlag
	env     listFlag
	suite   string
	timeout time.Duration
	console bool
}

func (g *guestFlags) register(fs *flag.FlagSet) {
	g.drive = lab.Drive{ID: "nv0", Size: 1 << 30, Sector: 512, FS: "xfs"}
	fs.StringVar(&g.drive.FS, "fs", g.drive.FS, "file system on the drive: ext4, xfs, or none for a raw drive")
	fs.IntVar(&g.drive.Sector, "sector", g.drive.Sector, "the drive's sector size: 512 or 4096")
	fs.Func("size", "the drive's size, such as 64M or 2G (default 1G)", func(s string) (err error) {
		if g.drive.Size, err = human.ParseSize(s); err == nil && g.drive.Size == 0 {
			err = errors.New("a drive needs at least one sector")
		}
		return err
	})
	fs.IntVar(&g.drive.CMB, "cmb", 0, "MiB of controller memory buffer on the drive")
	fs.StringVar(&g.drive.Behind, "behind", "", "what the drive sits below: "+lab.RootPort+", or the name of a switch")
	fs.Var(&g.faults, "fault", "medium error, as read:SECTOR or write:SECTOR in units of 512 bytes; may be repeated")
	fs.BoolVar(&g.guest.IOMMU, "iommu", false, "an emulated IOMMU in front of the devices")
	fs.IntVar(&g.guest.CPUs, "cpus", 2, "processors")
	fs.IntVar(&g.guest.Memory, "memory", 768, "memory in MiB")
	fs.StringVar(&g.suite, "suite", "", "take the guest and the environment of this suite, and ignore the flags that describe one")
	fs.Var(&g.env, "env", "NAME=VALUE for the program's environment; may be repeated")
	fs.DurationVar(&g.timeout, "timeout", 5*time.Minute, "kill the guest after this time")
	fs.BoolVar(&g.console, "console", false, "show what the kernel prints")
}

// describe is the guest that the flags ask for, and its environment.
func (g *guestFlags) describe() (lab.Guest, []string, error) {
	if g.suite != "" {
		s, err := suite.Named(g.suite)
		return s.Guest, slices.Concat(s.Env, g.environment()), err
	}
	d := g.drive
	if d.FS == "none" {
		d.FS = ""
	}
	d.Faults = g.faults
	guest := g.guest
	guest.Drives = []lab.Drive{d}
	return guest, g.environment(), guest.Validate()
}

// environment passes on what concerns the project, but not where this machine
// has its kernel.
func (g *guestFlags) environment() []string {
	var env []string
	for _, kv := range os.Environ() {
		if strings.HasPrefix(kv, "CULVERT_") && !strings.HasPrefix(kv, lab.KernelEnv+"=") {
			env = append(env, kv)
		}
	}
	return slices.Concat(env, g.env)
}

func runExec(ctx context.Context, args []string, stdio IO) int {
	var g guestFlags
	fs := newFlags("lab exec", execText, stdio)
	g.register(fs)
	if code := parse(fs, args); code >= 0 {
		return code
	}
	if fs.NArg() == 0 {
		fs.Usage()
		return exitUsage
	}
	guest, env, err := g.describe()
	if err != nil {
		return fail(stdio, err)
	}
	dir, err := os.Getwd()
	if err != nil {
		return fail(stdio, err)
	}
	l, err := lab.Open(ctx, stdio.Err)
	if err != nil {
		return fail(stdio, err)
	}
	c := lab.Command{Args: fs.Args(), Env: env, Dir: dir, Stdout: stdio.Out, Stderr: stdio.Err}
	if g.console {
		c.Console = stdio.Err
	}
	ctx, cancel := context.WithTimeout(ctx, g.timeout)
	defer cancel()
	res, err := l.Run(ctx, guest, c)
	if err != nil {
		return fail(stdio, err)
	}
	return res.ExitCode
}

type listFlag []string

func (l *listFlag) String() string     { return strings.Join(*l, ",") }
func (l *listFlag) Set(s string) error { *l = append(*l, s); return nil }

type faultFlag []lab.Fault

func (f *faultFlag) String() string { return fmt.Sprint(*f) }

func (f *faultFlag) Set(s string) error {
	op, sector, ok := strings.Cut(s, ":")
	n, err := strconv.ParseInt(sector, 10, 64)
	if !ok || err != nil {
		return fmt.Errorf("want read:SECTOR or write:SECTOR")
	}
	*f = append(*f, lab.Fault{Op: lab.Op(op), Sector: n})
	return nil
}
