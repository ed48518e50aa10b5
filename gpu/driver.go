package gpu

import (
	"os"
	"time"
)

// A Driver is a way to reach GPUs.
type Driver interface {
	// Name says which driver this is and where it came from, for people.
	Name() string
	// Version is CUDA's: 13000 for 13.0.
	Version() int
	// Devices describes the GPUs without opening any.
	Devices() ([]Info, error)
	// Open returns GPU i with its primary context retained.
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

// A Device is a context on a GPU: the primary one when it comes from
// [Driver.Open], another one when it comes from NewContext. All methods are
// safe for concurrent use. After Close they fail with [ErrContextDestroyed]
// (cuda: whatever the driver says).
type Device interface {
	Info() Info
	Attribute(Attribute) (int, error)
	MemInfo() (free, total uint64, err error)

	// Alloc returns n bytes whose content is undefined. n 0 is ErrInvalidValue.
	Alloc(k Kind, n uint64, f Flags) (Addr, error)
	// Free takes an address that Alloc or Import returned.
	Free(Addr) error
	// Register pins n bytes of host memory in place. Overlap with an earlier
	// registration is ErrHostMemoryAlreadyRegistered.
	Register(host uintptr, n uint64, f Flags) error
	Unregister(host uintptr) error
	// DevicePointer is the address under which the GPU sees pinned or
	// registered host memory.
	DevicePointer(host uintptr) (Addr, error)
	// Pointer looks an address up. An address that the driver does not know is
	// not an error: its Kind is KindNone.
	Pointer(Addr) (Pointer, error)
	// SetSyncMemops makes synchronous operations on the allocation complete
	// before they return, whatever the driver would do otherwise. Wanted before
	// a third device reads the memory.
	SetSyncMemops(Addr, bool) error
	// Export returns a descriptor for memory: an allocation of KindVirtual as
	// ExportPosixFD, or any device range as ExportDMABuf.
	Export(a Addr, n uint64, as Export) (*os.File, error)
	// Import maps memory exported as ExportPosixFD, here or in another process.
	Import(f *os.File, n uint64) (Addr, error)

	// CopyIn and CopyOut move bytes between host and GPU memory and return when
	// they have arrived. Copy takes any two addresses.
	CopyIn(dst Addr, src []byte) error
	CopyOut(dst []byte, src Addr) error
	Copy(dst, src Addr, n uint64) error
	// Fill writes n elements of the given width (1, 2 or 4 bytes).
	Fill(dst Addr, value uint32, width int, n uint64) error

	NewStream() (Stream, error)
	NewEvent() (Event, error)
	// Load takes PTX text.
	Load(ptx []byte) (Module, error)

	// Synchronize waits for all work of the context.
	Synchronize() error
	// FlushWrites makes writes that other devices made to this GPU's memory
	// visible to it.
	FlushWrites(Scope) error

	// NewContext creates a further context on the same GPU.
	NewContext(Flags) (Device, error)
	// Bind locks the goroutine to its thread and pushes the context; unbind
	// pops it and unlocks.
	Bind() (unbind func(), err error)
	Close() error
}

// A Stream runs work in order, beside other streams.
type Stream interface {
	// Copy enqueues a copy. Host addresses must be pinned, else the copy may
	// not be asynchronous.
	Copy(dst, src Addr, n uint64) error
	Fill(dst Addr, value uint32, width int, n uint64) error
	// Launch enqueues a kernel. Arguments are checked against the kernel's
	// parameters by number and size: Addr, or integers and floats of 4 or 8 bytes.
	Launch(f Func, grid, block Dim, args ...any) error
	// Do enqueues a function on the host. It must not call the driver.
	Do(func()) error
	// Write enqueues a store of a 4 or 8 byte value, visible after all earlier
	// work of the stream; Wait holds the stream until the value at a meets cond.
	Write(a Addr, value uint64, width int) error
	Wait(a Addr, value uint64, width int, cond Cond) error
	Record(Event) error
	WaitEvent(Event) error
	// Done reports whether all work has finished, and its first error.
	Done() (bool, error)
	Synchronize() error
	Close() error
}

// An Event marks a place in a stream.
type Event interface {
	Done() (bool, error)
	Synchronize() error
	// Since is the time between two recorded events that have both happened.
	Since(Event) (time.Duration, error)
	Close() error
}

// A Module holds kernels.
type Module interface {
	Func(name string) (Func, error)
	Close() error
}

// A Func is a kernel of a loaded module.
type Func interface {
	Name() string
	// Params are the sizes of the kernel's parameters in bytes.
	Params() []int
}

// A Dim is the size of a grid or a block. Zero fields count as one.
type Dim struct{ X, Y, Z uint32 }

// Norm is d with zero fields set to one.
func (d Dim) Norm() Dim { return Dim{max(d.X, 1), max(d.Y, 1), max(d.Z, 1)} }

// Threads is the number of positions in d.
func (d Dim) Threads() uint64 {
	d = d.Norm()
	return uint64(d.X) * uint64(d.Y) * uint64(d.Z)
}

// A Pointer is what the driver knows of an address.
type Pointer struct {
	Kind       Kind
	Device     int
	Base       Addr // of the allocation
	Size       uint64
	Host       uintptr // where the CPU reaches it; 0 where it cannot
	SyncMemops bool
}

// Contains reports whether n bytes from a lie inside the allocation.
func (p Pointer) Contains(a Addr, n uint64) bool {
	off := uint64(a - p.Base)
	return a >= p.Base && off <= p.Size && n <= p.Size-off
}

// An Export is a form in which memory leaves the process.
type Export uint8

const (
	ExportPosixFD Export = iota + 1 // for Import, by CUDA or by a client of the resource manager
	ExportDMABuf                    // for other devices' drivers
)

// A Scope says whose view of the memory FlushWrites settles.
type Scope int

const (
	ScopeOwner      Scope = 100 // the GPU that has the memory
	ScopeAllDevices Scope = 200 // every GPU
)

// A Cond is how Wait compares the word at the address with its value.
type Cond uint32

const (
	CondGEQ Cond = 0 // cyclic: int(word-value) >= 0
	CondEQ  Cond = 1
	CondAND Cond = 2 // word & value != 0
	CondNOR Cond = 3 // ^(word | value) != 0
)

// A UUID names a GPU for life.
type UUID [16]byte
