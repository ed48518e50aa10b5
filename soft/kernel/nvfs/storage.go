package nvfs

import abi "github.com/culvert-io/culvert/internal/abi/nvfs"

// A Storage is a storage module with nvidia-fs hooks: a block driver that knows
// that pages may stand for GPU memory.
type Storage interface {
	Name() string    // "nvme"
	Version() string // as /proc shows it
	// Register hands the table over. A module that fails is skipped. Unregister
	// takes it back when nobody uses nvidia-fs any more.
	Register(ops *Ops) error
	Unregister()
	// Serves reports whether an open file lies on the module's devices.
	Serves(fd int) bool
	// Submit performs a request and returns when it is done.
	Submit(r *Request) error
}

// A Request is a run of blocks between a file and pages.
type Request struct {
	FD    int // of the file, as opened by the program
	Write bool
	Off   int64  // in the file
	Pages []Page // whole blocks
}

// A Page is struct page: a block of memory. Its number says whose it is.
type Page struct {
	Index uint64
	Mem   []byte
}

// BlockSize is the size of a page and of a block.
const BlockSize = abi.BLOCK_SIZE
