package gdrcopy

import (
	"errors"
	"os"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/internal/rm"
	"github.com/culvert-io/culvert/machine"
)

// bar is the backend without a kernel module: the process is a client of NVIDIA's
// resource manager.
type bar struct{ mapper *rm.Mapper }

func newBAR(d gpu.Device, o dev.OS) (*bar, error) {
	b := &bar{rm.NewMapper(o, d, rm.NoBudget)}
	if err := b.mapper.Probe(); err != nil {
		return nil, errors.Join(err, b.mapper.Close())
	}
	return b, nil
}

func (b *bar) Describe() SessionInfo {
	return SessionInfo{Backend: "BAR1 through the NVIDIA driver", Persistent: true}
}

func (b *bar) Close() error { return b.mapper.Close() }

// Pin maps at once: the mapping keeps the memory. So Map has nothing to do, and Unmap
// keeps the mapping.
func (b *bar) Pin(a gpu.Addr, n uint64) (pinned, error) {
	w, err := b.mapper.Map(a, n)
	if err != nil {
		return nil, err
	}
	return barPin{w}, nil
}

type barPin struct{ w *rm.Mapping }

func (p barPin) Info() Info {
	page := uint64(os.Getpagesize())
	first := uint64(p.w.Base()) &^ (page - 1)
	end := (uint64(p.w.Base()) + uint64(p.w.Len()) + page - 1) &^ (page - 1)
	return Info{VA: gpu.Addr(first), MappedSize: end - first, PageSize: uint32(page), Type: MappingWC}
}

func (p barPin) Map() ([]byte, func() error, error) {
	return p.w.Bytes(), func() error { return nil }, nil
}

// Revoked is never true: the mapping keeps the memory.
func (p barPin) Revoked() (bool, error) { return false, nil }

func (p barPin) Unpin() error { return p.w.Close() }

// Import maps the first n bytes of memory that another process exported
// (gpu.ExportPosixFD) and sent as f. It needs no driver library: with a nil m it
// uses the device nodes of this computer. pci is the GPU's address as in gpu.Info.
// The buffer is mapped and has a session of its own.
func Import(m *machine.Machine, pci string, f *os.File, n uint64) (*Buffer, error) {
	o := dev.Host()
	if m != nil {
		o = dev.Of(m)
	}
	w, err := rm.ImportFile(o, pci, f, n)
	if err != nil {
		return nil, err
	}
	b := &Buffer{s: newSession(nil), pin: barPin{w}, size: n}
	return b, b.Map()
}
