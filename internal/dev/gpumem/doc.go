// Package gpumem is a client of the gpudma project's kernel module: it locks GPU
// memory and learns the physical addresses of its pages, with which the memory
// can be mapped, or written by a device that is none of CUDA's business.
//
// The application sets SYNC_MEMOPS on the allocation before it locks it, and
// keeps the allocation until it has unlocked.
//
// The module trusts its users: it maps any address, and unlocks nothing when the
// node is closed. The client maps only pages of its own locks, unmaps before it
// unlocks, and unlocks everything when it is closed.
package gpumem
