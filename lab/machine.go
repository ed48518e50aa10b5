package lab

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/lab/internal/job"
	"github.com/culvert-io/culvert/lab/internal/qmp"
)

const qemu = "qemu-system-x86_64"

// errPowerCut ends a boot that the guest asked to have cut short.
var errPowerCut = errors.New("power cut")

// unplugTimeout is generous: a guest that polls its slots needs seconds.
const unplugTimeout = 30 * time.Second

// A machine is one boot of a guest.
type machine struct {
	args    []string
	command Command

	console tail
	stop    context.CancelCauseFunc
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
	pass := func(w io.Writer, r net.Conn) { streams.Go(func() { copyAll(w, r) }) }
	pass(orDiscard(m.command.Stdout), stdout)
	pass(orDiscard(m.command.Stderr), stderr)
	if console != nil {
		pass(m.consoleWriter(), console)
	}
	streams.Go(func() { m.serve(ctx, control, monitor) })

	status, err := m.process(ctx, &links)
	// QEMU's ends are closed now: the streams drain and end.
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

// copyAll passes a stream on, and goes on reading when the writer fails: a
// full stream would stop the guest.
func copyAll(w io.Writer, r io.Reader) {
	io.Copy(w, r)
	io.Copy(io.Discard, r)
}

// process runs QEMU and returns its exit status. It stays on one thread,
// because the kernel kills the child when the thread that started it ends.
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
	if code, ok := job.ExitCode(status); ok && err == nil {
		return code, nil
	}
	cause := context.Cause(ctx)
	switch {
	case errors.Is(cause, errPowerCut):
		return 0, errPowerCut
	case cause != nil:
		err = fmt.Errorf("guest stopped: %w", cause)
	case err == nil:
		err = fmt.Errorf("%w (%s ended with status %d)", ErrNoReport, qemu, status)
	}
	if text := m.console.String(); text != "" {
		err = fmt.Errorf("%w; its console ended with:\n%s", err, text)
	}
	return 0, err
}

// serve answers the requests of the guest until it ends.
func (m *machine) serve(ctx context.Context, control, monitor net.Conn) {
	client, err := qmp.New(ctx, monitor)
	if err != nil {
		client = nil // QEMU did not start; its exit says why
	} else {
		defer client.Close()
	}
	sc := bufio.NewScanner(control)
	for sc.Scan() {
		answer := "ok"
		if err := m.request(ctx, client, sc.Text()); err != nil {
			answer = strings.ReplaceAll(err.Error(), "\n", " ")
		}
		fmt.Fprintln(control, answer)
	}
}

func (m *machine) request(ctx context.Context, client *qmp.Client, line string) error {
	verb, arg, _ := strings.Cut(line, " ")
	switch {
	case verb == "powercut":
		m.stop(errPowerCut)
		<-ctx.Done()
		return nil
	case verb == "unplug" && client != nil:
		return unplug(ctx, client, arg)
	}
	return fmt.Errorf("unknown request %q", line)
}

// unplug waits until the guest's kernel has let go of the device.
func unplug(ctx context.Context, client *qmp.Client, id string) error {
	ctx, cancel := context.WithTimeout(ctx, unplugTimeout)
	defer cancel()
	if _, err := client.Execute(ctx, "device_del", map[string]string{"id": id}); err != nil {
		return err
	}
	_, err := client.Await(ctx, func(e qmp.Event) bool {
		var data struct{ Device string }
		return e.Name == "DEVICE_DELETED" && json.Unmarshal(e.Data, &data) == nil && data.Device == id
	})
	return err
}

// links are the sockets between us and QEMU, which inherits its ends.
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
