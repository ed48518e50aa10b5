package rdma

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"github.com/culvert-io/culvert/gpu"
)

// Access is what may be done with registered memory: enum ibv_access_flags.
type Access uint32

// The rights, with the numbers of verbs. RemoteWrite and RemoteAtomic need LocalWrite.
const (
	LocalWrite      Access = 1
	RemoteWrite     Access = 2
	RemoteRead      Access = 4
	RemoteAtomic    Access = 8
	ZeroBased       Access = 0x20
	OnDemand        Access = 0x40
	RelaxedOrdering Access = 0x100000 // writes may arrive in another order; a completion still means all of them
)

func (a Access) String() string {
	var names []string
	for _, f := range [...]struct {
		bit  Access
		name string
	}{
		{LocalWrite, "local write"},
		{RemoteWrite, "remote write"},
		{RemoteRead, "remote read"},
		{RemoteAtomic, "remote atomic"},
		{ZeroBased, "zero based"},
		{OnDemand, "on demand"},
		{RelaxedOrdering, "relaxed ordering"},
	} {
		if a&f.bit != 0 {
			names = append(names, f.name)
			a &^= f.bit
		}
	}
	if a != 0 {
		names = append(names, fmt.Sprintf("%#x", uint32(a)))
	}
	if len(names) == 0 {
		return "local read"
	}
	return strings.Join(names, "|")
}

// Check returns an error for rights that verbs reject.
func (a Access) Check() error {
	if a&(RemoteWrite|RemoteAtomic) != 0 && a&LocalWrite == 0 {
		return fmt.Errorf("access %v: remote write and remote atomic need local write: %w", a, syscall.EINVAL)
	}
	return nil
}

// A Memory is what to register. Make one with Host, Address or DMABuf.
type Memory struct {
	Addr uint64 // of the first byte, for the CPU or the GPU
	Len  uint64
	// File is a dma-buf; the memory is Len bytes from Offset in it, and Addr is its
	// address in work requests, equal to Offset modulo the page size.
	File   *os.File
	Offset uint64

	keep []byte // so that the garbage collector leaves it
}

// Host is memory of this process. rdma/ibverbs needs memory that the garbage collector
// does not manage, such as pinned memory of a GPU driver or a mapping.
func Host(b []byte) Memory {
	return Memory{Addr: uint64(gpu.HostAddr(b)), Len: uint64(len(b)), keep: b}
}

// Address is memory at an address: GPU memory through a peer memory client, or host
// memory that is not a slice.
func Address(a gpu.Addr, n uint64) Memory { return Memory{Addr: uint64(a), Len: n} }

// DMABuf is memory behind a descriptor from [gpu.Device.Export]. The descriptor may be
// closed after the registration.
func DMABuf(f *os.File, offset, n, addr uint64) Memory {
	return Memory{Addr: addr, Len: n, File: f, Offset: offset}
}

// Bytes is the memory as a slice, if Host made it; otherwise nil.
func (m Memory) Bytes() []byte { return m.keep }

// Check returns an error for a range that no device can register.
func (m Memory) Check() error {
	switch {
	case m.Len == 0:
		return fmt.Errorf("the length is 0: %w", syscall.EINVAL)
	case m.Addr+m.Len < m.Addr, m.Offset+m.Len < m.Offset:
		return fmt.Errorf("%d bytes from %#x wrap around: %w", m.Len, m.Addr, syscall.EINVAL)
	case m.File != nil && m.Addr%pageSize != m.Offset%pageSize:
		return fmt.Errorf("address %#x and offset %#x in the dma-buf must be equal modulo %d: %w", m.Addr, m.Offset, pageSize, syscall.EINVAL)
	}
	return nil
}

const pageSize = 4096

// Local is [off, off+n) of a region as a local range.
func Local(mr MR, off uint64, n uint32) SGE {
	return SGE{Addr: mr.Addr() + off, Len: n, LKey: mr.LKey()}
}

// A Key names a region to a peer.
type Key struct {
	Addr uint64
	Len  uint64
	RKey uint32
}

// Remote is the key of a region.
func Remote(mr MR) Key { return Key{mr.Addr(), mr.Len(), mr.RKey()} }

// A RegisterError is memory that a device did not register.
type RegisterError struct {
	Provider string
	Device   string
	Memory   Memory
	Access   Access
	Err      error // with an errno
}

func (e *RegisterError) Error() string {
	what := "memory"
	if e.Memory.File != nil {
		what = "dma-buf"
	}
	return fmt.Sprintf("register %s of %d bytes at %#x with %s of %s (%v): %v", what, e.Memory.Len, e.Memory.Addr, e.Device, e.Provider, e.Access, e.Err)
}

// Unwrap is the cause.
func (e *RegisterError) Unwrap() error { return e.Err }

// Errno is the errno in err; 0 if it has none.
func Errno(err error) syscall.Errno {
	n, _ := errors.AsType[syscall.Errno](err)
	return n
}
