package ladder

import (
	"context"

	"github.com/culvert-io/culvert/internal/ring"
	"github.com/culvert-io/culvert/route"
)

// A read of about 1 MiB through BAR1 keeps its caller busy with stores, and the GPU's copy
// engine has nothing to do; by the ring, the caller waits for its copy. A shared read does
// both: its first half is read into pinned memory and copied by the GPU while the caller
// reads the second half through BAR1.

// knownShares are the loads at which shared reads are faster, measured on GPUs, by name. On
// an H200 with 16 cores (2026-11-19), reads of 1 MiB reach 36.7 instead of 33.5 GB/s with six
// callers, and 40.8 instead of 39.5 with eight, which need 0.20 instead of 0.26 s of
// processor time for each GB. Four callers lose 7 %, ten 2 %, sixteen 12 %, and reads of
// 512 KiB lose at every load.
var knownShares = map[string]Share{"NVIDIA H200": {From: crossoverHigh, Least: 5, Most: 9}}

// sharedHalf is how many bytes of a shared read are staged.
func sharedHalf(n uint64) uint64 {
	const page = 4096
	return min((n/2+page-1)&^(page-1), ring.StageMax)
}

// readShared reads the first half of an op by the ring and the second through BAR1. If
// the first cannot be staged, BAR1 moves all.
func (b *barRoute) readShared(ctx context.Context, op *Op, r *route.Receipt) error {
	half := sharedHalf(op.Mem.Len)
	staged, err := b.ring.stage(op, half)
	if err != nil {
		return b.read(op, 0, r)
	}
	if staged.Full() {
		if err = ctx.Err(); err == nil {
			err = b.read(op, half, r)
		}
	}
	first := staged.Wait()
	r.Retries += first.Retries
	if first.Err != nil {
		err, r.Bytes, r.Cache = op.fail(first.Err), 0, route.CacheUse{} // what follows a gap does not count
	}
	if r.Bytes > 0 {
		r.By[route.Bar] = r.Bytes
	}
	r.By[route.Ring] = first.N
	r.Bytes += first.N
	r.Host.Bytes += first.HostBytes
	countCached(op, first.N, r)
	return err
}
