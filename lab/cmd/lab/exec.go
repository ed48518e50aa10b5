package main

import (
	"context"
	"errors"
	"flag"
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

Boot a guest with a blank NVMe drive, run PROGRAM in it and return its exit code.
A PROGRAM with a slash is a file of this machine, one without is a command of the
guest (a busybox applet). The working directory and its module are mounted
read-only; TMPDIR is on the drive. CULVERT_* variables are passed on.

  go test -tags nodl -exec 'lab exec -fs xfs -sector 4096 --' ./route

Build test binaries with CGO_ENABLED=0. With -suite the program runs on the guest
of a suite, such as one with a switch and several drives.

EXIT STATUS
  that of the program, up to 61
  62   a signal killed the program
  124  timeout
  125  the guest could not run the program

Flags:
`

func runExec(ctx context.Context, args []string, std stdio) (int, error) {
	var g guestFlags
	fs, err := parse("lab exec", execText, args, std, g.register)
	if err != nil {
		return 0, err
	}
	if fs.NArg() == 0 {
		fs.Usage()
		return 0, errUsage
	}
	c := lab.Command{Args: fs.Args(), Stdout: std.out, Stderr: std.err}
	if g.console {
		c.Console = std.err
	}
	return g.run(ctx, c, std)
}

// run runs a command in the guest of the flags. A command on a terminal has no time
// limit.
func (g *guestFlags) run(ctx context.Context, c lab.Command, std stdio) (int, error) {
	guest, env, err := g.describe()
	if err != nil {
		return 0, err
	}
	if c.Dir, err = os.Getwd(); err != nil {
		return 0, err
	}
	l, err := lab.Open(ctx, std.err)
	if err != nil {
		return 0, err
	}
	if !c.Terminal {
		var cancel func()
		ctx, cancel = context.WithTimeout(ctx, g.timeout)
		defer cancel()
	}
	c.Env = append(env, c.Env...)
	res, err := l.Run(ctx, guest, c)
	return res.ExitCode, err
}

// guestFlags describe a guest with one drive. The suites describe richer ones.
type guestFlags struct {
	guest   lab.Guest
	drive   lab.Drive
	env     []string
	suite   string
	timeout time.Duration
	console bool
}

func (g *guestFlags) register(fs *flag.FlagSet) {
	g.drive = lab.Drive{ID: "nv0", Size: 1 << 30, Sector: 512, FS: "xfs"}
	fs.StringVar(&g.drive.FS, "fs", g.drive.FS, "file system on the drive: ext4, xfs, or none for a raw drive")
	fs.IntVar(&g.drive.Sector, "sector", g.drive.Sector, "sector size of the drive: 512 or 4096")
	fs.Func("size", "size of the drive, such as 64M or 2G (default 1G)", g.setSize)
	fs.IntVar(&g.drive.CMB, "cmb", 0, "MiB of controller memory buffer on the drive")
	fs.StringVar(&g.drive.Behind, "behind", "", "where to plug the drive in: "+lab.RootPort+", or the name of a switch")
	fs.Func("fault", "medium error, as read:SECTOR or write:SECTOR in units of 512 bytes; may be repeated", g.addFault)
	fs.BoolVar(&g.guest.IOMMU, "iommu", false, "add an emulated IOMMU")
	fs.IntVar(&g.guest.CPUs, "cpus", 2, "processors")
	fs.IntVar(&g.guest.Memory, "memory", 768, "memory in MiB")
	fs.StringVar(&g.suite, "suite", "", "use the guest and environment of this suite, and ignore flags that describe a guest")
	fs.Func("env", "NAME=VALUE for the program's environment; may be repeated", func(s string) error {
		g.env = append(g.env, s)
		return nil
	})
	fs.DurationVar(&g.timeout, "timeout", 5*time.Minute, "kill the guest after this time")
	fs.BoolVar(&g.console, "console", false, "print the kernel's messages")
}

func (g *guestFlags) setSize(s string) (err error) {
	if g.drive.Size, err = human.ParseSize(s); err == nil && g.drive.Size == 0 {
		err = errors.New("a drive has at least one sector")
	}
	return err
}

func (g *guestFlags) addFault(s string) error {
	op, sector, ok := strings.Cut(s, ":")
	n, err := strconv.ParseInt(sector, 10, 64)
	if !ok || err != nil {
		return errors.New("want read:SECTOR or write:SECTOR")
	}
	g.drive.Faults = append(g.drive.Faults, lab.Fault{Op: lab.Op(op), Sector: n})
	return nil
}

// describe returns the guest of the flags and its environment: CULVERT_*
// variables, except the path of this machine's kernel.
func (g *guestFlags) describe() (lab.Guest, []string, error) {
	env := slices.DeleteFunc(os.Environ(), func(kv string) bool {
		return !strings.HasPrefix(kv, "CULVERT_") || strings.HasPrefix(kv, lab.KernelEnv+"=")
	})
	env = append(env, g.env...)
	if g.suite != "" {
		s, err := suite.Named(g.suite)
		return s.Guest, slices.Concat(s.Env, env), err
	}
	guest, d := g.guest, g.drive
	if d.FS == "none" {
		d.FS = ""
	}
	guest.Drives = []lab.Drive{d}
	return guest, env, guest.Validate()
}
