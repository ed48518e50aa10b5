// Package gdrcopy is GDRCopy's API in Go: it pins GPU memory and maps it, so that the
// CPU itself writes and reads it. For a few kilobytes nothing is faster: a store
// takes a fraction of a microsecond, a copy by the driver several.
//
//	s, err := gdrcopy.Open(m, device) // m, err := machine.Open()
//	b, err := s.Pin(addr, 4096)
//	err = b.Map()
//	err = b.CopyTo(0, header)
//
// GDRCopy needs its kernel module gdrdrv. Open uses it if it is loaded and answers.
// Otherwise the process is its own client of NVIDIA's driver, which works from driver
// 535 on and needs no privileges. [Session.Info] tells which one is used, and why.
//
// # Speed
//
// Stores run at about 16 GB/s per thread. Loads are slow, below 1 GB/s: above 4 KiB a
// copy by the GPU is faster.
//
// # Ordering
//
// Stores of the CPU are not ordered with streams. No GPU work may use the range
// meanwhile; work submitted after CopyTo sees the bytes. Before CopyFrom, synchronize
// with all writers, including synchronous copies of the driver.
package gdrcopy
