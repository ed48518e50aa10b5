package cufileapi

import (
	"fmt"

	"github.com/culvert-io/culvert/clib/internal/cmem"
	"github.com/culvert-io/culvert/cufile"
)

// Parameters are knobs of NVIDIA's implementation. Ours needs none of them: they
// are kept, reported and held to NVIDIA's rules, so that programs that set them
// and read them back find what they expect.

// CUFileSizeTConfigParameter_t.
const (
	paramStats = iota
	paramQueueDepth
	paramThreads
	paramThreshold
	paramParallelism
	paramDirectKB
	paramCacheKB
	paramPerBufferKB
	paramPinnedKB
	paramBatch
	paramPollKB
	paramTimeout
	sizeParams
)

// A sizeParam has a value that is built in, one with which a driver opens, and
// the range that it may be set to.
type sizeParam struct{ builtIn, opened, least, most uint64 }

// barLimited stands for the size of BAR1 as an upper limit.
const barLimited = 0

var sizes = [sizeParams]sizeParam{
	paramStats:       {0, 0, 0, 3},
	paramQueueDepth:  {128, 128, 1, 256},
	paramThreads:     {0, 4, 0, 32},
	paramThreshold:   {1024, 8192, 4, 4294967295},
	paramParallelism: {0, 4, 0, 8},
	paramDirectKB:    {0, 16384, 64, 16384},
	paramCacheKB:     {0, 131072, 0, barLimited},
	paramPerBufferKB: {1024, 1024, 64, 16384},
	paramPinnedKB:    {33554432, 33554432, 64, barLimited},
	paramBatch:       {128, 128, 1, 256},
	paramPollKB:      {4, 4, 4, 18014398509481980},
	paramTimeout:     {5, 5, 1, 1000},
}

// CUFileBoolConfigParameter_t: those that an opened driver has on.
const (
	paramPoll         = 0
	paramCompat       = 1
	paramParallelIO   = 4
	paramSystemMemory = 6
	boolParams        = 12
)

var openedBools = map[int32]bool{paramCompat: true, paramParallelIO: true, paramSystemMemory: true}

// CUFileStringConfigParameter_t.
const stringParams = 3

var stringValues = [stringParams]string{"ERROR", "", ""}

// parameters are what a program has set. Guarded by API.mu.
type parameters struct {
	sizes   map[int32]uint64 // for the next open
	bools   map[int32]bool
	strings map[int32]string
	slabs   []slab
	live    map[int32]uint64 // set on the open driver, until it closes
	poll    bool
}

// A slab is a size in KiB and a count, of staging memory.
type slab struct{ kb, count uint64 }

func newParameters() parameters {
	return parameters{
		sizes: map[int32]uint64{}, bools: map[int32]bool{}, strings: map[int32]string{},
		slabs: []slab{{4, 128}, {1024, 64}, {16384, 64}}, live: map[int32]uint64{},
	}
}

// size is the value in effect. Call with API.mu held.
func (a *API) size(p int32, open bool) uint64 {
	set, isSet := a.params.sizes[p]
	if !open {
		if isSet {
			return set
		}
		return sizes[p].builtIn
	}
	if v, ok := a.params.live[p]; ok {
		return v
	}
	if isSet && set >= sizes[p].least && set <= a.most(p) {
		return set
	}
	return sizes[p].opened // a value out of range is dropped when the driver opens
}

// most is the largest value of a parameter.
func (a *API) most(p int32) uint64 {
	if m := sizes[p].most; m != barLimited {
		return m
	}
	kb, err := a.barKB(0)
	if err != nil {
		return 1<<32 - 4 // as much as the properties can tell
	}
	return kb
}

func (a *API) isOpen() bool { return a.UseCount() > 0 }

func unknown(kind string, p int32) error {
	return &cufile.Error{Op: "parameter", Object: kind, Code: cufile.InvalidValue, Err: fmt.Errorf("there is none with the number %d", p)}
}

// closedOnly refuses to set a parameter while the driver is open.
func (a *API) closedOnly() error {
	if a.isOpen() {
		return &cufile.Error{Op: "set", Object: "parameter", Code: cufile.DriverAlreadyOpen, Fix: "set it before cuFileDriverOpen"}
	}
	return nil
}

// GetParameterSizeT is cuFileGetParameterSizeT.
func (a *API) GetParameterSizeT(p int32, out cmem.Ptr) error {
	if p < 0 || p >= sizeParams {
		return unknown("size_t", p)
	}
	open := a.isOpen()
	a.mu.Lock()
	v := a.size(p, open)
	a.mu.Unlock()
	cmem.Store(out, v)
	return nil
}

// SetParameterSizeT is cuFileSetParameterSizeT. The range is looked at when the
// driver opens.
func (a *API) SetParameterSizeT(p int32, v uint64) error {
	if err := a.closedOnly(); err != nil {
		return err
	}
	if p < 0 || p >= sizeParams {
		return unknown("size_t", p)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.params.sizes[p] = v
	return nil
}

// GetParameterMinMaxValue is cuFileGetParameterMinMaxValue.
func (a *API) GetParameterMinMaxValue(p int32, least, most cmem.Ptr) error {
	if p <= paramStats || p >= sizeParams {
		return unknown("size_t", p)
	}
	cmem.Store(least, sizes[p].least)
	cmem.Store(most, a.most(p))
	return nil
}

// GetParameterBool is cuFileGetParameterBool.
func (a *API) GetParameterBool(p int32, out cmem.Ptr) error {
	if p < 0 || p >= boolParams {
		return unknown("bool", p)
	}
	open := a.isOpen()
	a.mu.Lock()
	v, ok := a.params.bools[p]
	if open && p == paramPoll {
		v, ok = v || a.params.poll, true
	}
	a.mu.Unlock()
	if !ok {
		v = open && openedBools[p]
	}
	cmem.Store(out, v)
	return nil
}

// SetParameterBool is cuFileSetParameterBool.
func (a *API) SetParameterBool(p int32, v bool) error {
	if err := a.closedOnly(); err != nil {
		return err
	}
	if p < 0 || p >= boolParams {
		return unknown("bool", p)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.params.bools[p] = v
	return nil
}

// GetParameterString is cuFileGetParameterString, which wants room for all of
// it.
func (a *API) GetParameterString(p int32, out cmem.Ptr, n int32) error {
	if p < 0 || p >= stringParams {
		return unknown("string", p)
	}
	a.mu.Lock()
	v, ok := a.params.strings[p]
	a.mu.Unlock()
	if !ok {
		v = stringValues[p]
	}
	if int(n) <= len(v) {
		return &cufile.Error{Op: "get", Object: "parameter", Code: cufile.InvalidValue, Err: fmt.Errorf("%d bytes are needed, there is room for %d", len(v)+1, n)}
	}
	cmem.PutString(out, int(n), v)
	return nil
}

// SetParameterString is cuFileSetParameterString. There is no log file that a
// string could be about.
func (a *API) SetParameterString(p int32, text cmem.Ptr) error {
	if err := a.closedOnly(); err != nil {
		return err
	}
	const longest = 4096
	v, ok := cmem.String(text, longest)
	if p < 0 || p >= stringParams || !ok {
		return unknown("string", p)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.params.strings[p] = v
	return nil
}

// SetParameterPosixPoolSlabArray is cuFileSetParameterPosixPoolSlabArray.
func (a *API) SetParameterPosixPoolSlabArray(kb, count cmem.Ptr, n int32) error {
	if err := a.closedOnly(); err != nil {
		return err
	}
	const mostSlabs = 1024
	if n <= 0 || n > mostSlabs {
		return cufile.InvalidValue
	}
	list := make([]slab, n)
	for i := range list {
		list[i] = slab{cmem.Load[uint64](cmem.At[uint64](kb, i)), cmem.Load[uint64](cmem.At[uint64](count, i))}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.params.slabs = list
	return nil
}

// GetParameterPosixPoolSlabArray is cuFileGetParameterPosixPoolSlabArray, which
// wants the exact length.
func (a *API) GetParameterPosixPoolSlabArray(kb, count cmem.Ptr, n int32) error {
	a.mu.Lock()
	list := a.params.slabs
	a.mu.Unlock()
	if int(n) != len(list) {
		return &cufile.Error{Op: "get", Object: "slabs", Code: cufile.InvalidValue, Err: fmt.Errorf("there are %d, not %d", len(list), n)}
	}
	for i, s := range list {
		cmem.Store(cmem.At[uint64](kb, i), s.kb)
		cmem.Store(cmem.At[uint64](count, i), s.count)
	}
	return nil
}
