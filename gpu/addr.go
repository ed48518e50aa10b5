package gpu

import (
	"fmt"

	"github.com/culvert-io/culvert/internal/enum"
)

// An Addr is an address that a GPU can access. There is one address space:
// addresses of different GPUs differ, and the Addr of pinned or managed memory is
// its host pointer.
type Addr uint64

func (a Addr) String() string { return fmt.Sprintf("%#x", uint64(a)) }

// A Span is a range of GPU memory: Len bytes at Base+Off. Base is the start of the
// allocation or registered buffer that contains the range.
type Span struct {
	Dev      int
	Base     Addr
	Off, Len uint64
}

// Addr is the first address of the span.
func (s Span) Addr() Addr { return s.Base + Addr(s.Off) }

func (s Span) String() string {
	return fmt.Sprintf("gpu:%d %#x+%#x[%d]", s.Dev, uint64(s.Base), s.Off, s.Len)
}

// Slice is the range [off, off+n) of the span. It panics if that exceeds the
// span.
func (s Span) Slice(off, n uint64) Span {
	if off > s.Len || n > s.Len-off {
		panic(fmt.Sprintf("gpu: slice [%d:+%d] exceeds the span of %d bytes", off, n, s.Len))
	}
	return Span{s.Dev, s.Base, s.Off + off, n}
}

// A Kind is where memory is and how it was allocated.
type Kind uint8

const (
	KindNone       Kind = iota // host memory unknown to the driver
	KindDevice                 // GPU memory (cuMemAlloc)
	KindVirtual                // GPU memory (cuMemCreate, cuMemMap) that can be exported as a descriptor
	KindHost                   // pinned host memory (cuMemHostAlloc)
	KindRegistered             // host memory pinned in place (cuMemHostRegister)
	KindManaged                // migrates between host and GPU (cuMemAllocManaged)
)

var kindNames = [...]string{"none", "device", "virtual", "host", "registered", "managed"}

func (k Kind) String() string { return enum.Name(kindNames[:], k, "Kind(%d)") }

// OnDevice reports whether memory of this kind is GPU memory, which the CPU cannot
// access.
func (k Kind) OnDevice() bool { return k == KindDevice || k == KindVirtual }

// Flags are options of calls. The numbers are CUDA's.
type Flags uint32

// Flags of Alloc(KindHost).
const (
	HostPortable      Flags = 1 // pinned in all contexts
	HostMapped        Flags = 2 // mapped into the GPU's address space (always, with unified addressing)
	HostWriteCombined Flags = 4 // write-combining: very slow for the CPU to read
)

// Flags of Register.
const (
	RegisterPortable  Flags = 1
	RegisterDeviceMap Flags = 2
	RegisterIOMemory  Flags = 4 // the range is a BAR of a device
	RegisterReadOnly  Flags = 8 // the GPU only reads it; allows PROT_READ mappings
)

// Flags of Alloc(KindManaged).
const (
	ManagedGlobal Flags = 1 // any stream on any device may use it
	ManagedHost   Flags = 2 // no device may use it until it is attached
)

// Flags of NewContext.
const (
	ContextSchedSpin     Flags = 1
	ContextSchedYield    Flags = 2
	ContextSchedBlocking Flags = 4
	ContextMapHost       Flags = 8
	ContextSyncMemops    Flags = 0x80
)
