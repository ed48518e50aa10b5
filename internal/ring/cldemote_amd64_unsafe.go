//go:build amd64

package ring

import "unsafe"

// demote moves p..p+n from the core's own caches to the one that all share. n is
// not 0.
//
//go:noescape
func cldemoteLines(p *byte, n int)

// hint tells the processor that a device will read b next.
//
// What pread has written lies modified in the reading core's second-level cache,
// and fetching it from there costs the copy engine twice the time that it takes
// from the shared cache. Long pieces push each other out on their way. A short
// one that its caller waits for must be pushed: on an H200's host this made
// sixteen callers with 1 MiB blocks half as fast again.
func cldemote(b []byte) {
	if len(b) > 0 && len(b) <= demoteMax {
		cldemoteLines(unsafe.SliceData(b), len(b))
	}
}
