package hold

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/tensor"
)

// waitAnswer is how long a client waits for a server, which may still be loading.
const waitAnswer = 5 * time.Minute

// An Attached model is in memory that was mapped from a server, or copied.
type Attached struct {
	Model
	Share Share
	Took  Took

	only    []int    // GPUs; none: all
	buffers []buffer // of other GPUs: without a device
}

// Took is how long the steps of Attach took. List, reading the list of tensors, runs
// concurrently with Map.
type Took struct {
	Connect, Answer, Map, List time.Duration
}

// Attach maps the model that a process of this user serves at path.
func Attach(ctx context.Context, path string, gpus GPUs) (*Attached, error) {
	return AttachFrom(ctx, path, os.Geteuid(), gpus)
}

// AttachFrom maps the model that a process of the user serves at path, or what it has
// on some GPUs: a rank needs its own, and may not see the others.
func AttachFrom(ctx context.Context, path string, uid int, gpus GPUs, only ...int) (*Attached, error) {
	m := &Attached{only: only}
	if err := m.attach(ctx, path, uid, gpus); err != nil {
		return nil, errors.Join(fmt.Errorf("attach to %s: %w", path, err), m.Close())
	}
	return m, nil
}

func (m *Attached) attach(ctx context.Context, path string, uid int, gpus GPUs) error {
	begin := time.Now()
	end := begin.Add(waitAnswer)
	c, err := dial(ctx, path, end)
	if errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("no model is served there (fix: culvert load MODEL gpu:0 --hold %s): %w", path, err)
	}
	if err != nil {
		return err
	}
	m.Took.Connect = time.Since(begin)
	defer c.Close()
	if err := checkServer(c, uid); err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { c.Close() })()
	if err := c.SetDeadline(end); err != nil {
		return err
	}
	err = m.exchange(c, gpus)
	if err != nil && ctx.Err() != nil {
		err = ctx.Err() // the cause of the failed connection
	}
	return err
}

// dial connects. If the queue of a server is full, it waits.
func dial(ctx context.Context, path string, end time.Time) (*net.UnixConn, error) {
	var d net.Dialer
	for {
		conn, err := d.DialContext(ctx, "unix", path)
		if err == nil {
			return conn.(*net.UnixConn), nil
		}
		if !errors.Is(err, unix.EAGAIN) || time.Now().After(end) {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(retryDelay):
		}
	}
}

// exchange requests the model and maps it. It reads the list of tensors meanwhile:
// both take about as long.
func (m *Attached) exchange(c *net.UnixConn, gpus GPUs) error {
	text, err := encode(hello{protocol, Version})
	if err != nil {
		return err
	}
	begin := time.Now()
	if err := send(c, text, nil); err != nil {
		return err
	}
	var h head
	files, err := receive(c, &h, maxAnswer)
	defer closeAll(files)
	if errors.Is(err, unix.ECONNRESET) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("the server ended before it answered: %w", err)
	}
	if err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	if err := h.check(len(files)); err != nil {
		return err
	}
	m.Name, m.Metadata, m.Share = h.Model, h.Metadata, h.Share
	m.Took.Answer = time.Since(begin)
	begin = time.Now()
	mapped := make(chan error, 1)
	go func() {
		err := m.mapBuffers(&h, files, gpus)
		m.Took.Map = time.Since(begin)
		mapped <- err
	}()
	var tensors []wireTensor
	more, err := receive(c, &tensors, maxAnswer)
	closeAll(more) // none are expected
	if err == nil {
		err = checkTensors(tensors, h.Buffers)
	}
	m.Took.List = time.Since(begin)
	if merr := <-mapped; merr != nil || err != nil {
		return cmp.Or(merr, err)
	}
	m.Tensors = make([]tensor.Tensor, 0, len(tensors))
	for _, t := range tensors {
		b := &m.buffers[t.Buffer]
		if b.dev == nil {
			continue
		}
		span := gpu.Span{Dev: b.dev.Info().Index, Base: b.base, Len: b.size}
		m.Tensors = append(m.Tensors, tensor.Tensor{Name: t.Name, Dtype: t.Dtype, Shape: t.Shape, Span: span.Slice(t.Off, t.Len)})
	}
	return nil
}

// mapBuffers maps or copies the buffers.
func (m *Attached) mapBuffers(h *head, files []*os.File, gpus GPUs) error {
	infos, err := gpus.Devices()
	if err != nil {
		return err
	}
	m.buffers = make([]buffer, len(h.Buffers))
	mapped := 0
	for i, b := range h.Buffers {
		n := slices.IndexFunc(infos, func(info gpu.Info) bool { return info.UUID == b.GPU })
		if len(m.only) > 0 && (n < 0 || !slices.Contains(m.only, infos[n].Index)) {
			continue
		}
		if n < 0 {
			return fmt.Errorf("the model is on %s, which this process does not see: it sees %s", b.GPU, names(infos))
		}
		dev, err := gpus.Device(infos[n].Index)
		if err != nil {
			return err
		}
		use := dev.Import
		if h.Share == ByCopy {
			use = func(f *os.File, size uint64) (gpu.Addr, error) { return copyIn(dev, f, size) }
		}
		base, err := use(files[i], b.Size)
		if err != nil {
			return fmt.Errorf("%d bytes of gpu:%d: %w", b.Size, infos[n].Index, err)
		}
		m.buffers[i] = buffer{dev, base, b.Size}
		mapped++
	}
	if mapped == 0 && len(m.only) > 0 {
		return fmt.Errorf("the model has nothing on GPU %v, of those that this process sees: %s", m.only, names(infos))
	}
	return nil
}

func names(infos []gpu.Info) string {
	var list []string
	for _, info := range infos {
		list = append(list, fmt.Sprintf("%s %s", info.Name, info.UUID))
	}
	return cmp.Or(strings.Join(list, ", "), "none")
}

// Close unmaps the memory. The server and other clients keep theirs.
func (m *Attached) Close() error {
	var errs []error
	for _, b := range m.buffers {
		if b.dev != nil {
			errs = append(errs, b.dev.Free(b.base))
		}
	}
	m.buffers = nil
	return errors.Join(errs...)
}
