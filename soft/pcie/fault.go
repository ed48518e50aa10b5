package pcie

import (
	"errors"
	"fmt"
)

// The reasons of an [Error].
var (
	ErrUnmapped  = errors.New("the IOMMU has no mapping for the address")
	ErrNoTarget  = errors.New("no memory at the address")
	ErrNoRoute   = errors.New("the host bridge does not forward between these devices")
	ErrAborted   = errors.New("the completer aborted the request")
	ErrRemoved   = errors.New("the device was removed")
	ErrMalformed = errors.New("invalid range of addresses")
	ErrReleased  = errors.New("the access was released before")
)

// An Error is a DMA that the fabric refused.
type Error struct {
	Device string // that sent the request
	Dir    Dir
	Bus    uint64
	Len    int
	Err    error
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s: %v of %d bytes at bus address %#x: %v", e.Device, e.Dir, e.Len, e.Bus, e.Err)
}

// Unwrap gives the reason to errors.Is.
func (e *Error) Unwrap() error { return e.Err }

// A span is a range of addresses.
type span struct{ base, size uint64 }

// Poison makes requests to the physical range fail with [ErrAborted] until heal is
// called.
func (f *Fabric) Poison(phys, n uint64) (heal func()) { return f.poison.Add(span{phys, n}) }

func (f *Fabric) poisoned(phys uint64, n int) bool {
	return f.poison.Any(func(s span) bool { return phys < s.base+s.size && s.base < phys+uint64(n) })
}
