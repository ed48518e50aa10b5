package nvfs

import abi "github.com/culvert-io/culvert/internal/abi/nvfs"

// A Storage is a storage module. One with nvidia-fs hooks, which knows that pages
// may stand for GPU memory, is a [Registrar] and an [Unregistrar]: nvidia-fs looks
// both symbols up, and skips a module that lacks one.
type Storage interface {
	Name() string    // "nvme"
	Version() string // as /proc shows it
	// Serves reports whether an open file lies on the module's devices.
	Serves(fd int) bool
	// Submit performs a request and returns when it is done.
	Submit(r *Request) error
}

// A Registrar takes the table when nvidia-fs is first used. A module that fails is
// skipped.
type Registrar interface{ Register(ops *Ops) error }

// An Unregistrar gives it back when nobody uses nvidia-fs any more.
type Unregistrar interface{ Unregister() }

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
