package verbsapi

import (
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/clib/internal/cmem"
	"github.com/culvert-io/culvert/clib/internal/handle"
	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/rdma"
)

type domain struct {
	rdma.PD
	owned
}

type region struct {
	rdma.MR
	owned
}

// AllocPD allocates a protection domain.
func (a *API) AllocPD(id handle.ID, out cmem.Ptr) error {
	d, err := find(a.contexts, id, "context")
	if err != nil {
		return err
	}
	p, err := d.AllocPD()
	if err != nil {
		return err
	}
	return add(a.domains, out, &domain{p, owned{id}}, p.Close)
}

// DeallocPD fails with EBUSY while the domain is in use.
func (a *API) DeallocPD(id handle.ID) error { return remove(a.domains, id, "protection domain") }

// Access flags of verbs that package rdma does not have.
const (
	accessHugeTLB = 0x80 // the pages are large: a hint
	optionalRange = 0x3ff00000
	supported     = rdma.LocalWrite | rdma.RemoteWrite | rdma.RemoteRead | rdma.RemoteAtomic | rdma.ZeroBased | rdma.OnDemand | accessHugeTLB
)

// RegMR registers memory of the process or, by address, of a GPU.
func (a *API) RegMR(pd handle.ID, addr, size, iova uint64, access uint32, out, key cmem.Ptr) error {
	if iova != addr && access&uint32(rdma.ZeroBased) == 0 {
		if iova != 0 {
			return fmt.Errorf("I/O address %#x for memory at %#x: must be the same, or 0: %w", iova, addr, syscall.EOPNOTSUPP)
		}
		access |= uint32(rdma.ZeroBased)
	}
	return a.register(pd, rdma.Address(gpu.Addr(addr), size), access, out, key)
}

// RegDMABuf registers memory behind a descriptor, which stays the program's.
func (a *API) RegDMABuf(pd handle.ID, offset, size, iova uint64, fd int32, access uint32, out, key cmem.Ptr) error {
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("descriptor %d: %w", fd, err)
	}
	f := os.NewFile(uintptr(own), "dma-buf")
	defer f.Close()
	return a.register(pd, rdma.DMABuf(f, offset, size, iova), access, out, key)
}

func (a *API) register(pd handle.ID, m rdma.Memory, access uint32, out, key cmem.Ptr) error {
	p, err := find(a.domains, pd, "protection domain")
	if err != nil {
		return err
	}
	want := rdma.Access(access) &^ (optionalRange &^ rdma.RelaxedOrdering)
	if bad := want &^ (supported | rdma.RelaxedOrdering); bad != 0 {
		return fmt.Errorf("access %v is not supported by the software machine: %w", bad, syscall.EOPNOTSUPP)
	}
	mr, err := p.Register(m, want&^accessHugeTLB)
	if err != nil {
		return err
	}
	cmem.Store(key, mr.RKey())
	return add(a.regions, out, &region{mr, p.owned}, mr.Close)
}

// DeregMR deregisters.
func (a *API) DeregMR(id handle.ID) error { return remove(a.regions, id, "region") }
