package nvme

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/route"
)

// A Source is a range of a namespace as one end of transfers, for
// [github.com/culvert-io/culvert/cufile.Driver.RegisterSource]. The drive itself moves
// whole blocks to and from registered GPU memory (route nvme); ReadAt and WriteAt move
// any range through host memory. It is safe for concurrent use.
type Source struct {
	ns    *Namespace
	name  string
	first uint64 // block
	size  int64

	mu    sync.Mutex
	maps  map[gpu.Addr]mappedBuffer // by base
	spare []*Buffer                 // host memory of stageSize bytes
	edge  sync.Mutex                // held while a part of a block is written
}

type mappedBuffer struct {
	*Buffer
	dev gpu.Device
}

// SourceOptions choose the range of a Source in bytes. Both are multiples of the
// block size.
type SourceOptions struct {
	Name   string // for messages; "" means the controller's name and the namespace
	Offset int64
	Size   int64 // 0 means to the end of the namespace
}

// stageSize is how much goes through host memory at a time.
const stageSize = 1 << 20

// NewSource makes a source of a namespace. Close it before the controller.
func NewSource(ns *Namespace, o SourceOptions) (*Source, error) {
	all := int64(ns.blocks << ns.shift)
	if o.Name == "" {
		o.Name = fmt.Sprintf("%s namespace %d", ns.c.Name(), ns.id)
	}
	if o.Offset < 0 || o.Offset > all || o.Size < 0 || o.Size > all-o.Offset {
		return nil, fmt.Errorf("nvme %s: %d bytes at offset %d exceed the namespace of %d bytes", o.Name, o.Size, o.Offset, all)
	}
	o.Size = cmp.Or(o.Size, all-o.Offset)
	if (o.Offset|o.Size)%int64(ns.BlockSize()) != 0 {
		return nil, fmt.Errorf("nvme %s: offset %d and size %d must be multiples of the block size, %d", o.Name, o.Offset, o.Size, ns.BlockSize())
	}
	return &Source{ns: ns, name: o.Name, first: uint64(o.Offset) >> ns.shift, size: o.Size, maps: map[gpu.Addr]mappedBuffer{}}, nil
}

// Name is what messages call it.
func (s *Source) Name() string { return s.name }

// Size is the number of bytes.
func (s *Source) Size() (int64, error) { return s.size, nil }

// Route is route.NVMe.
func (s *Source) Route() route.ID { return route.NVMe }

// Path names the drive.
func (s *Source) Path() string {
	return fmt.Sprintf("nvme %s %s namespace %d", s.ns.c.Name(), s.ns.c.info.Serial, s.ns.id)
}

// Alignment is the block size, and the unit of memory addresses in commands.
func (s *Source) Alignment() (block, memory uint64) { return uint64(s.ns.BlockSize()), 4 }

// Map maps the whole pages of 64 KiB in a buffer for the drive.
func (s *Source) Map(dev gpu.Device, buf gpu.Span) (gpu.Span, error) {
	from := (uint64(buf.Addr()) + gpuPage - 1) &^ (gpuPage - 1)
	to := (uint64(buf.Addr()) + buf.Len) &^ (gpuPage - 1)
	if from >= to {
		return gpu.Span{}, fmt.Errorf("nvme %s: map %v: it contains no whole page of %d bytes (fix: register a larger buffer)", s.name, buf, gpuPage)
	}
	b, err := s.ns.c.MapGPU(dev, buf.Slice(from-uint64(buf.Addr()), to-from))
	if err != nil {
		return gpu.Span{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.maps[buf.Base] = mappedBuffer{b, dev}
	return b.Span(), nil
}

// Unmap is the inverse of Map. Memory that was freed is unmapped already.
func (s *Source) Unmap(buf gpu.Span) error {
	s.mu.Lock()
	m, ok := s.maps[buf.Base]
	delete(s.maps, buf.Base)
	s.mu.Unlock()
	if !ok {
		return nil
	}
	if err := m.Close(); !errors.Is(err, ErrRevoked) {
		return err
	}
	return nil
}

// Move has the drive move whole blocks to or from mapped GPU memory.
func (s *Source) Move(ctx context.Context, dir route.Dir, mem gpu.Span, off int64) (int64, error) {
	s.mu.Lock()
	m, ok := s.maps[mem.Base]
	s.mu.Unlock()
	switch {
	case !ok: // Read and Write check the range
		return 0, fmt.Errorf("nvme %s: %v is not mapped", s.name, mem)
	case (uint64(off)|mem.Len)%uint64(s.ns.BlockSize()) != 0 || off < 0 || int64(mem.Len) > s.size-off:
		return 0, fmt.Errorf("nvme %s: %d bytes at offset %d are not whole blocks of it", s.name, mem.Len, off)
	case mem.Len == 0:
		return 0, nil
	}
	at, lba, blocks := uint64(mem.Addr()-m.span.Addr()), s.lba(off), mem.Len>>s.ns.shift
	if dir == route.Write {
		if err := s.ns.Write(ctx, m.Buffer, at, lba, blocks); err != nil {
			return 0, err
		}
		return int64(mem.Len), nil
	}
	if err := s.ns.Read(ctx, m.Buffer, at, lba, blocks); err != nil {
		return 0, err
	}
	if err := m.dev.FlushWrites(gpu.ScopeOwner); err != nil && !errors.Is(err, gpu.ErrNotSupported) {
		return 0, err
	}
	return int64(mem.Len), nil
}

func (s *Source) lba(off int64) uint64 { return s.first + uint64(off)>>s.ns.shift }

// ReadAt reads any range through host memory.
func (s *Source) ReadAt(p []byte, off int64) (int, error) {
	return s.through(p, off, func(c blockRange, b *Buffer, p []byte) error {
		if err := s.ns.Read(context.Background(), b, 0, c.lba, c.blocks); err != nil {
			return err
		}
		copy(p, b.host[c.skip:])
		return nil
	})
}

// WriteAt writes any range through host memory. Of the first and the last block it reads
// what it leaves alone.
func (s *Source) WriteAt(p []byte, off int64) (int, error) {
	n, err := s.through(p, off, s.put)
	if err == io.EOF {
		err = fmt.Errorf("nvme %s: write at offset %d exceeds its %d bytes: %w", s.name, off, s.size, io.ErrShortWrite)
	}
	return n, err
}

func (s *Source) put(c blockRange, b *Buffer, p []byte) error {
	ctx, bs := context.Background(), uint64(s.ns.BlockSize())
	end := c.skip + uint64(len(p))
	if c.skip != 0 || end%bs != 0 {
		s.edge.Lock()
		defer s.edge.Unlock()
		if err := s.ns.Read(ctx, b, 0, c.lba, 1); err != nil {
			return err
		}
		if last := c.blocks - 1; last > 0 {
			if err := s.ns.Read(ctx, b, last*bs, c.lba+last, 1); err != nil {
				return err
			}
		}
	}
	copy(b.host[c.skip:], p)
	return s.ns.Write(ctx, b, 0, c.lba, c.blocks)
}

// A blockRange is the blocks that contain a range, which begins skip bytes behind them.
type blockRange struct{ lba, blocks, skip uint64 }

// through moves a range in parts that fit into a buffer of host memory.
func (s *Source) through(p []byte, off int64, move func(blockRange, *Buffer, []byte) error) (done int, err error) {
	if off < 0 {
		return 0, fmt.Errorf("nvme %s: negative offset %d", s.name, off)
	}
	want := p
	p = p[:max(0, min(int64(len(p)), s.size-off))]
	b, err := s.stage()
	if err != nil {
		return 0, err
	}
	defer s.unstage(b)
	bs := int64(s.ns.BlockSize())
	for done < len(p) {
		at := off + int64(done)
		skip := at % bs
		n := min(int64(len(p)-done), stageSize-skip)
		c := blockRange{s.lba(at), uint64((skip + n + bs - 1) / bs), uint64(skip)}
		if err := move(c, b, p[done:done+int(n)]); err != nil {
			return done, err
		}
		done += int(n)
	}
	if done < len(want) {
		return done, io.EOF
	}
	return done, nil
}

func (s *Source) stage() (*Buffer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.spare); n > 0 {
		b := s.spare[n-1]
		s.spare = s.spare[:n-1]
		return b, nil
	}
	return s.ns.c.AllocHost(stageSize)
}

func (s *Source) unstage(b *Buffer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.spare = append(s.spare, b)
}

// Sync makes completed writes durable.
func (s *Source) Sync() error { return s.ns.Flush(context.Background()) }

// Close unmaps and frees memory. No transfer may be in flight.
func (s *Source) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, m := range s.maps {
		if err := m.Close(); !errors.Is(err, ErrRevoked) {
			errs = append(errs, err)
		}
	}
	for _, b := range s.spare {
		errs = append(errs, b.Close())
	}
	s.maps, s.spare = map[gpu.Addr]mappedBuffer{}, nil
	return errors.Join(errs...)
}
