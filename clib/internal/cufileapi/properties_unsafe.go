package cufileapi

import (
	"fmt"
	"maps"
	"structs"
	"unsafe"

	"github.com/culvert-io/culvert/clib/internal/cmem"
	"github.com/culvert-io/culvert/cufile"
)

// drvProps is CUfileDrvProps_t. Sizes are in KiB.
type drvProps struct {
	_                     structs.HostLayout
	MajorVersion          uint32
	MinorVersion          uint32
	PollThreshSize        uint64
	MaxDirectIOSize       uint64
	DStatusFlags          uint32
	DControlFlags         uint32
	FFlags                uint32
	MaxDeviceCacheSize    uint32
	PerBufferCacheSize    uint32
	MaxDevicePinnedSize   uint32
	MaxBatchIOSize        uint32
	MaxBatchTimeoutMillis uint32
}

var _ [56]byte = [unsafe.Sizeof(drvProps{})]byte{}

// Bits of dcontrolflags.
const (
	controlPoll   = 1 << 0
	controlCompat = 1 << 1
)

// The version of the nvidia-fs protocol that Culvert implements. NVIDIA's library
// reports 0.0 without the module, and programs then bypass the library. The status
// flags tell which storage is reached directly.
const (
	nvfsMajor = 2
	nvfsMinor = 28
)

// DriverGetProperties is cuFileDriverGetProperties. For a closed driver it reports
// the properties that an open one would have.
func (a *API) DriverGetProperties(out cmem.Ptr) error {
	drv := a.drv.Load()
	if drv == nil {
		drv = cufile.New(nil)
	}
	has := drv.Properties()
	a.mu.Lock()
	p := drvProps{
		MajorVersion:          nvfsMajor,
		MinorVersion:          nvfsMinor,
		PollThreshSize:        a.size(paramPollKB, true),
		MaxDirectIOSize:       a.size(paramDirectKB, true),
		DStatusFlags:          uint32(has.Status),
		FFlags:                uint32(has.Features),
		MaxDeviceCacheSize:    uint32(a.size(paramCacheKB, true)),
		PerBufferCacheSize:    uint32(a.size(paramPerBufferKB, true)),
		MaxDevicePinnedSize:   uint32(a.size(paramPinnedKB, true)),
		MaxBatchIOSize:        uint32(a.size(paramBatch, true)),
		MaxBatchTimeoutMillis: uint32(a.size(paramTimeout, true)),
	}
	for param, flag := range map[int32]uint32{paramPoll: controlPoll, paramCompat: controlCompat} {
		if a.boolean(param, true) {
			p.DControlFlags |= flag
		}
	}
	a.mu.Unlock()
	return cmem.Answer(out, p)
}

// DriverSetPollMode is cuFileDriverSetPollMode.
func (a *API) DriverSetPollMode(on bool, kb uint64) error {
	return a.set(paramPollKB, kb, func() { a.params.poll = &on })
}

// DriverSetMaxDirectIOSize is cuFileDriverSetMaxDirectIOSize.
func (a *API) DriverSetMaxDirectIOSize(kb uint64) error { return a.set(paramDirectKB, kb, nil) }

// DriverSetMaxCacheSize is cuFileDriverSetMaxCacheSize.
func (a *API) DriverSetMaxCacheSize(kb uint64) error { return a.set(paramCacheKB, kb, nil) }

// DriverSetMaxPinnedMemSize is cuFileDriverSetMaxPinnedMemSize.
func (a *API) DriverSetMaxPinnedMemSize(kb uint64) error { return a.set(paramPinnedKB, kb, nil) }

// set changes a limit of the open driver, within its range and in pages.
func (a *API) set(p int32, kb uint64, also func()) error {
	const page = 4
	if !a.within(p, kb) || kb%page != 0 {
		return &cufile.Error{
			Op: "set", Object: "limit", Code: cufile.DriverUnsupportedLimit,
			Err: fmt.Errorf("%d KiB must be a multiple of %d from %d to %d", kb, page, sizes[p].least, a.most(p)),
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	before := maps.Clone(a.params.live)
	poll := a.params.poll
	a.params.live[p] = kb
	if also != nil {
		also()
	}
	drv := a.drv.Load()
	if drv == nil || drv.UseCount() == 0 {
		return nil // it is part of the configuration of the next open
	}
	err := drv.SetLimits(a.settings().Config())
	if err != nil { // what is reported is what is
		a.params.live, a.params.poll = before, poll
	}
	return err
}
