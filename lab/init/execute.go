package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/lab/inside"
	"github.com/culvert-io/culvert/lab/internal/job"
)

const busybox = "/bin/busybox"

func installTools() error {
	if out, err := exec.Command(busybox, "--install", "-s", "/bin").CombinedOutput(); err != nil {
		return fmt.Errorf("install busybox: %w: %s", err, out)
	}
	return nil
}

// execute runs the job's command and returns its exit code.
func execute(j job.Job) (int, error) {
	// Look commands up in the PATH of the job, not in init's empty one.
	os.Clearenv()
	for _, kv := range j.Env {
		name, value, _ := strings.Cut(kv, "=")
		os.Setenv(name, value)
	}
	os.Setenv(job.BootEnv, strconv.Itoa(j.Boot))
	cmd := exec.Command(j.Args[0], j.Args[1:]...)
	cmd.Dir = j.Dir
	closeStreams, err := connect(cmd, j.Terminal)
	if err != nil {
		return 0, err
	}
	defer closeStreams()
	err = cmd.Run()
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return 0, err
	}
	if exit.ExitCode() < 0 { // killed by a signal
		fmt.Fprintf(cmd.Stderr, "lab init: %s: %v\n", j.Args[0], exit)
		return failed, nil
	}
	return exit.ExitCode(), nil
}

// connect gives the command its streams: the ports that lead to the host, or
// the console as a controlling terminal.
func connect(cmd *exec.Cmd, terminal bool) (closeStreams func(), err error) {
	if terminal {
		tty, err := os.OpenFile("/dev/ttyS0", os.O_RDWR, 0)
		if err != nil {
			return nil, err
		}
		cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
		cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true, Setctty: true}
		return func() { tty.Close() }, nil
	}
	stdout, err := openPort(job.PortStdout)
	if err != nil {
		return nil, err
	}
	stderr, err := openPort(job.PortStderr)
	if err != nil {
		return nil, err
	}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	return func() { stdout.Close(); stderr.Close() }, nil
}

func openPort(name string) (*os.File, error) {
	node, err := inside.Port(name)
	if err != nil {
		return nil, err
	}
	return os.OpenFile(node, os.O_WRONLY, 0)
}
