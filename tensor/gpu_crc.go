package tensor

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/gpu/kernels"
)

// Sums keeps what GPUs need to compute checksums from one load to the next:
// loading a kernel takes longer than using it. The zero value is ready.
type Sums struct {
	mu     sync.Mutex
	idle   []*gpuCRC
	closed bool
}

// take lends a gpuCRC of a device.
func (s *Sums) take(dev gpu.Device) (*gpuCRC, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, m := range s.idle {
		if m.dev == dev {
			s.idle = append(s.idle[:i], s.idle[i+1:]...)
			return m, nil
		}
	}
	return newGPUCRC(dev)
}

// give takes a gpuCRC back, or ends it where nobody will ask for it again.
func (s *Sums) give(m *gpuCRC) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return m.close()
	}
	s.idle = append(s.idle, m)
	return nil
}

// Close gives everything back to the GPUs. Loads may still run; they give back
// what they have when they end.
func (s *Sums) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	var errs []error
	for _, m := range s.idle {
		errs = append(errs, m.close())
	}
	s.idle = nil
	return errors.Join(errs...)
}

// A gpuCRC computes CRC-32C of device memory where it lies, so that what is
// checked is what arrived, and nothing goes back over the bus.
type gpuCRC struct {
	dev    gpu.Device
	module gpu.Module
	fn     gpu.Func
	stream gpu.Stream
	words  gpu.Addr // of the sums, on the device
	host   gpu.Addr // and where they go
}

func newGPUCRC(dev gpu.Device) (*gpuCRC, error) {
	s := &gpuCRC{dev: dev}
	err := s.open()
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *gpuCRC) open() (err error) {
	if s.module, err = s.dev.Load(kernels.PTX); err != nil {
		return fmt.Errorf("loading kernels: %w", err)
	}
	if s.fn, err = s.module.Func("culvert_crc32c"); err != nil {
		return err
	}
	if s.stream, err = s.dev.NewStream(); err != nil {
		return err
	}
	if s.words, err = s.dev.Alloc(gpu.KindDevice, 4*maxSums, 0); err != nil {
		return err
	}
	s.host, err = s.dev.Alloc(gpu.KindHost, 4*maxSums, 0)
	return err
}

const (
	// maxSums is how many sums are computed at a time.
	maxSums = 1024

	// Threads of a launch: a stretch of some thousand bytes for each keeps a GPU
	// busy without spending more on joining the sums than on computing them.
	sumBlock   = 256
	sumStretch = 2048
	sumGrid    = 1024

	// nap is how long to wait before asking whether sums are there. Waiting in
	// the driver would take a core from those who read.
	nap = 200 * time.Microsecond
)

// sum fills in the sums of at most maxSums stretches.
func (s *gpuCRC) sum(ctx context.Context, list []arrival) error {
	err := s.launch(list)
	if err == nil {
		err = s.wait(ctx)
	}
	if err != nil {
		return errors.Join(err, s.stream.Synchronize())
	}
	words := gpu.HostBytes(s.host, uint64(4*len(list)))
	for i := range list {
		list[i].sum = Sum(binary.LittleEndian.Uint32(words[4*i:]))
	}
	return nil
}

func (s *gpuCRC) launch(list []arrival) error {
	if err := s.stream.Fill(s.words, 0, 4, uint64(len(list))); err != nil {
		return err
	}
	for i := range list {
		span := list[i].span
		grid := min(span.Len/(sumBlock*sumStretch)+1, sumGrid)
		err := s.stream.Launch(s.fn, gpu.Dim{X: uint32(grid)}, gpu.Dim{X: sumBlock}, span.Addr(), span.Len, s.words+gpu.Addr(4*i))
		if err != nil {
			return err
		}
	}
	return s.stream.Copy(s.host, s.words, uint64(4*len(list)))
}

func (s *gpuCRC) wait(ctx context.Context) error {
	for {
		if done, err := s.stream.Done(); done || err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		time.Sleep(nap)
	}
}

func (s *gpuCRC) close() error {
	var errs []error
	if s.stream != nil {
		errs = append(errs, s.stream.Close())
	}
	for _, a := range []gpu.Addr{s.words, s.host} {
		if a != 0 {
			errs = append(errs, s.dev.Free(a))
		}
	}
	if s.module != nil {
		errs = append(errs, s.module.Close())
	}
	return errors.Join(errs...)
}
