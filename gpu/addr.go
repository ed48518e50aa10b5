package gpu

import "fmt"

// An Addr is an address that a GPU can use. There is one address space: device
// addresses of different GPUs differ, and the Addr of pinned or managed memory
// is its host pointer.
type Addr uint64

func (a Addr) String() string { return fmt.Sprintf("%#x", uint64(a)) }

// A Span is a range of GPU memory: Len bytes at Base+Off. Base is the start of
// the allocation or registration that the range belongs to, which is how a
// registered buffer is found again.
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

// Slice is the part [off, off+n) of the span. It panics when that is not
// inside the span, as slicing a slice would.
func (s Span) Slice(off, n uint64) Span {
	if off > s.Len || n > s.Len-off {
		panic(fmt.Sprintf("gpu: slice [%d:+%d] of a span of %d bytes", off, n, s.Len))
	}
	return Span{s.Dev, s.Base, s.Off + off, n}
}

// A Kind says where memory lives and who may touch it.
type Kind uint8

const (
	KindNone       Kind = iota // plain host memory, unknown to the driver
	KindDevice                 // memory of the GPU (cuMemAlloc)
	KindVirtual                // memory of the GPU by cuMemCreate and cuMemMap: can be exported as a descriptor
	KindHost                   // pinned host memory (cuMemHostAlloc)
	KindRegistered             // host memory pinned in place (cuMemHostRegister)
	KindManaged                // migrates between host and GPU (cuMemAllocManaged)
)

var kindNames = [...]string{"none", "device", "virtual", "host", "registered", "managed"}

func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("Kind(%d)", k)
}

// OnDevice reports whether memory of this kind lives on the GPU, out of the
// CPU's reach.
func (k Kind) OnDevice() bool { return k == KindDevice || k == KindVirtual }

// Flags refine an allocation or a registration. The numbers are CUDA's.
type Flags uint32

// Flags of Alloc(KindHost).
const (
	HostPortable      Flags = 1 // pinned for all contexts
	HostMapped        Flags = 2 // mapped into the GPU's address space (always so under unified addressing)
	HostWriteCombined Flags = 4 // fast to write and to copy from, very slow for the CPU to read
)

// Flags of Register.
const (
	RegisterPortable  Flags = 1
	RegisterDeviceMap Flags = 2
	RegisterIOMemory  Flags = 4 // the range is a device's BAR, not memory
	RegisterReadOnly  Flags = 8 // the GPU will only read it: allows PROT_READ mappings
)

// Flags of Alloc(KindManaged).
const (
	ManagedGlobal Flags = 1 // any stream on any device may use it
	ManagedHost   Flags = 2 // no device may, until attached
)

// Flags of NewContext.
const (
	ContextSchedAuto     Flags = 0
	ContextSchedSpin     Flags = 1
	ContextSchedYield    Flags = 2
	ContextSchedBlocking Flags = 4
	ContextMapHost       Flags = 8
	ContextSyncMemops    Flags = 0x80
)
