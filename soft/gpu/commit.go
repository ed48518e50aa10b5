package gpu

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	"github.com/culvert-io/culvert/internal/cgroup"
	"github.com/culvert-io/culvert/internal/dev"
)

// A commitment is what the frames of all cards take of the memory of the process's
// control group. Frames take memory when they are used, and the kernel would kill the
// process in the middle of a copy; so frames that do not fit are not allocated.
//
// A frame that was used once keeps its memory. Fields are guarded by Driver.mu.
type commitment struct {
	limit func() *cgroup.Limit // nil if there is no limit
	used  *uint64              // bytes of frames that were ever allocated, by all processes that share them
	why   string               // why the last allocation did not fit; "" if it did
}

func newCommitment() commitment {
	return commitment{used: new(uint64), limit: sync.OnceValue(func() *cgroup.Limit { return cgroup.MemoryLimit(dev.Host().FS()) })}
}

// left returns how much the limit leaves for frames that were never allocated.
func (c *commitment) left() uint64 {
	group := c.limit()
	if group == nil {
		return math.MaxUint64
	}
	// Frames that have not been written yet are not in what the group uses.
	taken := max(uint64(group.Held()), atomic.LoadUint64(c.used))
	return max(uint64(group.Bytes), taken) - taken
}

// commit accounts for frames, or says in c.why that they do not fit.
func (c *commitment) commit(a *arena, frames []uint64) bool {
	c.why = ""
	if c.limit() == nil || a.peer {
		return true
	}
	fresh := uint64(0)
	for _, f := range frames {
		if a.used[f] == 0 {
			fresh += FrameSize
		}
	}
	if fresh == 0 {
		return true
	}
	if left := c.left(); fresh > left {
		c.why = fmt.Sprintf("the cgroup of this process has a limit of %d bytes and leaves %d for GPU memory, %d are needed (fix: raise its memory limit)",
			c.limit().Bytes, left, fresh)
		return false
	}
	atomic.AddUint64(c.used, fresh)
	return true
}
