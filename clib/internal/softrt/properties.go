package softrt

import (
	"encoding/binary"

	"github.com/culvert-io/culvert/clib/internal/cmem"
	"github.com/culvert-io/culvert/clib/internal/softcuda"
	"github.com/culvert-io/culvert/gpu"
)

// A release is a layout of struct cudaDeviceProp.
type release int

const (
	cuda11 release = 11 // up to CUDA 11; CUDA 12 has it under the old name
	cuda12 release = 12
	cuda13 release = 13
)

// A member is one of struct cudaDeviceProp: numbers of size bytes, each an
// attribute of the device; attribute 0 stays zero. Releases before from and
// after to do not have it.
type member struct {
	size     int
	attrs    []gpu.Attribute
	from, to release
}

func ints(attrs ...gpu.Attribute) member { return member{4, attrs, cuda11, cuda13} }
func long(attr gpu.Attribute) member     { return member{8, []gpu.Attribute{attr}, cuda11, cuda13} }
func until12(attr gpu.Attribute) member  { return member{4, []gpu.Attribute{attr}, cuda11, cuda12} }
func since(r release, attrs ...gpu.Attribute) member {
	return member{4, attrs, r, cuda13}
}

// The struct begins with the name, the UUID, an identifier for Windows with its
// mask, and the size of the memory.
const (
	nameSize = 256
	uuidAt   = nameSize
	totalAt  = 288
	headSize = totalAt + 8
)

// members are those after totalGlobalMem, in order.
var members = []member{
	long(8), ints(12, 10), long(11), ints(1), ints(2, 3, 4), ints(5, 6, 7), until12(13), // limits, clockRate
	long(9), ints(75, 76), long(14), long(51), until12(15), ints(16), until12(17), ints(18, 19), until12(20),
	ints(21, 77), until12(69), ints(22, 23), ints(73, 74), ints(70, 71, 72), ints(45, 46), // textures
	ints(24, 25, 26), ints(47, 48, 49), ints(52), ints(42, 43), ints(27, 28, 29), ints(53, 54),
	ints(55), ints(56, 57), ints(58, 59, 60), ints(61, 62), ints(63, 64, 65), ints(66), ints(67, 68), long(30), // surfaces
	ints(31, 32, 33, 34, 50, 35, 40, 41), until12(36), ints(37, 38, 108, 39, 78, 79, 80),
	long(81), ints(82, 83, 84, 85, 86), until12(87), ints(88, 89, 90, 91, 95), until12(96),
	long(97), ints(100, 101, 106, 109), long(111),
	since(cuda12, 99, 112, 113, 114, 115, 116, 117, 118, 119, 121, 125, 120, 129),
	since(cuda13, 130, 131, 133, 134, 139, 140, 143),
}

// reserved is the number of unused numbers at the end of the struct.
var reserved = map[release]int{cuda12: 63, cuda13: 56}

// properties fills a struct cudaDeviceProp.
func (r *Runtime) properties(c softcuda.Call, out cmem.Ptr, rel release) error {
	info := c.Info()
	head := make([]byte, headSize)
	copy(head[:nameSize-1], info.Name)
	copy(head[uuidAt:], info.UUID[:])
	binary.LittleEndian.PutUint64(head[totalAt:], info.Memory)
	b := appendMembers(head, rel, func(a gpu.Attribute) int {
		v, err := r.cuda.Attribute(c, a)
		if err != nil {
			return 0 // the model has no such attribute
		}
		return v
	})
	cmem.StoreAll(out, b)
	return nil
}

// appendMembers appends the members to the head.
func appendMembers(b []byte, rel release, attribute func(gpu.Attribute) int) []byte {
	for _, m := range members {
		if rel < m.from || rel > m.to {
			continue
		}
		for len(b)%m.size != 0 {
			b = append(b, 0)
		}
		for _, a := range m.attrs {
			b = append(b, binary.LittleEndian.AppendUint64(nil, uint64(attribute(a)))[:m.size]...)
		}
	}
	b = append(b, make([]byte, 4*reserved[rel])...)
	for len(b)%8 != 0 {
		b = append(b, 0)
	}
	return b
}

// GetDeviceProperties is cudaGetDeviceProperties of CUDA 13.
func (r *Runtime) GetDeviceProperties(c softcuda.Call, out cmem.Ptr) error {
	return r.properties(c, out, cuda13)
}

// GetDeviceProperties12 is cudaGetDeviceProperties_v2 of CUDA 12.
func (r *Runtime) GetDeviceProperties12(c softcuda.Call, out cmem.Ptr) error {
	return r.properties(c, out, cuda12)
}

// GetDeviceProperties11 is what programs built before CUDA 12 call.
func (r *Runtime) GetDeviceProperties11(c softcuda.Call, out cmem.Ptr) error {
	return r.properties(c, out, cuda11)
}
