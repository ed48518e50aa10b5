package cufileapi

import (
	"errors"
	"fmt"
	"sync"

	"github.com/culvert-io/culvert/clib/internal/cmem"
	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/internal/rm"
)

// bars are the sizes of BAR1 in KiB by GPU, asked for once.
type bars struct {
	mu sync.Mutex
	kb []uint64
}

// barKB is the size of BAR1 of a GPU.
func (a *API) barKB(gpu int32) (uint64, error) {
	a.bars.mu.Lock()
	defer a.bars.mu.Unlock()
	if a.bars.kb == nil {
		if err := a.bars.ask(a); err != nil {
			return 0, err
		}
	}
	if gpu < 0 || int(gpu) >= len(a.bars.kb) {
		return 0, &cufile.Error{Op: "size of BAR1", Object: fmt.Sprintf("gpu:%d", gpu), Code: cufile.InvalidValue, Err: fmt.Errorf("there are %d GPUs", len(a.bars.kb))}
	}
	return a.bars.kb[gpu], nil
}

// ask asks the kernel driver.
func (b *bars) ask(a *API) (err error) {
	m, err := a.open()
	if err != nil {
		return &cufile.Error{Op: "open", Object: "machine", Code: cufile.CUDADriverError, Err: err}
	}
	infos, err := m.GPU.Devices()
	if err != nil {
		return &cufile.Error{Op: "list", Object: "GPUs", Code: cufile.CUDADriverError, Err: err}
	}
	client, err := rm.Open(dev.Of(m))
	if err != nil {
		return &cufile.Error{Op: "ask for", Object: "BAR1", Code: cufile.PlatformNotSupported, Err: err}
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	cards, err := client.Cards()
	if err != nil {
		return &cufile.Error{Op: "ask for", Object: "BAR1", Code: cufile.PlatformNotSupported, Err: err}
	}
	kb := make([]uint64, len(infos))
	for _, c := range cards {
		for i, info := range infos {
			if info.PCI == c.PCI {
				kb[i] = c.BAR1 >> 10
			}
		}
	}
	b.kb = kb
	return nil
}

// GetBARSizeInKB is cuFileGetBARSizeInKB.
func (a *API) GetBARSizeInKB(gpu int32, out cmem.Ptr) error {
	kb, err := a.barKB(gpu)
	if err != nil {
		return err
	}
	cmem.Store(out, kb)
	return nil
}
