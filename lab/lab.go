package lab

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/lab/internal/job"
)

// A Lab starts guests. It may be used concurrently.
type Lab struct {
	Kernel Kernel

	init  string // the guest's init, built
	accel string
}

// Open finds the kernel and builds init, which needs the go command and a working
// directory in this module. Downloads are reported to log.
func Open(ctx context.Context, log io.Writer) (*Lab, error) {
	if _, err := exec.LookPath(qemu); err != nil {
		return nil, fmt.Errorf("%w (package qemu-system-x86)", err)
	}
	kernel, err := ResolveKernel(ctx, log)
	if err != nil {
		return nil, err
	}
	init, err := buildInit(ctx)
	if err != nil {
		return nil, err
	}
	return &Lab{Kernel: kernel, init: init, accel: accelerator("/proc/cpuinfo", "/dev/kvm")}, nil
}

// accelerator chooses KVM only if the processor supports virtualization: the device
// node exists on machines without it.
func accelerator(cpuinfo, kvm string) string {
	const emulate = "tcg,thread=multi"
	b, err := os.ReadFile(cpuinfo)
	if err != nil {
		return emulate
	}
	for line := range strings.Lines(string(b)) {
		name, flags, _ := strings.Cut(line, ":")
		if strings.TrimSpace(name) != "flags" {
			continue
		}
		able := func(flag string) bool { return slices.Contains(strings.Fields(flags), flag) }
		if (able("vmx") || able("svm")) && unix.Access(kvm, unix.R_OK|unix.W_OK) == nil {
			return "kvm"
		}
		return emulate
	}
	return emulate
}

// A Command is what a guest runs.
type Command struct {
	// Args is the command line. A first word with a slash is a program of the
	// host, which is copied to the guest with its libraries; one without is a
	// command of the guest, such as a busybox applet.
	Args []string
	Env  []string
	// Dir is the working directory. It is shared with the guest, read-only,
	// with everything below the nearest go.mod above it.
	Dir string
	// Programs are more programs of the host to copy, by their path in the guest.
	Programs map[string]string
	// Terminal connects the command to QEMU's own standard input and
	// output. Stdout and Stderr are then not used.
	Terminal       bool
	Stdout, Stderr io.Writer
	// Console receives the kernel's messages. If nil, an error shows their end.
	Console io.Writer
}

// A Result is the result of a command in a guest.
type Result struct {
	ExitCode int
	Boots    int // 1, and one more for each power cut
}

// ErrNoReport means that a guest ended without an exit code: the kernel panicked,
// or QEMU failed to start or was killed.
var ErrNoReport = errors.New("guest ended without reporting an exit code")

// ErrSetup means that a guest started but could not run its command.
var ErrSetup = errors.New("guest could not run the command")

// Run starts a guest, runs the command in it and removes all temporary files.
// Cancelling ctx kills the guest.
func (l *Lab) Run(ctx context.Context, g Guest, c Command) (Result, error) {
	return l.run(ctx, g, c, nil)
}

func (l *Lab) run(ctx context.Context, g Guest, c Command, wire *cable) (Result, error) {
	g = g.withDefaults()
	if err := g.Validate(); err != nil {
		return Result{}, fmt.Errorf("guest: %w", err)
	}
	if len(c.Args) == 0 {
		return Result{}, errors.New("guest: no command")
	}
	dir, err := os.MkdirTemp("", "culvert-lab-")
	if err != nil {
		return Result{}, err
	}
	defer os.RemoveAll(dir)
	images, err := makeImages(dir, g.Drives)
	if err != nil {
		return Result{}, err
	}
	shares, err := c.shares()
	if err != nil {
		return Result{}, err
	}
	var files map[string]string
	if g.Verbs {
		if files, err = verbs(); err != nil {
			return Result{}, err
		}
	}
	if g.Perftest {
		programs, err := perftest()
		if err != nil {
			return Result{}, err
		}
		maps.Copy(programs, c.Programs)
		c.Programs = programs
	}
	for boot := 1; ; boot++ {
		initrd := filepath.Join(dir, "initramfs")
		root := l.contents(g, c, shares, boot)
		root.files = files
		if err := root.packFile(initrd); err != nil {
			return Result{}, err
		}
		m := machine{
			args:    g.args(launch{l.accel, l.Kernel.Image, initrd, images, shares, c.Terminal, wire}),
			command: c,
		}
		switch code, err := m.run(ctx); {
		case errors.Is(err, errPowerCut):
		case err != nil:
			return Result{Boots: boot}, err
		default:
			return Result{ExitCode: code, Boots: boot}, nil
		}
	}
}

// makeImages creates the drives' files, blank and sparse.
func makeImages(dir string, drives []Drive) (map[string]string, error) {
	images := map[string]string{}
	for _, d := range drives {
		path := filepath.Join(dir, d.ID+".img")
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return nil, fmt.Errorf("drive %s: %w", d.ID, err)
		}
		if err := errors.Join(f.Truncate(d.Size), f.Close()); err != nil {
			return nil, fmt.Errorf("drive %s: %w", d.ID, err)
		}
		images[d.ID] = path
	}
	return images, nil
}

// shares returns the directory to share: the module of the working directory, so
// that a test finds testdata.
func (c Command) shares() ([]job.Share, error) {
	if c.Dir == "" {
		return nil, nil
	}
	dir, err := filepath.Abs(c.Dir)
	if err != nil {
		return nil, err
	}
	root := dir
	for up := dir; up != "/"; up = filepath.Dir(up) {
		if _, err := os.Stat(filepath.Join(up, "go.mod")); err == nil {
			root = up
			break
		}
	}
	return []job.Share{{Tag: "share0", Path: root}}, nil
}

func (l *Lab) contents(g Guest, c Command, shares []job.Share, boot int) contents {
	args, programs := slices.Clone(c.Args), map[string]string{}
	maps.Copy(programs, c.Programs)
	if strings.Contains(args[0], "/") {
		guest := "/lab/bin/" + filepath.Base(args[0])
		programs[guest] = args[0]
		args[0] = guest
	}
	seed := make([]byte, 64)
	rand.Read(seed) // never fails
	j := job.Job{
		Boot: boot, Seed: seed, Mounts: g.mounts(), Shares: shares, Terminal: c.Terminal,
		Args: args, Dir: c.Dir, Env: append([]string{"PATH=/bin:/sbin:/lab/bin", "HOME=/", "TMPDIR=" + g.tempDir()}, c.Env...),
	}
	var mkfs []string
	for _, m := range g.mounts() {
		mkfs = append(mkfs, m.FS)
	}
	return contents{init: l.init, programs: programs, mkfs: mkfs, kernel: l.Kernel, modules: g.modules(), job: j}
}
