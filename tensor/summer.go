package tensor

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/gpu/kernels"
)

// A summer computes CRC-32C of device memory where it lies, so that what is
// checked is what arrived, and nothing goes back over the bus.
type summer struct {
	dev    gpu.Device
	module gpu.Module
	fn     gpu.Func

	mu     sync.Mutex // one sum at a time: the word is shared
	stream gpu.Stream
	word   gpu.Addr
}

func newSummer(dev gpu.Device) (*summer, error) {
	s := &summer{dev: dev}
	err := s.open()
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *summer) open() (err error) {
	if s.module, err = s.dev.Load(kernels.PTX); err != nil {
		return fmt.Errorf("loading kernels: %w", err)
	}
	if s.fn, err = s.module.Func("culvert_crc32c"); err != nil {
		return err
	}
	if s.stream, err = s.dev.NewStream(); err != nil {
		return err
	}
	s.word, err = s.dev.Alloc(gpu.KindDevice, 4, 0)
	return err
}

// Threads of a launch: a stretch of a few hundred bytes for each keeps a GPU
// busy without spending more on joining the sums than on computing them.
const (
	sumBlock   = 256
	sumStretch = 512
	sumGrid    = 1024
)

func (s *summer) sum(span gpu.Span) (Sum, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.stream.Fill(s.word, 0, 4, 1); err != nil {
		return 0, err
	}
	grid := min(span.Len/(sumBlock*sumStretch)+1, sumGrid)
	if err := s.stream.Launch(s.fn, gpu.Dim{X: uint32(grid)}, gpu.Dim{X: sumBlock}, span.Addr(), span.Len, s.word); err != nil {
		return 0, err
	}
	if err := s.stream.Synchronize(); err != nil {
		return 0, err
	}
	var word [4]byte
	if err := s.dev.CopyOut(word[:], s.word); err != nil {
		return 0, err
	}
	return Sum(binary.LittleEndian.Uint32(word[:])), nil
}

func (s *summer) close() error {
	var errs []error
	if s.stream != nil {
		errs = append(errs, s.stream.Close())
	}
	if s.word != 0 {
		errs = append(errs, s.dev.Free(s.word))
	}
	if s.module != nil {
		errs = append(errs, s.module.Close())
	}
	return errors.Join(errs...)
}
