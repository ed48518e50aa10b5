// Package kernels holds Culvert's GPU kernels. Each is a pair: CUDA C (in
// kernels.cu, committed as PTX for CUDA's driver to compile) and a Go function
// with the same effect, which the software GPU runs in its place. A pair is
// simpler to trust than an interpreter of PTX: both halves are checked against
// published vectors and, on hardware, against each other.
//
// The pairs and their parameters:
//
//	strrev, culvert_strrev (text, len)      reverse NUL-terminated text in place; *len int32 = its length
//	culvert_counter (count)                 *count uint32 += number of threads
//	culvert_sum     (data, n, total)        *total uint64 += the n bytes
//	culvert_fill    (dst, n, pattern)       repeat the 8 bytes of pattern, lowest first, over n bytes
//	culvert_compare (a, b, n, diff)         *diff uint64 += number of differing bytes
//	culvert_crc32c  (data, n, crc)          *crc uint32 ^= CRC-32C of the n bytes
//	culvert_gather  (base, table, count)    copy each Piece from address Src to base+Dst
//	culvert_scatter (base, table, count)    copy each Piece from base+Src to address Dst
//	culvert_nvme    (queue)                 submit commands to an NVMe controller and take its answers; see NVMe
//
// Any launch shape gives the same result. Results are added to what the result
// word holds, so that several launches can share one; it starts as zero.
package kernels

import (
	_ "embed"
	"fmt"
	"sync"
	// for PTX

	"github.com/culvert-io/culvert/gpu"
)

//go:generate go run ./gen

// PTX is the text of all kernels, for gpu.Device.Load.
//
//go:embed kernels.ptx
var PTX []byte

// A Mem is the memory that a kernel sees.
type Mem interface {
	// Bytes lends n bytes from a as segments in order. Memory that the GPU
	// cannot reach is an error that wraps gpu.ErrIllegalAddress.
	Bytes(a gpu.Addr, n uint64) ([][]byte, error)
}

// A Launch is one execution of a kernel.
type Launch struct {
	Grid, Block gpu.Dim
	Args        []uint64 // as ptx.EncodeArgs makes them
	Mem         Mem
}

// Threads is the number of threads of the launch.
func (l Launch) Threads() uint64 { return l.Grid.Threads() * l.Block.Threads() }

// A Kernel is the Go half of a pair.
type Kernel struct {
	Name   string
	Params []int // sizes in bytes
	// Run does what the launch would do on a GPU. Its error wraps a gpu.Code.
	Run func(Launch) error
}

// Lookup finds a kernel by its name in PTX.
func Lookup(name string) (Kernel, bool) {
	k, ok := byName()[name]
	return k, ok
}

// Names lists the kernels in the order of their source.
func Names() []string {
	names := make([]string, len(pairs))
	for i, k := range pairs {
		names[i] = k.Name
	}
	return names
}

var pairs = []Kernel{
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
	m := make(map[string]Kernel, len(pairs))
	for _, k := range pairs {
		m[k.Name] = Kernel{k.Name, k.Params, k.checked()}
	}
	return m
})

// checked is Run for callers that did not go through gpu.EncodeArgs.
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
