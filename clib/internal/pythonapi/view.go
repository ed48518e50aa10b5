package pythonapi

import (
	"context"
	"fmt"
	"runtime/debug"

	"github.com/culvert-io/culvert/clib/internal/cmem"
	"github.com/culvert-io/culvert/clib/internal/handle"
	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/tensor"
)

// MaxDims is how many dimensions a view can have: what the frameworks allow.
const MaxDims = 64

// A View is a tensor as DLPack describes one.
type View struct {
	Addr       gpu.Addr
	GPU        int
	Code, Bits uint8 // DLDataType
	Shape      []int64
}

// Codes of DLDataType. Newer ones for the small floats exist, but not all
// consumers know them: those tensors are handed out as bytes, and Python, which
// knows the dtype, views them as what they are.
const (
	dlInt     = 0
	dlUint    = 1
	dlFloat   = 2
	dlBfloat  = 4
	dlComplex = 5
	dlBool    = 6
)

var dlCodes = map[tensor.Dtype]uint8{
	tensor.BOOL: dlBool, tensor.U8: dlUint, tensor.U16: dlUint, tensor.U32: dlUint, tensor.U64: dlUint,
	tensor.I8: dlInt, tensor.I16: dlInt, tensor.I32: dlInt, tensor.I64: dlInt,
	tensor.F16: dlFloat, tensor.F32: dlFloat, tensor.F64: dlFloat, tensor.BF16: dlBfloat, tensor.C64: dlComplex,
}

// Views describes n tensors of loaded memory from the first on, and takes a
// reference to the memory for each, which the view's owner releases. Packed
// tensors of less than a byte per element have one dimension of bytes.
func (d *API) Views(memory handle.ID, first, n int) ([]View, error) {
	m, o, err := lookup[*loaded](d, memory)
	if err != nil {
		return nil, err
	}
	if first < 0 || n < 0 || first > len(m.tensors) || n > len(m.tensors)-first {
		return nil, fmt.Errorf("tensors %d+%d of %d", first, n, len(m.tensors))
	}
	views := make([]View, n)
	for i := range views {
		if views[i], err = viewOf(&m.tensors[first+i]); err != nil {
			return nil, err
		}
	}
	o.refs.Add(int64(n))
	return views, nil
}

func viewOf(t *tensor.Tensor) (View, error) {
	v := View{Addr: t.Span.Addr(), GPU: t.Span.Dev, Code: dlUint, Bits: 8, Shape: t.Shape}
	if code, ok := dlCodes[t.Dtype]; ok {
		v.Code, v.Bits = code, uint8(t.Dtype.Bits())
	} else if t.Dtype.Bits() < 8 {
		v.Shape = []int64{int64(t.Span.Len)}
	}
	if len(v.Shape) > MaxDims {
		return v, fmt.Errorf("tensor %q has %d dimensions: a view has at most %d", t.Name, len(v.Shape), MaxDims)
	}
	return v, nil
}

// CopyOut copies n bytes at off of tensor i into memory of the caller.
func (d *API) CopyOut(memory handle.ID, i int, off uint64, to cmem.Ptr, n uint64) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer guard(&err)
	m, _, err := lookup[*loaded](d, memory)
	if err != nil {
		return err
	}
	if i < 0 || i >= len(m.tensors) {
		return fmt.Errorf("tensor %d of %d", i, len(m.tensors))
	}
	span := m.tensors[i].Span
	if off > span.Len || n > span.Len-off {
		return fmt.Errorf("bytes %d+%d of a tensor of %d", off, n, span.Len)
	}
	if n == 0 {
		return nil
	}
	if err := m.wait(context.Background()); err != nil {
		return err
	}
	dev, err := m.device(span.Dev)
	if err != nil {
		return err
	}
	return dev.CopyOut(cmem.Slice[byte](to, int(n)), span.Slice(off, n).Addr())
}
