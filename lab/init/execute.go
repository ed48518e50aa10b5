package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/lab/inside"
	"github.com/culvert-io/culvert/lab/internal/job"
)

const busybox = "/bin/busybox"

// installTools installs busybox's applets: tests of a command line call a shell.
func installTools() error {
	if out, err := exec.Command(busybox, "--install", "-s", "/bin").CombinedOutput(); err != nil {
		return fmt.Errorf("install busybox: %w: %s", err, out)
	}
	return nil
}

// execute runs the job's command and returns its exit code.
func execute(j job.Job) (int, error) {
	// Commands are found in the PATH of the job; init's is empty.
	os.Clearenv()
	for _, kv := range j.Env {
		name, value, _ := strings.Cut(kv, "=")
		os.Setenv(name, value)
	}
	os.Setenv(job.BootEnv, strconv.Itoa(j.Boot))
	cmd := exec.Command(j.Args[0], j.Args[1:]...)
	cmd.Dir = j.Dir
	if j.Terminal {
		return onTerminal(cmd)
	}
	return onPorts(cmd)
}

// onTerminal runs a command with the console as its terminal.
func onTerminal(cmd *exec.Cmd) (int, error) {
	tty, err := os.OpenFile("/dev/ttyS0", os.O_RDWR, 0)
	if err != nil {
		return 0, err
	}
	defer tty.Close()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true, Setctty: true}
	return exitCode(cmd)
}

// onPorts runs a command whose output goes to the host, and waits until the host has
// it: a write to a port returns when the data is queued, and ending the machine
// would drop the queue.
func onPorts(cmd *exec.Cmd) (int, error) {
	stdout, err := openPort(job.PortStdout)
	if err != nil {
		return 0, err
	}
	defer stdout.f.Close()
	stderr, err := openPort(job.PortStderr)
	if err != nil {
		return 0, err
	}
	defer stderr.f.Close()
	cmd.Stdout, cmd.Stderr = stdout, stderr
	// A child of the command may keep its output open.
	cmd.WaitDelay = waitDelay
	code, err := exitCode(cmd)
	if err != nil {
		return 0, err
	}
	return code, inside.Ask(job.Drain, stdout.n, stderr.n)
}

const waitDelay = 15 * time.Second

func exitCode(cmd *exec.Cmd) (int, error) {
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case errors.Is(err, exec.ErrWaitDelay):
		return cmd.ProcessState.ExitCode(), nil
	case !errors.As(err, &exit):
		return 0, err
	case exit.ExitCode() < 0: // killed by a signal
		fmt.Fprintf(cmd.Stderr, "lab init: %s: %v\n", cmd.Path, exit)
		return job.Signalled, nil
	}
	return exit.ExitCode(), nil
}

// A port is a stream to the host that counts bytes.
type port struct {
	f *os.File
	n int64
}

func openPort(name string) (*port, error) {
	f, err := inside.OpenPort(name, os.O_WRONLY)
	return &port{f: f}, err
}

func (p *port) Write(b []byte) (int, error) {
	n, err := p.f.Write(b)
	p.n += int64(n)
	return n, err
}
