// Package kernels has Culvert's GPU kernels. Each has two versions: CUDA C
// (kernels.cu, committed as PTX, which CUDA's driver compiles) and a Go function
// with the same effect for the software GPU. That is simpler to verify than an
// interpreter of PTX: both versions are checked against published vectors and,
// on hardware, against each other.
//
// The kernels and their parameters:
//
//	strrev, culvert_strrev (text, len)      reverse NUL-terminated text in place; *len int32 = its length
//	culvert_counter (count)                 *count uint32 += number of threads
//	culvert_sum     (data, n, total)        *total uint64 += the n bytes
//	culvert_fill    (dst, n, pattern)       repeat the 8 bytes of pattern, lowest first, over n bytes
//	culvert_compare (a, b, n, diff)         *diff uint64 += number of differing bytes
//	culvert_crc32c  (data, n, crc)          *crc uint32 ^= CRC-32C of the n bytes
//	culvert_gather  (base, table, count)    copy each Segment from address Src to base+Dst
//	culvert_scatter (base, table, count)    copy each Segment from base+Src to address Dst
//	culvert_nvme    (queue)                 submit commands to an NVMe controller and process completions; see NVMe
//
// The launch shape does not change the result. Results are added to the result
// word, which starts as zero, so that several launches can share it.
package kernels

import (
	_ "embed" // for PTX
	"fmt"
	"sync"

	"github.com/culvert-io/culvert/gpu"
)

//go:generate go run ./gen

// PTX is the text of all kernels, for gpu.Device.Load.
//
//go:embed kernels.ptx
var PTX []byte

// A Mem is the memory of a kernel.
type Mem interface {
	// Bytes is the n bytes from a, as a list of slices. For memory that the GPU
	// cannot access, the error wraps gpu.ErrIllegalAddress.
	Bytes(a gpu.Addr, n uint64) ([][]byte, error)
}

// A Launch is one execution of a kernel.
type Launch struct {
	Grid, Block gpu.Dim
	Args        []uint64 // as encoded by the driver
	Mem         Mem
}

// Threads is the number of threads of the launch.
func (l Launch) Threads() uint64 { return l.Grid.Threads() * l.Block.Threads() }

// A Kernel is the Go version of a kernel.
type Kernel struct {
	Name   string
	Params []int // sizes in bytes
	// Run has the effect of the launch on a GPU. Its error wraps a gpu.Code.
	Run func(Launch) error
}

// Lookup finds a kernel by its name in PTX.
func Lookup(name string) (Kernel, bool) {
	k, ok := byName()[name]
	return k, ok
}

// Names lists the kernels in source order.
func Names() []string {
	names := make([]string, len(all))
	for i, k := range all {
		names[i] = k.Name
	}
	return names
}

var all = []Kernel{
	{"strrev", []int{8, 8}, strrev},
	{"culvert_strrev", []int{8, 8}, strrev},
	{"culvert_counter", []int{8}, counter},
	{"culvert_sum", []int{8, 8, 8}, sum},
	{"culvert_fill", []int{8, 8, 8}, fill},
	{"culvert_compare", []int{8, 8, 8, 8}, compare},
	{"culvert_crc32c", []int{8, 8, 8}, crc32c},
	{"culvert_gather", []int{8, 8, 8}, gather},
	{"culvert_scatter", []int{8, 8, 8}, scatter},
	{"culvert_nvme", []int{8}, nvme},
}

var byName = sync.OnceValue(func() map[string]Kernel {
	m := make(map[string]Kernel, len(all))
	for _, k := range all {
		m[k.Name] = Kernel{k.Name, k.Params, k.checked()}
	}
	return m
})

// checked is Run with a check of the number of arguments.
func (k Kernel) checked() func(Launch) error {
	return func(l Launch) error {
		if len(l.Args) != len(k.Params) {
			return fmt.Errorf("kernel %s takes %d arguments, not %d: %w", k.Name, len(k.Params), len(l.Args), gpu.ErrInvalidValue)
		}
		if err := k.Run(l); err != nil {
			return fmt.Errorf("kernel %s: %w", k.Name, err)
		}
		return nil
	}
}
