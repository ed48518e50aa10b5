package gpu

import (
	"os"

	"github.com/culvert-io/culvert/gpu"
)

// A Backing says what the software GPU's memory is made of.
type Backing uint8

const (
	// Mapped memory is shared memory of the operating system, so that frames
	// can be mapped a second time ([GPU.Arena]).
	Mapped Backing = iota
	// Heap memory is Go's, for the race detector, which sees nothing else.
	Heap
)

// FrameSize is the size of a page of GPU memory.
const FrameSize = 64 << 10

// A Config describes the GPUs of a machine.
type Config struct {
	Models  []Model // none means one H200
	Backing Backing
	Scatter bool   // give allocations frames that are not neighbours
	Seed    uint64 // of Scatter, and of the GPUs' UUIDs
}

// A Driver is a gpu.Driver over GPUs in software.
type Driver struct{}

// New makes the GPUs. Close gives their memory back.
func New(cfg Config) (*Driver, error) { return nil, gpu.Fail("New", gpu.ErrNotSupported, "") }

// Name is for people.
func (d *Driver) Name() string { return "software GPU" }

// Version is the CUDA version whose behaviour is modelled.
func (d *Driver) Version() int { return 13000 }

// Devices describes the GPUs.
func (d *Driver) Devices() ([]gpu.Info, error) { return nil, gpu.Fail("Devices", gpu.ErrNotSupported, "") }

// Open returns GPU i with its primary context retained; it is a *Device.
func (d *Driver) Open(i int) (gpu.Device, error) {
	return nil, gpu.Fail("Open", gpu.ErrNotSupported, "")
}

// Close destroys all contexts and unmaps everything. Addresses of the driver
// must not be used any more.
func (d *Driver) Close() error { return nil }

// GPU is card i.
func (d *Driver) GPU(i int) (*GPU, error) { return nil, gpu.Fail("GPU", gpu.ErrNotSupported, "") }

// Find is the card in whose memory a lies.
func (d *Driver) Find(a gpu.Addr) (*GPU, bool) { return nil, false }

// Unlocked says why pinned host memory is not really locked in memory, or nil
// where all of it is.
func (d *Driver) Unlocked() error { return nil }

// LendExport is Lend for memory behind a descriptor that gpu.Device.Export
// made, of either form: n bytes from off in the exported range.
func (d *Driver) LendExport(f *os.File, off, n uint64) (*Loan, error) {
	return nil, gpu.Fail("LendExport", gpu.ErrNotSupported, "")
}

// A GPU is a card: its memory, as other devices and kernel modules see it.
type GPU struct{}

// Index is the card's number in its driver.
func (g *GPU) Index() int { return 0 }

// Model is what the card was made from.
func (g *GPU) Model() Model { return Model{} }

// Info describes the card.
func (g *GPU) Info() gpu.Info { return gpu.Info{} }

// Block is the block of memory (the unit that the resource manager knows) that
// a lies in: one large allocation, or 2 MiB shared by small ones.
func (g *GPU) Block(a gpu.Addr) (base gpu.Addr, size uint64, ok bool) { return 0, 0, false }

// Frames are the numbers of the frames under [a, a+n), which must lie in one
// block. A frame's physical address is its number times FrameSize. gen is the
// block's generation, unique in the life of the driver: frames that are freed
// and used again have another one.
func (g *GPU) Frames(a gpu.Addr, n uint64) (frames []uint64, gen uint64, err error) {
	return nil, 0, gpu.Fail("Frames", gpu.ErrNotSupported, "")
}

// Lend gives the bytes under [a, a+n), which must lie in one block, until the
// loan is returned. The owner may free the memory meanwhile: for the owner it
// is gone at once, but the frames are not used again before they are returned.
func (g *GPU) Lend(a gpu.Addr, n uint64) (*Loan, error) {
	return nil, gpu.Fail("Lend", gpu.ErrNotSupported, "")
}

// LendFrames is Lend by frame numbers, as Frames gave them: n bytes from off
// in the concatenation of the frames. It fails when the frames have been freed
// since.
func (g *GPU) LendFrames(frames []uint64, gen, off, n uint64) (*Loan, error) {
	return nil, gpu.Fail("LendFrames", gpu.ErrNotSupported, "")
}

// OnFree has fn called when the block that holds [a, a+n) is freed, before it
// is gone, in the goroutine that frees it. fn may block and may return loans;
// it must not allocate, free or close. cancel reports whether it came before
// fn was called; it does not wait for fn.
func (g *GPU) OnFree(a gpu.Addr, n uint64, fn func()) (cancel func() bool, err error) {
	return nil, gpu.Fail("OnFree", gpu.ErrNotSupported, "")
}

// Arena is the shared memory of all frames: frame f begins at f times
// FrameSize. It is nil under the Heap backing. Whoever maps it must hold a
// loan for what is mapped.
func (g *GPU) Arena() *os.File { return nil }

// A Loan is device memory in the hands of somebody else than its owner.
type Loan struct{}

// GPU is the card whose memory was lent.
func (l *Loan) GPU() *GPU { return nil }

// Segs are the bytes in order. Neighbouring frames are joined.
func (l *Loan) Segs() [][]byte { return nil }

// Frames are the numbers of the frames that the bytes lie in, and their
// generation; the first byte is at off in the first frame.
func (l *Loan) Frames() (frames []uint64, gen, off uint64) { return nil, 0, 0 }

// Return ends the loan; Segs must not be used any more. Further calls do nothing.
func (l *Loan) Return() {}

// StreamFlags are CUDA's flags of cuStreamCreate.
type StreamFlags uint32

const (
	// StreamDefault makes a stream that waits for the legacy default stream and
	// for which synchronous calls wait.
	StreamDefault StreamFlags = 0
	// StreamNonBlocking makes an independent stream, as NewStream does.
	StreamNonBlocking StreamFlags = 1
)
