package hold

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/tensor"
)

// waitAnswer is how long a client waits for a holder, which may be loading yet.
const waitAnswer = 5 * time.Minute

// An Attached model lies in memory that was mapped from a holder, or copied.
type Attached struct {
	Model
	Share Share

	buffers []buffer
}

// Attach gets the model that is held at path.
func Attach(ctx context.Context, path string, gpus GPUs) (*Attached, error) {
	a, files, err := fetch(ctx, path)
	defer closeAll(files)
	if err != nil {
		return nil, fmt.Errorf("attach to %s: %w", path, err)
	}
	m := &Attached{Model: Model{Name: a.Model, Metadata: a.Metadata}, Share: a.Share}
	if err := m.take(a, files, gpus); err != nil {
		return nil, errors.Join(fmt.Errorf("attach to %s: %w", path, err), m.Close())
	}
	return m, nil
}

// fetch asks for the model. The files are the caller's even if it fails.
func fetch(ctx context.Context, path string) (*answer, []*os.File, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", path)
	if errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.ENOENT) {
		return nil, nil, fmt.Errorf("nobody holds a model there (start one with: culvert load MODEL gpu:0 --hold %s): %w", path, err)
	}
	if err != nil {
		return nil, nil, err
	}
	c := conn.(*net.UnixConn)
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	a, files, err := ask(c)
	if err != nil && ctx.Err() != nil {
		err = ctx.Err() // that is why the connection failed
	}
	return a, files, err
}

// ask makes the exchange over a connection.
func ask(c *net.UnixConn) (*answer, []*os.File, error) {
	if err := c.SetDeadline(time.Now().Add(waitAnswer)); err != nil {
		return nil, nil, err
	}
	if err := send(c, hello{protocol, Version}, nil); err != nil {
		return nil, nil, err
	}
	var a answer
	files, err := receive(c, &a, maxAnswer)
	switch {
	case err != nil:
		err = fmt.Errorf("reading the answer: %w", err)
	case a.Error != "":
		err = fmt.Errorf("the holder says: %s", a.Error)
	default:
		if err = a.hello.check("the holder"); err == nil {
			err = a.check(len(files))
		}
	}
	return &a, files, err
}

// take maps or copies the buffers and places the tensors in them.
func (m *Attached) take(a *answer, files []*os.File, gpus GPUs) error {
	infos, err := gpus.Devices()
	if err != nil {
		return err
	}
	spans := make([]gpu.Span, len(a.Buffers))
	for i, b := range a.Buffers {
		n := find(infos, b.GPU)
		if n < 0 {
			return fmt.Errorf("the model is on %s, which this process does not see: it sees %s", b.GPU, names(infos))
		}
		dev, err := gpus.Device(n)
		if err != nil {
			return err
		}
		base, err := takeBuffer(dev, files[i], b.Size, a.Share)
		if err != nil {
			return fmt.Errorf("%d bytes of gpu:%d: %w", b.Size, n, err)
		}
		m.buffers = append(m.buffers, buffer{dev, base, b.Size})
		spans[i] = gpu.Span{Dev: n, Base: base, Len: b.Size}
	}
	m.Tensors = make([]tensor.Tensor, len(a.Tensors))
	for i, t := range a.Tensors {
		m.Tensors[i] = tensor.Tensor{Name: t.Name, Dtype: t.Dtype, Shape: t.Shape, Span: spans[t.Buffer].Slice(t.Off, t.Len)}
	}
	return nil
}

func takeBuffer(dev gpu.Device, f *os.File, size uint64, share Share) (gpu.Addr, error) {
	if share == ByCopy {
		return copyIn(dev, f, size)
	}
	return dev.Import(f, size)
}

// find is the number of a GPU among those that are seen, or -1.
func find(infos []gpu.Info, id gpu.UUID) int {
	for _, info := range infos {
		if info.UUID == id {
			return info.Index
		}
	}
	return -1
}

func names(infos []gpu.Info) string {
	s := "none"
	for i, info := range infos {
		if i == 0 {
			s = ""
		} else {
			s += ", "
		}
		s += fmt.Sprintf("%s %s", info.Name, info.UUID)
	}
	return s
}

// Close unmaps the memory. The holder and other clients keep theirs.
func (m *Attached) Close() error {
	var errs []error
	for _, b := range m.buffers {
		errs = append(errs, b.dev.Free(b.base))
	}
	m.buffers = nil
	return errors.Join(errs...)
}
