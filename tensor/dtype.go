package tensor

import (
	"fmt"
	"math"
	"math/bits"
)

// A Dtype is the type of a tensor's elements, by its name in the format, such as
// "BF16". Elements of one byte or more are little-endian.
type Dtype string

// dtypeBits are the sizes of elements. Elements of less than a byte are packed.
var dtypeBits = map[Dtype]int{
	"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
	"BOOL": 8, "U8": 8, "I8": 8,
	"F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
	"I16": 16, "U16": 16, "F16": 16, "BF16": 16,
	"I32": 32, "U32": 32, "F32": 32,
	"C64": 64, "F64": 64, "I64": 64, "U64": 64,
}

// dtypeOrder is the order in which the safetensors package writes tensors: large
// elements first, so that all are aligned.
var dtypeOrder = []Dtype{
	"U64", "I64", "F64", "C64", "F32", "U32", "I32", "BF16", "F16", "U16", "I16",
	"F8_E5M2FNUZ", "F8_E4M3FNUZ", "F8_E8M0", "F8_E4M3", "F8_E5M2", "I8", "U8",
	"F6_E3M2", "F6_E2M3", "F4", "BOOL",
}

// Valid reports whether the format defines d.
func (d Dtype) Valid() bool { return dtypeBits[d] > 0 }

// Bits returns the size of one element in bits, or 0 if d is not valid.
func (d Dtype) Bits() int { return dtypeBits[d] }

// UnmarshalText accepts only names that the format defines.
func (d *Dtype) UnmarshalText(b []byte) error {
	if *d = Dtype(b); !d.Valid() {
		return fmt.Errorf("unknown dtype %q", b)
	}
	return nil
}

// Size returns the size in bytes of a packed tensor of this shape. The error is a
// *FormatError.
func (d Dtype) Size(shape []int64) (int64, error) {
	breaks := func(rule string) error {
		return &FormatError{Rule: rule, Detail: fmt.Sprintf("dtype %s, shape %v", d, shape)}
	}
	if !d.Valid() {
		return 0, breaks(ruleDtype)
	}
	count := uint64(1)
	for _, dim := range shape {
		if dim < 0 {
			return 0, breaks(ruleJSON)
		}
		hi, lo := bits.Mul64(count, uint64(dim))
		if hi != 0 {
			return 0, breaks(ruleOverflow)
		}
		count = lo
	}
	hi, n := bits.Mul64(count, uint64(d.Bits()))
	switch {
	case hi != 0 || n > math.MaxInt64:
		return 0, breaks(ruleOverflow)
	case n%8 != 0:
		return 0, breaks(ruleSubByte)
	}
	return int64(n / 8), nil
}
