package ptx

import (
	"fmt"
	"math"

	"github.com/culvert-io/culvert/gpu"
)

// EncodeArgs converts kernel arguments to 64-bit words, after checking their
// number and sizes against the parameters of f. It reuses the memory of dst.
func EncodeArgs(dst []uint64, f gpu.Func, args []any) ([]uint64, error) {
	params := f.Params()
	if len(args) != len(params) {
		return nil, fmt.Errorf("kernel %s takes %d arguments, not %d", f.Name(), len(params), len(args))
	}
	dst = dst[:0]
	for i, a := range args {
		w, size := encodeArg(a)
		if size == 0 {
			return nil, fmt.Errorf("kernel %s: argument %d has type %T; it must be a gpu.Addr or a number of 4 or 8 bytes", f.Name(), i, a)
		}
		if size != params[i] {
			return nil, fmt.Errorf("kernel %s: argument %d (%T) has %d bytes, its parameter has %d", f.Name(), i, a, size, params[i])
		}
		dst = append(dst, w)
	}
	return dst, nil
}

func encodeArg(a any) (word uint64, size int) {
	switch v := a.(type) {
	case gpu.Addr:
		return uint64(v), 8
	case uint64:
		return v, 8
	case int64:
		return uint64(v), 8
	case uint32:
		return uint64(v), 4
	case int32:
		return uint64(uint32(v)), 4
	case float64:
		return math.Float64bits(v), 8
	case float32:
		return uint64(math.Float32bits(v)), 4
	}
	return 0, 0
}
