package cufileapi

import (
	"errors"
	"fmt"

	"github.com/culvert-io/culvert/clib/internal/cmem"
	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/internal/rm"
	"github.com/culvert-io/culvert/machine"
)

// barKB is the size of BAR1 of a GPU.
func (a *API) barKB(gpu int32) (uint64, error) {
	kb, err := a.bars()
	if err != nil {
		return 0, err
	}
	if gpu < 0 || int(gpu) >= len(kb) {
		return 0, &cufile.Error{Op: "get BAR1 size", Object: fmt.Sprintf("gpu:%d", gpu), Code: cufile.InvalidValue, Err: fmt.Errorf("GPU not found: there are %d", len(kb))}
	}
	return kb[gpu], nil
}

// readBars asks the kernel driver.
func (a *API) readBars() (kb []uint64, err error) {
	m, infos, err := a.gpus()
	if err != nil {
		return nil, err
	}
	cards, err := barCards(m)
	if err != nil {
		return nil, &cufile.Error{Op: "get BAR1 size", Object: "GPUs", Code: cufile.PlatformNotSupported, Err: err}
	}
	kb = make([]uint64, len(infos))
	for _, c := range cards {
		for i, info := range infos {
			if info.PCI == c.PCI {
				kb[i] = c.BAR1 >> 10
			}
		}
	}
	return kb, nil
}

func barCards(m *machine.Machine) (cards []rm.Card, err error) {
	client, err := rm.Open(dev.Of(m))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	return client.Cards()
}

// gpus opens the machine and lists its GPUs.
func (a *API) gpus() (*machine.Machine, []gpu.Info, error) {
	m, err := a.open()
	if err != nil {
		return nil, nil, &cufile.Error{Op: "open", Object: "machine", Code: cufile.CUDADriverError, Err: err}
	}
	infos, err := m.GPU.Devices()
	if err != nil {
		return nil, nil, &cufile.Error{Op: "list", Object: "GPUs", Code: cufile.CUDADriverError, Err: err}
	}
	return m, infos, nil
}

// GetBARSizeInKB is cuFileGetBARSizeInKB.
func (a *API) GetBARSizeInKB(gpu int32, out cmem.Ptr) error {
	kb, err := a.barKB(gpu)
	return cmem.Put(out, kb, err)
}
