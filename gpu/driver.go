package gpu

import (
	"os"
	"time"
)

// A Driver gives access to GPUs.
type Driver interface {
	// Name describes the driver and its origin, for logs.
	Name() string
	// Version is CUDA's: 13000 for 13.0.
	Version() int
	// Devices describes the GPUs without opening any.
	Devices() ([]Info, error)
	// Open retains the primary context of GPU i.
	Open(i int) (Device, error)
}

// Info describes a GPU.
type Info struct {
	Index        int    `json:"index"`
	Name         string `json:"name"`
	UUID         UUID   `json:"uuid"`
	PCI          string `json:"pci"` // "0000:65:00.0"
	Memory       uint64 `json:"memory"`
	Capability   [2]int `json:"capability"` // compute capability, major and minor
	Multiprocs   int    `json:"multiprocessors"`
	UnifiedAddrs bool   `json:"unified_addressing"`
}

// A Device is a context on a GPU: the primary one ([Driver.Open]) or another one
// (NewContext). All methods are safe for concurrent use. After Close they fail
// with [ErrContextDestroyed].
type Device interface {
	Info() Info
	Attribute(Attribute) (int, error)
	MemInfo() (free, total uint64, err error)

	// Alloc allocates n bytes with undefined contents. It fails with
	// ErrInvalidValue if n is 0.
	Alloc(k Kind, n uint64, f Flags) (Addr, error)
	// Free frees an address that Alloc or Import returned.
	Free(Addr) error
	// Register pins n bytes of host memory in place. It fails with
	// ErrHostMemoryAlreadyRegistered if they overlap an earlier registration.
	Register(host uintptr, n uint64, f Flags) error
	Unregister(host uintptr) error
	// DevicePointer is the GPU's address of pinned or registered host memory.
	DevicePointer(host uintptr) (Addr, error)
	// Pointer looks an address up. Addresses that the driver does not know have
	// Kind KindNone and no error.
	Pointer(Addr) (Pointer, error)
	// SetSyncMemops makes synchronous operations on the allocation always
	// complete before they return, as needed before another device reads it.
	SetSyncMemops(Addr, bool) error
	// Export returns a descriptor for an allocation of KindVirtual
	// (ExportPosixFD), or for any range of GPU memory (ExportDMABuf, ExportDMABufPCIe).
	Export(a Addr, n uint64, as Export) (*os.File, error)
	// Import maps memory exported as ExportPosixFD, here or in another process.
	Import(f *os.File, n uint64) (Addr, error)

	// CopyIn and CopyOut copy between host and GPU memory. Copy takes any two
	// addresses. All return when the data has arrived.
	CopyIn(dst Addr, src []byte) error
	CopyOut(dst []byte, src Addr) error
	Copy(dst, src Addr, n uint64) error
	// Fill writes n elements of the given width (1, 2 or 4 bytes).
	Fill(dst Addr, value uint32, width int, n uint64) error

	NewStream() (Stream, error)
	NewEvent() (Event, error)
	// Load compiles PTX text.
	Load(ptx []byte) (Module, error)

	// Synchronize waits for all work of the context.
	Synchronize() error
	// FlushWrites makes writes of other devices to this GPU's memory visible to
	// it.
	FlushWrites(Scope) error

	// NewContext creates a further context on the same GPU.
	NewContext(Flags) (Device, error)
	// Bind locks the goroutine to its thread and pushes the context; unbind
	// pops it and unlocks.
	Bind() (unbind func(), err error)
	Close() error
}

// A Stream runs work in order, independently of other streams.
type Stream interface {
	// Copy enqueues a copy. If host memory is not pinned, it may be synchronous.
	Copy(dst, src Addr, n uint64) error
	Fill(dst Addr, value uint32, width int, n uint64) error
	// Launch enqueues a kernel. Arguments are of type Addr, or integers and
	// floats of 4 or 8 bytes; their number and sizes must match the kernel's.
	Launch(f Func, grid, block Dim, args ...any) error
	// Do enqueues a function on the host. It must not call the driver.
	Do(func()) error
	// Write enqueues a store of a value of 4 or 8 bytes, visible after all
	// earlier work of the stream. Wait blocks the stream until the value at a
	// meets cond.
	Write(a Addr, value uint64, width int) error
	Wait(a Addr, value uint64, width int, cond Cond) error
	Record(Event) error
	WaitEvent(Event) error
	// Done reports whether all work has finished, and its first error.
	Done() (bool, error)
	Synchronize() error
	Close() error
}

// A Borrower is a driver that uses streams of other parts of the process, by their
// CUstream or the number of a default stream.
type Borrower interface {
	// Borrow does not check the handle: the driver follows it as a pointer. A default
	// stream is that of the context and the thread of the caller, so the goroutine
	// must be locked to its thread until it has used the stream.
	Borrow(handle uintptr) (BorrowedStream, error)
}

// A BorrowedStream is a stream with another owner. Values are comparable.
type BorrowedStream interface {
	Do(func()) error
	Wait(a Addr, value uint64, width int, cond Cond) error
	// WaitIfIdle is Wait for a stream that has nothing to do and in which new work
	// would begin at once. It reports whether the stream is one; if not, or with an
	// error, nothing was enqueued.
	WaitIfIdle(a Addr, value uint64, width int, cond Cond) (idle bool, err error)
	// Capturing reports whether the work of the stream is recorded into a graph.
	Capturing() (bool, error)
}

// A PeerStream is a stream that copies from other GPUs: directly where they can reach
// each other, also from memory that Copy could not read.
type PeerStream interface {
	Stream
	// CopyPeer enqueues a copy of memory of another GPU.
	CopyPeer(dst Addr, from Device, src Addr, n uint64) error
}

// An Event is a position in a stream.
type Event interface {
	Done() (bool, error)
	Synchronize() error
	// Since is the time since another event. Both must be done.
	Since(Event) (time.Duration, error)
	Close() error
}

// A Module is a set of loaded kernels.
type Module interface {
	Func(name string) (Func, error)
	Close() error
}

// A Func is a kernel of a loaded module.
type Func interface {
	Name() string
	// Params are the sizes of the parameters in bytes.
	Params() []int
}

// A Dim is the size of a grid or a block. Zero fields count as one.
type Dim struct{ X, Y, Z uint32 }

// Norm is d with zero fields set to one.
func (d Dim) Norm() Dim { return Dim{max(d.X, 1), max(d.Y, 1), max(d.Z, 1)} }

// Threads is the product of the fields, with zero as one.
func (d Dim) Threads() uint64 {
	d = d.Norm()
	return uint64(d.X) * uint64(d.Y) * uint64(d.Z)
}

// A Pointer describes an address.
type Pointer struct {
	Kind       Kind
	Device     int
	Base       Addr // of the allocation
	Size       uint64
	Host       uintptr // the CPU's address; 0 if it has none
	SyncMemops bool
}

// Contains reports whether n bytes from a are inside the allocation.
func (p Pointer) Contains(a Addr, n uint64) bool {
	off := uint64(a - p.Base)
	return a >= p.Base && off <= p.Size && n <= p.Size-off
}

// An Export is a kind of descriptor for memory.
type Export uint8

const (
	ExportPosixFD Export = iota + 1 // for Import, by CUDA or by a client of the resource manager
	ExportDMABuf                    // for other devices' drivers
	// ExportDMABufPCIe is a dma-buf whose addresses are those of the GPU's BAR, also where
	// the driver would prefer another way to the memory. CUDA 12.8 has it.
	ExportDMABufPCIe
)

// A Scope is the set of GPUs for which FlushWrites makes writes visible.
type Scope int

const (
	ScopeOwner      Scope = 100 // the GPU with the memory
	ScopeAllDevices Scope = 200 // every GPU
)

// A Cond is the comparison of Wait between the word at the address and the value.
type Cond uint32

const (
	CondGEQ Cond = 0 // cyclic: int(word-value) >= 0
	CondEQ  Cond = 1
	CondAND Cond = 2 // word & value != 0
	CondNOR Cond = 3 // ^(word | value) != 0
)

// A UUID identifies a GPU.
type UUID [16]byte
