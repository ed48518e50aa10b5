package lab

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"

	"github.com/culvert-io/culvert/lab/internal/job"
)

// serve answers the requests of the guest until it ends.
func (m *machine) serve(ctx context.Context, requests, qmp net.Conn) {
	defer qmp.Close()
	qemu, err := openMonitor(qmp)
	if err != nil {
		return // QEMU did not start; its exit status is the error
	}
	sc := bufio.NewScanner(requests)
	for sc.Scan() {
		answer := job.OK
		if err := m.request(ctx, qemu, sc.Text()); err != nil {
			answer = strings.ReplaceAll(err.Error(), "\n", " ")
		}
		fmt.Fprintln(requests, answer)
	}
}

func (m *machine) request(ctx context.Context, qemu *monitor, line string) error {
	verb, args, _ := strings.Cut(line, " ")
	switch verb {
	case job.PowerCut:
		m.stop(errPowerCut)
		return nil
	case job.Unplug:
		return qemu.unplug(args)
	case job.Drain:
		var stdout, stderr int64
		if _, err := fmt.Sscan(args, &stdout, &stderr); err != nil {
			return err
		}
		return m.drain(ctx, stdout, stderr)
	}
	return fmt.Errorf("unknown request %q", line)
}

// drain waits until the guest's output, so many bytes, has been passed on.
func (m *machine) drain(ctx context.Context, stdout, stderr int64) error {
	if err := m.stdout.reach(ctx, stdout); err != nil {
		return err
	}
	return m.stderr.reach(ctx, stderr)
}

// A counter counts the bytes that it writes. It never fails: an unread stream would
// stop the guest.
type counter struct {
	w io.Writer

	mu      sync.Mutex
	n       int64
	changed chan struct{} // closed when n grows; nil if nothing waits
}

func (c *counter) Write(p []byte) (int, error) {
	c.w.Write(p)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n += int64(len(p))
	if c.changed != nil {
		close(c.changed)
		c.changed = nil
	}
	return len(p), nil
}

// reach waits until n bytes have passed.
func (c *counter) reach(ctx context.Context, n int64) error {
	for {
		c.mu.Lock()
		have := c.n
		if c.changed == nil {
			c.changed = make(chan struct{})
		}
		changed := c.changed
		c.mu.Unlock()
		if have >= n {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
