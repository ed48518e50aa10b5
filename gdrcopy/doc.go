// Package gdrcopy is GDRCopy's interface in Go: GPU memory is pinned, mapped
// into the CPU's address space, and written and read by the CPU itself. For a
// few kilobytes nothing is faster: a store takes a fraction of a microsecond,
// where a copy by the driver takes several.
//
//	s, err := gdrcopy.Open(m, device) // m, err := machine.Open()
//	b, err := s.Pin(addr, 4096)
//	err = b.Map()
//	err = b.CopyTo(0, header)
//
// GDRCopy needs a kernel module of its own. Here the module is one [Backend]
// among others: Open takes it where it is loaded and answers. Without it the
// process asks NVIDIA's driver itself, as its own client, which works on drivers
// from 535 on and needs no privileges. [Session.Info] says which it is, and why.
//
// # Speed
//
// Stores run at some 16 GB/s for one thread. Loads are slow, below 1 GB/s:
// above 4 KiB a copy by the GPU is faster.
//
// # Ordering
//
// The CPU's stores are not ordered with streams. No GPU work may use the range
// meanwhile; work that is submitted after CopyTo sees what it wrote. Before
// CopyFrom, synchronise with whoever wrote the memory, the driver's own
// synchronous copies included.
package gdrcopy
