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

// MaxDims is how many dimensions a view can have: the limit of the frameworks.
const MaxDims = 64

// A View is a tensor as DLPack describes it.
type View struct {
	Addr       gpu.Addr
	GPU        int
	Code, Bits uint8 // DLDataType
	Shape      []int64
}

// Codes of DLDataType. There are newer ones for the small floats, but not all
// consumers know them: views of those tensors are bytes, and Python, which knows the
// dtype, converts them.
const (
	dlInt     = 0
	dlUint    = 1
	dlFloat   = 2
	dlBfloat  = 4
	dlComplex = 5
	dlBool    = 6
)

var dlCodes = map[tensor.Dtype]uint8{
	"BOOL": dlBool, "U8": dlUint, "U16": dlUint, "U32": dlUint, "U64": dlUint,
	"I8": dlInt, "I16": dlInt, "I32": dlInt, "I64": dlInt,
	"F16": dlFloat, "F32": dlFloat, "F64": dlFloat, "BF16": dlBfloat, "C64": dlComplex,
}

// Views describes n tensors of loaded memory, from first on. Each view has a
// reference to the memory, which its owner releases. Tensors of less than a byte per
// element have one dimension of bytes.
func (a *API) Views(memory handle.ID, first, n int) ([]View, error) {
	m, o, err := lookup[*loaded](a, memory)
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
func (a *API) CopyOut(memory handle.ID, i int, off uint64, to cmem.Ptr, n uint64) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer guard(&err)
	m, _, err := lookup[*loaded](a, memory)
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
	if to == 0 {
		return errNoAddress
	}
	if err := m.waitFor(context.Background(), i); err != nil {
		return err
	}
	dev, err := m.device(span.Dev)
	if err != nil {
		return err
	}
	return dev.CopyOut(cmem.Bulk(to, int(n)), span.Slice(off, n).Addr())
}
