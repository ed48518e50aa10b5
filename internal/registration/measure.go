package registration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/endpoint"
	"github.com/culvert-io/culvert/rdma"
)

// A Result is one method on one adapter and GPU.
type Result struct {
	Method rdma.Method `json:"method"`
	// Rate is that of writes of 1 MiB into GPU memory, from the post until the GPU sees the
	// bytes; 0 if the method does not work.
	Rate     float64       `json:"bytes_per_second,omitempty"`
	Register time.Duration `json:"register_ns,omitempty"` // of the memory
	Refused  string        `json:"refused,omitempty"`     // why it does not work, and the fix
}

const (
	message = 1 << 20
	region  = 8 * message
	rounds  = 4 // over the region; the best counts
)

// Measure measures all methods, in the built-in order, on a device that sends to itself. A
// method that does not deliver the right bytes is refused.
func Measure(ctx context.Context, dev rdma.Device, g gpu.Device) (results []Result, err error) {
	l, err := newLoop(ctx, dev)
	if err != nil {
		return nil, fmt.Errorf("measure registrations on %s of %s: %w", dev.Info().Name, dev.Provider(), err)
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	for _, m := range append(rdma.DirectMethods(), rdma.Staging) {
		r, err := l.measure(ctx, g, m)
		if err != nil {
			return nil, fmt.Errorf("measure %s on %s of %s: %w", m, dev.Info().Name, dev.Provider(), err)
		}
		results = append(results, r)
	}
	return results, nil
}

// measure measures one method. Memory that cannot be registered is a result, not an error.
func (l *loop) measure(ctx context.Context, g gpu.Device, m rdma.Method) (res Result, err error) {
	res.Method = m
	a, err := g.Alloc(gpu.KindDevice, region, 0)
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, g.Free(a)) }()
	start := time.Now()
	r, err := rdma.RegisterGPU(l.PD, g, a, region, rdma.LocalWrite|rdma.RemoteWrite, rdma.GPUOptions{Methods: []rdma.Method{m}})
	if ge, ok := errors.AsType[*rdma.GPUError](err); ok {
		res.Refused = fmt.Sprintf("%s (fix: %s)", ge.Refused[0].Cause, ge.Refused[0].Fix)
		return res, nil
	}
	if err != nil {
		return res, err
	}
	res.Register = time.Since(start)
	defer func() { err = errors.Join(err, r.Close()) }()
	best := time.Duration(1 << 62)
	for range rounds {
		took, err := l.fill(ctx, r)
		if err != nil {
			return res, err
		}
		best = min(best, took)
	}
	got := make([]byte, region)
	if err := g.CopyOut(got, a); err != nil {
		return res, err
	}
	if !bytes.Equal(got, l.Mem.Bytes) {
		res.Refused = "the GPU has other bytes than those that were sent (fix: look into dmesg, and do not use this method)"
		return res, nil
	}
	res.Rate = region / max(best, 1).Seconds()
	return res, nil
}

// A loop is a device connected with itself, and host memory to send.
type loop struct {
	*endpoint.Endpoint
	back rdma.QP // the other end
}

func newLoop(ctx context.Context, dev rdma.Device) (*loop, error) {
	e, err := endpoint.New(dev, endpoint.Config{Completions: 4 * region / message, Bytes: region, Access: rdma.LocalWrite})
	if err != nil {
		return nil, err
	}
	l := &loop{Endpoint: e}
	for i := range l.Mem.Bytes {
		l.Mem.Bytes[i] = byte(i>>12) ^ byte(i)*7
	}
	if l.back, err = l.Pair(rdma.QPCaps{}); err == nil {
		err = l.connect(ctx, dev)
	}
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

func (l *loop) connect(ctx context.Context, dev rdma.Device) error {
	x, y := net.Pipe()
	defer x.Close()
	defer y.Close()
	done := make(chan error, 1)
	go func() {
		_, err := rdma.Establish(ctx, y, dev, l.back, rdma.Options{})
		if err != nil {
			y.Close()
		}
		done <- err
	}()
	_, err := rdma.Establish(ctx, x, dev, l.QP, rdma.Options{})
	if err != nil {
		x.Close()
	}
	return errors.Join(err, <-done)
}

// fill writes the region once, and returns when the GPU sees the bytes.
func (l *loop) fill(ctx context.Context, r *rdma.GPURegion) (time.Duration, error) {
	start := time.Now()
	for off := uint64(0); off < region; off += message {
		err := rdma.Post(l.QP, rdma.SendWR{
			ID: off, Op: rdma.OpWrite, Flags: rdma.Signaled, SGE: l.SGE(int(off), message), RemoteAddr: r.Addr() + off, RKey: r.RKey(),
		})
		if err != nil {
			return 0, err
		}
	}
	for range region / message {
		wc, err := rdma.One(ctx, l.CQ)
		if err != nil {
			return 0, err
		}
		if err := r.Arrived(wc.ID, message); err != nil {
			return 0, err
		}
	}
	return time.Since(start), nil
}
