package replay

import (
	"encoding/binary"
	"strings"
	"syscall"

	abi "github.com/culvert-io/culvert/internal/abi/gpumem"
	"github.com/culvert-io/culvert/internal/transcript"
)

// The intended differences of the emulated gpumem. All others fail.
const (
	gpumemNotLocked = "page not locked by the process: the module maps any physical address, the emulation only locked ones"
	gpumemRevoked   = "memory freed by its owner: the module keeps using a freed table, the emulation returns ENODEV"
)

// A gpumemJudge knows which pages are locked from the recorded answers.
type gpumemJudge struct {
	locks map[uint64][]uint64 // pages by handle; nil before they were asked for
	lost  map[uint64]bool     // handles whose memory was freed
}

func newGpumemJudge() *gpumemJudge {
	return &gpumemJudge{locks: map[uint64][]uint64{}, lost: map[uint64]bool{}}
}

func (j *gpumemJudge) Judge(e *transcript.Event) (v transcript.Verdict) {
	switch e.Call {
	case "ioctl":
		return j.ioctl(e)
	case "stub":
		if e.Args.Knob == "revoke" {
			for h := range j.locks {
				j.lost[h] = true
			}
		}
	case "mmap":
		if e.Err == 0 && e.Got.Errno == int(syscall.EINVAL) && !j.locked(e.Offset, e.Args.Length) && !strings.Contains(e.Args.Flags, "PRIVATE") {
			v.Reason = gpumemNotLocked
		}
	}
	return v
}

func (j *gpumemJudge) ioctl(e *transcript.Event) (v transcript.Verdict) {
	if len(e.Sent) < 8 {
		return v
	}
	handle := binary.LittleEndian.Uint64(e.Sent)
	switch e.Req {
	case abi.IOCTL_GPUMEM_LOCK:
		if e.Err == 0 && len(e.Recorded) >= 8 {
			j.locks[binary.LittleEndian.Uint64(e.Recorded)] = nil
		}
	case abi.IOCTL_GPUMEM_UNLOCK:
		if e.Err == 0 {
			delete(j.locks, handle)
		}
	case abi.IOCTL_GPUMEM_STATE:
		if j.lost[handle] && e.Got.Errno == int(syscall.ENODEV) {
			v.Reason = gpumemRevoked
		}
		if _, ok := j.locks[handle]; !ok || e.Err != 0 || len(e.Recorded) < abi.StateHeader {
			break
		}
		j.locks[handle] = nil
		for p := e.Recorded[abi.StatePages:]; len(p) >= 16; p = p[8:] {
			j.locks[handle] = append(j.locks[handle], binary.LittleEndian.Uint64(p))
		}
	}
	return v
}

// locked reports whether all pages of a physical range are locked. Pages that
// the conversation never queried count as not locked.
func (j *gpumemJudge) locked(phys, n uint64) bool {
	known := map[uint64]bool{}
	for _, pages := range j.locks {
		for _, p := range pages {
			known[p] = true
		}
	}
	for p := phys &^ abi.GPU_BOUND_OFFSET; p < phys+n; p += abi.GPU_BOUND_SIZE {
		if !known[p] {
			return false
		}
	}
	return true
}
