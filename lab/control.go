package lab

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/culvert-io/culvert/lab/internal/control"
	"github.com/culvert-io/culvert/lab/internal/qmp"
)

// unplugTimeout is generous: a guest that waits for a second press of its
// slot's button needs seconds, and many of them where it gets little time.
const unplugTimeout = 3 * time.Minute

// serve answers the requests of the guest until it ends.
func (m *machine) serve(ctx context.Context, requests, monitor net.Conn) {
	client, err := qmp.New(ctx, monitor)
	if err != nil {
		return // QEMU did not start; its exit says why
	}
	defer client.Close()
	sc := bufio.NewScanner(requests)
	for sc.Scan() {
		answer := control.OK
		if err := m.request(ctx, client, sc.Text()); err != nil {
			answer = strings.ReplaceAll(err.Error(), "\n", " ")
		}
		fmt.Fprintln(requests, answer)
	}
}

func (m *machine) request(ctx context.Context, client *qmp.Client, line string) error {
	verb, args, _ := strings.Cut(line, " ")
	switch verb {
	case control.PowerCut:
		m.stop(errPowerCut)
		return nil
	case control.Unplug:
		return unplug(ctx, client, args)
	case control.Drain:
		var stdout, stderr int64
		if _, err := fmt.Sscan(args, &stdout, &stderr); err != nil {
			return err
		}
		return m.drain(ctx, stdout, stderr)
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

// drain waits until that many bytes of output have been passed on.
func (m *machine) drain(ctx context.Context, stdout, stderr int64) error {
	if err := m.stdout.reach(ctx, stdout); err != nil {
		return err
	}
	return m.stderr.reach(ctx, stderr)
}

// A counter passes bytes on and counts them. It never fails: an unread stream
// would stop the guest.
type counter struct {
	w io.Writer

	mu      sync.Mutex
	n       int64
	changed chan struct{} // closed when n grows; nil while nobody waits
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
