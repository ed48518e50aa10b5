// Package gpumem is a client of the gpudma project's kernel module gpumem. It locks
// GPU memory and returns the physical addresses of its pages, for CPU mappings and
// for devices that CUDA does not know.
//
//	c, err := gpumem.Open(m) // m, err := machine.Open()
//	l, err := c.Lock(addr, 1<<20)
//	pages, err := l.Pages()
//
// The caller must set SYNC_MEMOPS on the allocation before Lock (gpu.Device's
// SetSyncMemops) and must not free it before Unlock.
//
// The module maps any physical address, and keeps locks when the device node is
// closed. The client maps only pages of its own locks, unmaps before it unlocks, and
// unlocks all memory on Close.
package gpumem
