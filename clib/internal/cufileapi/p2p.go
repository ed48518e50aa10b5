package cufileapi

import (
	"fmt"
	"runtime"

	"github.com/culvert-io/culvert/clib/internal/cmem"
	"github.com/culvert-io/culvert/cufile"
)

// Bits of CUfileP2PFlags_t.
const (
	p2pDMA  = 1 << 0
	p2pNVFS = 1 << 1
	p2pC2C  = 1 << 3
)

// p2pTargets is CU_FILE_MAX_TARGET_TYPES: targets are bits of the status flags.
const p2pTargets = 15

// settable is the flag that the architecture can have; the others are only reported.
func settable() int32 {
	if runtime.GOARCH == "arm64" {
		return p2pC2C
	}
	return p2pDMA
}

func checkTarget(op string, target int32) error {
	if target < 0 || target >= p2pTargets {
		return &cufile.Error{Op: op, Object: "P2P flags", Code: cufile.InvalidValue, Err: fmt.Errorf("target %d: must be from 0 to %d", target, p2pTargets-1)}
	}
	return nil
}

// DriverSetP2PFlags is cuFileDriverSetP2PFlags. It adds a flag, which is reported. No
// route needs it: they are tried in order of quality.
func (a *API) DriverSetP2PFlags(target, flags int32) error {
	if err := checkTarget("set", target); err != nil {
		return err
	}
	if flags&^settable() != 0 {
		return &cufile.Error{Op: "set", Object: "P2P flags", Code: cufile.InvalidValue, Err: fmt.Errorf("flags %#x: only %#x can be set on %s", flags, settable(), runtime.GOARCH)}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.params.p2p[target] |= flags
	return nil
}

// DriverGetP2PFlags is cuFileDriverGetP2PFlags: the flags that were set, and how an open
// driver reaches the target.
func (a *API) DriverGetP2PFlags(target int32, out cmem.Ptr) error {
	if err := checkTarget("get", target); err != nil {
		return err
	}
	a.mu.Lock()
	flags := a.params.p2p[target]
	a.mu.Unlock()
	if drv := a.drv.Load(); drv != nil && drv.UseCount() > 0 {
		flags |= reaches(drv.Properties().Status, target)
	}
	return cmem.Answer(out, flags)
}

// reaches is the flag of the route that reaches a target, by the status flags.
func reaches(status uint32, target int32) int32 {
	const nvmeP2P = 1 << 11
	switch {
	case status>>target&1 == 0:
		return 0
	case status&nvmeP2P != 0:
		return p2pDMA
	}
	return p2pNVFS
}
