package nvfs

import abi "github.com/culvert-io/culvert/internal/abi/nvfs"

// A Storage is a storage module. One with nvidia-fs hooks is also a [Registrar] and
// an [Unregistrar]: nvidia-fs looks up both symbols and skips a module that lacks
// one.
type Storage interface {
	Name() string    // "nvme"
	Version() string // as in /proc
	// Serves reports whether an open file is on the module's devices.
	Serves(fd int) bool
	// Submit executes a request and returns when it is done.
	Submit(r *Request) error
}

// A Registrar gets the table when nvidia-fs is first used. A module that returns an
// error is skipped.
type Registrar interface{ Register(ops *Ops) error }

// An Unregistrar is called when nvidia-fs is no longer used.
type Unregistrar interface{ Unregister() }

// A SuperBlocker knows file systems that show processes another device number than
// their super block has.
type SuperBlocker interface{ SuperBlock(dev uint64) uint64 }

// A Request moves blocks between a file and pages.
type Request struct {
	FD    int // of the file
	Write bool
	Off   int64  // in the file
	Pages []Page // whole blocks
}

// A Page is struct page: a block of memory. Its index tells its owner.
type Page struct {
	Index uint64
	Mem   []byte
}

// BlockSize is the size of a page and of a block.
const BlockSize = abi.BLOCK_SIZE
