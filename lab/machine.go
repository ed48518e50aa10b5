package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/lab/internal/job"
)

const qemu = "qemu-system-x86_64"

// errPowerCut ends a boot on the guest's request.
var errPowerCut = errors.New("power cut")

// A machine is one boot of a guest.
type machine struct {
	args    []string
	command Command

	stdout, stderr counter
	console        tail
	stop           context.CancelCauseFunc
}

// run starts QEMU and returns the exit code that the guest reported.
func (m *machine) run(ctx context.Context) (int, error) {
	ctx, m.stop = context.WithCancelCause(ctx)
	defer m.stop(nil)

	var links links
	defer links.close()
	stdout, stderr, control, monitor := links.dial(), links.dial(), links.dial(), links.dial()
	var console net.Conn
	if !m.command.Terminal {
		console = links.dial()
	}
	if links.err != nil {
		return 0, fmt.Errorf("guest: %w", links.err)
	}

	var streams sync.WaitGroup
	pass := func(w io.Writer, r net.Conn) { streams.Go(func() { io.Copy(w, r) }) }
	m.stdout.w, m.stderr.w = orDiscard(m.command.Stdout), orDiscard(m.command.Stderr)
	pass(&m.stdout, stdout)
	pass(&m.stderr, stderr)
	if console != nil {
		pass(m.consoleWriter(), console)
	}
	streams.Go(func() { m.serve(ctx, control, monitor) })

	status, err := m.process(ctx, &links)
	// QEMU has closed its ends: the streams drain and end.
	streams.Wait()
	return m.outcome(ctx, status, err)
}

func (m *machine) consoleWriter() io.Writer {
	if m.command.Console != nil {
		return m.command.Console
	}
	return &m.console
}

func orDiscard(w io.Writer) io.Writer {
	if w == nil {
		return io.Discard
	}
	return w
}

// process runs QEMU and returns its exit status. It stays on one thread, because the
// kernel kills the child when the thread that started it ends.
func (m *machine) process(ctx context.Context, links *links) (int, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.CommandContext(ctx, qemu, m.args...)
	cmd.ExtraFiles = links.theirs
	cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	if m.command.Terminal {
		cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	} else {
		cmd.Stderr = &m.console
	}
	err := cmd.Start()
	links.closeTheirs()
	if err != nil {
		return 0, err
	}
	err = cmd.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode(), nil
	}
	return 0, err
}

func (m *machine) outcome(ctx context.Context, status int, err error) (int, error) {
	code, ok := job.ExitCode(status)
	if ok && err == nil && code != job.SetupFailed {
		return code, nil
	}
	cause := context.Cause(ctx)
	switch {
	case errors.Is(cause, errPowerCut):
		return 0, errPowerCut
	case cause != nil:
		err = fmt.Errorf("guest stopped: %w", cause)
	case ok && err == nil:
		err = ErrSetup
	case err == nil:
		err = fmt.Errorf("%w (%s ended with status %d)", ErrNoReport, qemu, status)
	}
	if text := m.console.String(); text != "" {
		err = fmt.Errorf("%w; console:\n%s", err, text)
	}
	return 0, err
}

// links are sockets to QEMU, which inherits the other ends.
type links struct {
	ours   []net.Conn
	theirs []*os.File
	err    error
}

func (l *links) dial() net.Conn {
	if l.err != nil {
		return nil
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		l.err = os.NewSyscallError("socketpair", err)
		return nil
	}
	l.theirs = append(l.theirs, os.NewFile(uintptr(fds[1]), "guest"))
	f := os.NewFile(uintptr(fds[0]), "host")
	defer f.Close() // FileConn holds a copy
	conn, err := net.FileConn(f)
	if err != nil {
		l.err = err
		return nil
	}
	l.ours = append(l.ours, conn)
	return conn
}

func (l *links) closeTheirs() {
	for _, f := range l.theirs {
		f.Close()
	}
	l.theirs = nil
}

func (l *links) close() {
	l.closeTheirs()
	for _, c := range l.ours {
		c.Close()
	}
}
