package cufileapi

import (
	"errors"
	"fmt"
	"maps"

	"github.com/culvert-io/culvert/clib/internal/cmem"
	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/internal/cufileconf"
)

// Parameters come from calls, CUFILE_ variables and cufile.json, in this order. They are
// reported and checked by NVIDIA's rules. Those that mean something here become the
// cufile.Config of the next open.

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

// A sizeParam has a built-in value, the value with which a driver opens, and the
// range to which it can be set.
type sizeParam struct{ builtIn, opened, least, most uint64 }

// barLimited is an upper limit that is the size of BAR1.
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
	boolParams        = 14
)

// sizeKeys and boolKeys are the names of parameters in cufile.json.
var (
	sizeKeys = [sizeParams]string{
		paramStats: "profile.cufile_stats", paramQueueDepth: "execution.max_io_queue_depth", paramThreads: "execution.max_io_threads",
		paramThreshold: "execution.min_io_threshold_size_kb", paramParallelism: "execution.max_request_parallelism",
		paramDirectKB: "properties.max_direct_io_size_kb", paramCacheKB: "properties.max_device_cache_size_kb",
		paramPerBufferKB: "properties.per_buffer_cache_size_kb", paramPinnedKB: "properties.max_device_pinned_mem_size_kb",
		paramBatch: "properties.io_batchsize", paramPollKB: "properties.poll_mode_max_size_kb", paramTimeout: "properties.max_batch_io_timeout_msecs",
	}
	boolKeys = [boolParams]string{
		"properties.use_poll_mode", "properties.allow_compat_mode", "properties.force_compat_mode", "miscellaneous.api_check_aggressive",
		"execution.parallel_io", "profile.nvtx", "properties.allow_system_memory", "properties.use_pci_p2pdma", "properties.prefer_iouring",
		"properties.force_odirect_mode", "miscellaneous.skip_topology_detection", "miscellaneous.stream_memops_bypass",
		"properties.vanilla_posix_io_mode", "properties.gds_fallback_io",
	}
	stringKeys = [stringParams]string{"logging.level", "logging.file", "logging.dir", "properties.rdma_transport_type"}
)

var openedBools = map[int32]bool{paramCompat: true, paramParallelIO: true, paramSystemMemory: true}

// CUFileStringConfigParameter_t.
const (
	paramLogFile = 1
	stringParams = 4
)

var stringValues = [stringParams]string{"ERROR", "", "", ""}

// parameters are what a program has set. Guarded by API.mu.
type parameters struct {
	sizes   settings[uint64] // for the next open
	bools   settings[bool]
	strings settings[string]
	posix   []slab            // nil if not set
	gpu     []slab            // likewise
	conf    cufileconf.Values // of variables and the file, read at each open
	live    map[int32]uint64  // sizes of the open driver, until it closes
	poll    *bool             // by cuFileDriverSetPollMode; nil if not set
	p2p     [p2pTargets]int32
	warned  map[string]bool // mistakes in the configuration
}

// settings are parameters of one type, by number.
type settings[T any] struct {
	name  string
	count int32
	set   map[int32]T
}

func (s *settings[T]) check(p int32) error {
	if p < 0 || p >= s.count {
		return &cufile.Error{Op: "parameter", Object: s.name, Code: cufile.InvalidValue, Err: fmt.Errorf("unknown parameter %d", p)}
	}
	return nil
}

// reset forgets what was set for the driver that closes, as NVIDIA's library does.
func (p *parameters) reset() {
	clear(p.sizes.set)
	clear(p.bools.set)
	clear(p.strings.set)
	clear(p.live)
	p.poll = nil
}

func newParameters() parameters {
	return parameters{
		sizes:   settings[uint64]{"size_t", sizeParams, map[int32]uint64{}},
		bools:   settings[bool]{"bool", boolParams, map[int32]bool{}},
		strings: settings[string]{"string", stringParams, map[int32]string{}},
		live:    map[int32]uint64{},
		warned:  map[string]bool{},
	}
}

// size is the value in effect. Call with API.mu held.
func (a *API) size(p int32, open bool) uint64 {
	set, isSet := a.params.sizes.set[p]
	if !open {
		if isSet {
			return set
		}
		return sizes[p].builtIn
	}
	if v, ok := a.params.live[p]; ok {
		return v
	}
	if isSet && a.fits(p, set) {
		return set
	}
	if v, ok := a.params.conf.Number(sizeKeys[p]); ok && a.fits(p, v) {
		return v
	}
	return sizes[p].opened // a value out of range is dropped when the driver opens
}

// gpuPageKB is the page in which GPU memory is mapped: direct I/O comes in multiples.
const gpuPageKB = 64

// fits reports whether a parameter can have a value.
func (a *API) fits(p int32, v uint64) bool {
	return a.within(p, v) && (p != paramDirectKB || v%gpuPageKB == 0)
}

// within reports whether a value is in the range of a parameter. Below the range of the
// pinned memory, 0 means none.
func (a *API) within(p int32, v uint64) bool {
	return v >= sizes[p].least && v <= a.most(p) || v == 0 && p == paramPinnedKB
}

// settings are the values of the next open: calls win over variables and the file. Call
// with a.mu held.
func (a *API) settings() cufileconf.Values {
	v := maps.Clone(a.params.conf)
	if v == nil {
		v = cufileconf.Values{}
	}
	for p := range int32(sizeParams) {
		if set, ok := a.params.sizes.set[p]; ok && a.fits(p, set) {
			v.Set(sizeKeys[p], set)
		}
	}
	for p, set := range a.params.live { // by cuFileDriverSet functions
		v.Set(sizeKeys[p], set)
	}
	for p, set := range a.params.bools.set {
		v.Set(boolKeys[p], set)
	}
	if a.params.poll != nil {
		v.Set(boolKeys[paramPoll], *a.params.poll)
	}
	for p, set := range a.params.strings.set {
		v.Set(stringKeys[p], set)
	}
	posixSlabs.into(v, a.params.posix)
	gpuSlabs.into(v, a.params.gpu)
	return v
}

// most is the largest value of a parameter.
func (a *API) most(p int32) uint64 {
	if m := sizes[p].most; m != barLimited {
		return m
	}
	kb, err := a.barKB(0)
	if err != nil {
		return 1<<32 - 4 // the most that the properties can report
	}
	return kb
}

func (a *API) isOpen() bool { return a.UseCount() > 0 }

// closedOnly rejects a call while the driver is open.
func (a *API) closedOnly() error {
	if a.isOpen() {
		return &cufile.Error{Op: "set", Object: "parameter", Code: cufile.DriverAlreadyOpen, Fix: "set it before cuFileDriverOpen"}
	}
	return nil
}

// setParameter sets a parameter of a closed driver.
func setParameter[T any](a *API, s *settings[T], p int32, v T) error {
	if err := a.closedOnly(); err != nil {
		return err
	}
	if err := s.check(p); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	s.set[p] = v
	return nil
}

// SetParameterSizeT is cuFileSetParameterSizeT. The range is checked when the
// driver opens.
func (a *API) SetParameterSizeT(p int32, v uint64) error {
	return setParameter(a, &a.params.sizes, p, v)
}

// SetParameterBool is cuFileSetParameterBool.
func (a *API) SetParameterBool(p int32, v bool) error {
	return setParameter(a, &a.params.bools, p, v)
}

// SetParameterString is cuFileSetParameterString.
func (a *API) SetParameterString(p int32, text cmem.Ptr) error {
	const longest = 4096
	v, ok := cmem.String(text, longest)
	if !ok || v == "" {
		return &cufile.Error{Op: "set", Object: "parameter", Code: cufile.InvalidValue, Err: fmt.Errorf("a string must have 1 to %d bytes", longest)}
	}
	return setParameter(a, &a.params.strings, p, v)
}

// getParameter returns the value that value makes of what is set.
func getParameter[T any](a *API, s *settings[T], p int32, value func(set T, isSet, open bool) T) (v T, err error) {
	if err := s.check(p); err != nil {
		return v, err
	}
	open := a.isOpen()
	a.mu.Lock()
	defer a.mu.Unlock()
	set, isSet := s.set[p]
	return value(set, isSet, open), nil
}

// GetParameterSizeT is cuFileGetParameterSizeT.
func (a *API) GetParameterSizeT(p int32, out cmem.Ptr) error {
	v, err := getParameter(a, &a.params.sizes, p, func(_ uint64, _, open bool) uint64 { return a.size(p, open) })
	return cmem.Put(out, v, err)
}

// GetParameterMinMaxValue is cuFileGetParameterMinMaxValue.
func (a *API) GetParameterMinMaxValue(p int32, least, most cmem.Ptr) error {
	if p == paramStats {
		p = -1 // it has no range
	}
	if err := a.params.sizes.check(p); err != nil {
		return err
	}
	cmem.Store(least, sizes[p].least)
	return cmem.Answer(most, a.most(p))
}

// boolean is the value in effect. Call with API.mu held.
func (a *API) boolean(p int32, open bool) bool {
	set, isSet := a.params.bools.set[p]
	switch {
	case !open:
		return set
	case p == paramPoll && a.params.poll != nil:
		return *a.params.poll
	case isSet:
		return set
	}
	if v, ok := a.params.conf.Bool(boolKeys[p]); ok {
		return v
	}
	return openedBools[p]
}

// GetParameterBool is cuFileGetParameterBool.
func (a *API) GetParameterBool(p int32, out cmem.Ptr) error {
	v, err := getParameter(a, &a.params.bools, p, func(_, _, open bool) bool { return a.boolean(p, open) })
	return cmem.Put(out, v, err)
}

// GetParameterString is cuFileGetParameterString, which needs room for all of
// the string. Without a log file there is no name of one; the name in the variable counts
// before the driver opens, and may be empty, as in NVIDIA's library.
func (a *API) GetParameterString(p int32, out cmem.Ptr, n int32) error {
	known := true
	v, err := getParameter(a, &a.params.strings, p, func(set string, isSet, open bool) (value string) {
		if isSet {
			return set
		}
		if p == paramLogFile {
			value, known = a.Variable("CUFILE_LOGFILE_PATH")
			return value
		}
		if v, ok := a.params.conf.Text(stringKeys[p]); ok && open {
			return v
		}
		return stringValues[p]
	})
	if err != nil {
		return err
	}
	if !known {
		return &cufile.Error{Op: "get", Object: "parameter", Code: cufile.InvalidValue, Err: errors.New("no log file is set")}
	}
	if int(n) <= len(v) {
		return &cufile.Error{Op: "get", Object: "parameter", Code: cufile.InvalidValue, Err: fmt.Errorf("buffer of %d bytes is too small for %d", n, len(v)+1)}
	}
	cmem.PutString(out, int(n), v)
	return nil
}
