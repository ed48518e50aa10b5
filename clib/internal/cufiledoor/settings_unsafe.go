package cufiledoor

import (
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

// settings are the properties that programs may set. They are limits of
// NVIDIA's implementation that ours does not have: they are kept and reported.
type settings struct {
	poll                                bool
	pollKB, directKB, cacheKB, pinnedKB uint64
}

// stock holds the values of an untouched driver.
var stock = settings{pollKB: 4, directKB: 16384, cacheKB: 131072, pinnedKB: 33554432}

// The nvidia-fs protocol that Culvert speaks. Programs take 0.0, which is what
// NVIDIA's library says without the module, for "no GPUDirect Storage here"
// and walk around the library; the status flags say honestly what is direct.
const (
	nvfsMajor = 2
	nvfsMinor = 28
)

// DriverGetProperties is cuFileDriverGetProperties.
func (d *Door) DriverGetProperties(out cmem.Ptr) error {
	d.mu.Lock()
	s := d.props
	d.mu.Unlock()
	p := drvProps{
		MajorVersion:          nvfsMajor,
		MinorVersion:          nvfsMinor,
		PollThreshSize:        s.pollKB,
		MaxDirectIOSize:       s.directKB,
		DControlFlags:         controlCompat,
		MaxDeviceCacheSize:    uint32(s.cacheKB),
		PerBufferCacheSize:    1024,
		MaxDevicePinnedSize:   uint32(s.pinnedKB),
		MaxBatchIOSize:        128,
		MaxBatchTimeoutMillis: 5,
	}
	if s.poll {
		p.DControlFlags |= controlPoll
	}
	cmem.Store(out, p)
	return nil
}

// DriverSetPollMode is cuFileDriverSetPollMode.
func (d *Door) DriverSetPollMode(on bool, kb uint64) error {
	return d.set(kb, 4, 1<<54, func(s *settings) { s.poll, s.pollKB = on, kb })
}

// DriverSetMaxDirectIOSize is cuFileDriverSetMaxDirectIOSize.
func (d *Door) DriverSetMaxDirectIOSize(kb uint64) error {
	return d.set(kb, 64, 16384, func(s *settings) { s.directKB = kb })
}

// DriverSetMaxCacheSize is cuFileDriverSetMaxCacheSize.
func (d *Door) DriverSetMaxCacheSize(kb uint64) error {
	return d.set(kb, 0, 1<<32-4, func(s *settings) { s.cacheKB = kb })
}

// DriverSetMaxPinnedMemSize is cuFileDriverSetMaxPinnedMemSize.
func (d *Door) DriverSetMaxPinnedMemSize(kb uint64) error {
	return d.set(kb, 64, 1<<32-4, func(s *settings) { s.pinnedKB = kb })
}

// set keeps a limit within its range; it counts in pages.
func (d *Door) set(kb, least, most uint64, keep func(*settings)) error {
	const page = 4
	if kb < least || kb > most || kb%page != 0 {
		return cufile.DriverUnsupportedLimit
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	keep(&d.props)
	return nil
}
