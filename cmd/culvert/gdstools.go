package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/internal/check"
	"github.com/culvert-io/culvert/internal/gdstools"
	"github.com/culvert-io/culvert/internal/human"
	"github.com/culvert-io/culvert/internal/stats"
	"github.com/culvert-io/culvert/machine"
)

// personalities are commands that a link of their name starts.
var personalities = []string{"gdsio", "gdscheck", "gds_stats", "gdsio_verify"}

// calledAs returns the arguments, after the command that the program's name means.
func calledAs(args []string) []string {
	if len(args) == 0 {
		return nil
	}
	if name := filepath.Base(args[0]); slices.Contains(personalities, name) {
		return append([]string{name}, args[1:]...)
	}
	return args[1:]
}

// openAsked opens a driver, and refuses a software machine that nothing asked for, as
// NVIDIA's tools refuse a machine without a GPU.
func openAsked(gpu int) (*machine.Machine, *cufile.Driver, error) {
	m, drv, err := openDriver(gpu)
	if err == nil && m.Soft && m.Automatic {
		drv.Close()
		err = fmt.Errorf("no GPU: %s (CULVERT_MACHINE=soft runs on the software machine)", m.Why)
	}
	return m, drv, err
}

func newGDSIO() *cobra.Command {
	return &cobra.Command{
		Use:   "gdsio OPTIONS",
		Short: "NVIDIA's gdsio on Culvert: measure reads and writes of files by a GPU",
		Long: `Measure transfers with the options and the result line of NVIDIA's gdsio, and
print a line with the route that was really taken. A link named gdsio to culvert
does the same. Without a GPU it fails, unless CULVERT_MACHINE=soft asks for the
software machine. culvert bench measures more.

OPTIONS
` + gdstools.GDSIOHelp() + `
EXIT STATUS
  0  all requests were measured
  1  an error
  2  invalid command line`,
		Example: `  culvert gdsio -f /data/file -d 0 -w 4 -s 1G -i 1M -x 0 -I 1
  culvert gdsio -D /data -d 0 -w 8 -s 1G -i 4K -x 0 -I 2 -T 10`,
		DisableFlagParsing: true, // NVIDIA's options are letters alone
		RunE: func(cmd *cobra.Command, a []string) error {
			if slices.Contains(a, "-h") || slices.Contains(a, "--help") {
				return cmd.Help()
			}
			return runUnfolded(runGDSIO)(cmd, a)
		},
	}
}

func runGDSIO(ctx context.Context, a []string, out io.Writer) error {
	job, err := gdstools.ParseJob(a)
	if err != nil {
		return usageError{fmt.Errorf("gdsio: %w (see culvert help gdsio)", err)}
	}
	m, drv, err := openAsked(job.GPU)
	if err != nil {
		return err
	}
	defer drv.Close()
	return job.Run(ctx, drv, m.Soft, out)
}

func newGDSCheck() *cobra.Command {
	var platform, versions bool
	cmd := &cobra.Command{
		Use:   "gdscheck -p",
		Short: "NVIDIA's gdscheck on Culvert: what this machine supports",
		Long: `Print what this machine supports in the layout of NVIDIA's gdscheck. Without a GPU
it fails, unless CULVERT_MACHINE=soft asks for the software machine. culvert check
says more, and for a file.

EXIT STATUS
  0  the machine has a GPU that Culvert can use
  1  it has none
  2  invalid command line`,
		Example: `  culvert gdscheck -p`,
		Args:    args(cobra.NoArgs),
		RunE: runUnfolded(func(_ context.Context, _ []string, out io.Writer) error {
			m, err := machine.Open()
			if err != nil {
				return err
			}
			defer m.Close()
			r, err := check.Look(m)
			if err != nil {
				return err
			}
			return gdstools.Check(r, version(), m.Soft && !m.Automatic, out)
		}),
	}
	cmd.Flags().BoolVarP(&platform, "platform", "p", false, "print the platform (always printed)")
	cmd.Flags().BoolVarP(&versions, "versions", "v", false, "print versions (always printed)")
	return cmd
}

func newGDSStats() *cobra.Command {
	var pid, level int
	cmd := &cobra.Command{
		Use:   "gds_stats -p PID [-l LEVEL]",
		Short: "NVIDIA's gds_stats on Culvert: the totals of a process",
		Long: `Print the totals of a process in the layout of NVIDIA's gds_stats. Unlike NVIDIA's
it needs no setting in the process. culvert stats and culvert top show more.

EXIT STATUS
  0  the totals were printed
  1  the process has none, or they cannot be read
  2  invalid command line`,
		Example: `  culvert gds_stats -p 4711 -l 3`,
		Args:    args(cobra.NoArgs),
		RunE: runUnfolded(func(_ context.Context, _ []string, out io.Writer) error {
			if pid <= 0 || level < 1 || level > 3 {
				return usageError{errors.New("gds_stats: want -p PID and -l 1, 2 or 3")}
			}
			s, err := stats.Read(pid)
			if err != nil {
				return fmt.Errorf("gds_stats: %w", err)
			}
			return gdstools.Stats(s, level, out)
		}),
	}
	cmd.Flags().IntVarP(&pid, "pid", "p", 0, "process ID")
	cmd.Flags().IntVarP(&level, "level", "l", 1, "1 totals, 2 and sizes, 3 and GPUs")
	return cmd
}

func newGDSIOVerify() *cobra.Command {
	var v gdstools.Verification
	var offset, size string
	var register int
	cmd := &cobra.Command{
		Use:   "gdsio_verify -f FILE",
		Short: "NVIDIA's gdsio_verify on Culvert: compare a file in GPU memory with pread",
		Long: `Read a file into GPU memory and compare it with what pread returns, with the options
of NVIDIA's gdsio_verify, and print a line with the route that was really taken. Without
a GPU it fails, unless CULVERT_MACHINE=soft asks for the software machine.

EXIT STATUS
  0  the data is the same
  1  it differs, there was nothing to compare, or an error
  2  invalid command line`,
		Example: `  culvert gdsio_verify -f /data/file -d 0 -s 1M
  culvert gdsio_verify -f /data/file -d 0 -o 4K -s 64K -n 16 -m 0`,
		Args: args(cobra.NoArgs),
		RunE: runUnfolded(func(ctx context.Context, _ []string, out io.Writer) (err error) {
			if v.Offset, err = human.ParseSize(strings.ToUpper(offset)); err != nil {
				return usageError{fmt.Errorf("gdsio_verify: -o: %w", err)}
			}
			v.Size, err = human.ParseSize(strings.ToUpper(size))
			if err != nil || v.Size == 0 || v.Size > 1<<30 || v.Path == "" || v.Reads < 0 || register < 0 || register > 1 {
				return usageError{errors.New("gdsio_verify: needs -f FILE, -s from 1 byte to 1G, -n from 0 and -m 0 or 1")}
			}
			v.Register = register == 1
			m, drv, err := openAsked(v.GPU)
			if err != nil {
				return err
			}
			defer drv.Close()
			return v.Run(ctx, drv, m.Soft, out)
		}),
	}
	f := cmd.Flags()
	f.IntVarP(&v.GPU, "device", "d", 0, "number of the GPU")
	f.StringVarP(&v.Path, "file", "f", "", "file to read")
	f.StringVarP(&offset, "offset", "o", "0", "where in the file the first read begins")
	f.StringVarP(&size, "size", "s", "1M", "bytes per read")
	f.Int64VarP(&v.Reads, "number", "n", 0, "number of reads (default to the end of the file)")
	f.IntVarP(&register, "register", "m", 1, "1 registers the buffer, 0 does not")
	f.StringP("alignment", "g", "", "accepted and ignored: alignment of the buffer")
	f.StringP("threads", "t", "", "accepted and ignored")
	f.BoolP("no-sync", "S", false, "accepted and ignored")
	return cmd
}
