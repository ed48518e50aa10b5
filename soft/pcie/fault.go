package pcie

import (
	"errors"
	"fmt"
	"slices"
)

// Why a request was refused. An [Error] holds one of them.
var (
	ErrUnmapped  = errors.New("the IOMMU has no mapping for the address")
	ErrNoTarget  = errors.New("nothing answers at the address")
	ErrNoRoute   = errors.New("the host bridge does not forward between these devices")
	ErrAborted   = errors.New("the completer aborted the request")
	ErrRemoved   = errors.New("the device was removed")
	ErrMalformed = errors.New("not a range of addresses")
	ErrReturned  = errors.New("the loan was returned before")
)

// An Error is a DMA that did not happen.
type Error struct {
	Device string // who asked
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

// Poison makes requests that touch the physical range fail with [ErrAborted],
// until heal is called.
func (f *Fabric) Poison(phys, n uint64) (heal func()) {
	s := span{phys, n}
	f.editPoison(func(list []span) []span { return append(list, s) })
	return func() {
		f.editPoison(func(list []span) []span {
			if i := slices.Index(list, s); i >= 0 {
				list = slices.Delete(list, i, i+1)
			}
			return list
		})
	}
}

// editPoison replaces the list, which requests read without a lock.
func (f *Fabric) editPoison(edit func([]span) []span) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var list []span
	if old := f.poison.Load(); old != nil {
		list = slices.Clone(*old)
	}
	if list = edit(list); len(list) == 0 {
		f.poison.Store(nil)
		return
	}
	f.poison.Store(&list)
}

func (f *Fabric) poisoned(phys uint64, n int) bool {
	list := f.poison.Load()
	return list != nil && slices.ContainsFunc(*list, func(s span) bool {
		return phys < s.end() && s.base < phys+uint64(n)
	})
}
