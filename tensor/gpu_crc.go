package tensor

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/gpu/kernels"
)

// Sums keeps what GPUs need to compute checksums from one load to the next:
// loading a kernel takes longer than using it. The zero value is ready for use.
type Sums struct {
	mu     sync.Mutex
	idle   []*gpuCRC
	closed bool
}

func (s *Sums) take(dev gpu.Device) (*gpuCRC, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.IndexFunc(s.idle, func(c *gpuCRC) bool { return c.dev == dev }); i >= 0 {
		c := s.idle[i]
		s.idle = slices.Delete(s.idle, i, i+1)
		return c, nil
	}
	return newGPUCRC(dev)
}

func (s *Sums) put(c *gpuCRC) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return c.close()
	}
	s.idle = append(s.idle, c)
	return nil
}

// Close frees all GPU resources. Those of running loads are freed when the loads
// end.
func (s *Sums) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	var errs []error
	for _, c := range s.idle {
		errs = append(errs, c.close())
	}
	s.idle = nil
	return errors.Join(errs...)
}

// A gpuCRC computes CRC-32C of device memory on the GPU: it checks the bytes that
// arrived, and only sums go back over the bus.
type gpuCRC struct {
	dev    gpu.Device
	module gpu.Module
	fn     gpu.Func
	stream gpu.Stream
	words  gpu.Addr // of the sums, on the device
	host   gpu.Addr // of their copy
}

func newGPUCRC(dev gpu.Device) (*gpuCRC, error) {
	c := &gpuCRC{dev: dev}
	if err := c.open(); err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

func (c *gpuCRC) open() (err error) {
	if c.module, err = c.dev.Load(kernels.PTX); err != nil {
		return fmt.Errorf("load kernels: %w", err)
	}
	if c.fn, err = c.module.Func("culvert_crc32c"); err != nil {
		return err
	}
	if c.stream, err = c.dev.NewStream(); err != nil {
		return err
	}
	if c.words, err = c.dev.Alloc(gpu.KindDevice, 4*maxSums, 0); err != nil {
		return err
	}
	c.host, err = c.dev.Alloc(gpu.KindHost, 4*maxSums, 0)
	return err
}

const (
	// maxSums is how many sums are computed at a time.
	maxSums = 1024

	// 2 KiB per thread keep a GPU busy without spending more on joining sums than
	// on computing them.
	sumBlock   = 256
	sumStretch = 2048
	sumGrid    = 1024

	// sumPoll is how often to ask whether sums are there. Waiting in the driver
	// would take a CPU from the readers.
	sumPoll = 200 * time.Microsecond
)

// sum fills in the sums of at most maxSums stretches.
func (c *gpuCRC) sum(ctx context.Context, list []arrival) error {
	err := c.launch(list)
	if err == nil {
		err = c.wait(ctx)
	}
	if err != nil {
		return errors.Join(err, c.stream.Synchronize())
	}
	words := gpu.HostBytes(c.host, uint64(4*len(list)))
	for i := range list {
		list[i].sum = Sum(binary.LittleEndian.Uint32(words[4*i:]))
	}
	return nil
}

func (c *gpuCRC) launch(list []arrival) error {
	if err := c.stream.Fill(c.words, 0, 4, uint64(len(list))); err != nil {
		return err
	}
	for i := range list {
		span := list[i].span
		grid := min(span.Len/(sumBlock*sumStretch)+1, sumGrid)
		err := c.stream.Launch(c.fn, gpu.Dim{X: uint32(grid)}, gpu.Dim{X: sumBlock}, span.Addr(), span.Len, c.words+gpu.Addr(4*i))
		if err != nil {
			return err
		}
	}
	return c.stream.Copy(c.host, c.words, uint64(4*len(list)))
}

func (c *gpuCRC) wait(ctx context.Context) error {
	for {
		if done, err := c.stream.Done(); done || err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		time.Sleep(sumPoll)
	}
}

func (c *gpuCRC) close() error {
	var errs []error
	if c.stream != nil {
		errs = append(errs, c.stream.Close())
	}
	for _, a := range []gpu.Addr{c.words, c.host} {
		if a != 0 {
			errs = append(errs, c.dev.Free(a))
		}
	}
	if c.module != nil {
		errs = append(errs, c.module.Close())
	}
	return errors.Join(errs...)
}
