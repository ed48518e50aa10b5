//go:build amd64

package ring

import "unsafe"

// cldemoteLines moves p..p+n from the core's own caches to the shared one. n is not
// 0.
//
//go:noescape
func cldemoteLines(p *byte, n int)

// cldemote tells the processor that a device will read b next.
//
// What pread has written is modified in the core's second-level cache, from which a
// copy engine takes twice as long to fetch it as from the shared cache. Long chunks
// evict each other. A short one that its caller waits for must be pushed out: on an
// H200 host that made sixteen callers with 1 MiB blocks 1.5 times as fast.
func cldemote(b []byte) {
	if len(b) > 0 && len(b) <= demoteMax {
		cldemoteLines(unsafe.SliceData(b), len(b))
	}
}
