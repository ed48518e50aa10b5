package tensor

import "fmt"

// A Dtype is the type of a tensor's elements.
type Dtype uint8

// The element types of the format. Those of one byte or more are little-endian.
const (
	BOOL Dtype = iota + 1
	F4
	F6_E2M3
	F6_E3M2
	U8
	I8
	F8_E5M2
	F8_E4M3
	F8_E8M0
	F8_E4M3FNUZ
	F8_E5M2FNUZ
	I16
	U16
	F16
	BF16
	I32
	U32
	F32
	C64
	F64
	I64
	U64
)

var dtypes = [...]struct {
	name string
	bits uint8
}{
	BOOL: {"BOOL", 8}, F4: {"F4", 4}, F6_E2M3: {"F6_E2M3", 6}, F6_E3M2: {"F6_E3M2", 6},
	U8: {"U8", 8}, I8: {"I8", 8},
	F8_E5M2: {"F8_E5M2", 8}, F8_E4M3: {"F8_E4M3", 8}, F8_E8M0: {"F8_E8M0", 8},
	F8_E4M3FNUZ: {"F8_E4M3FNUZ", 8}, F8_E5M2FNUZ: {"F8_E5M2FNUZ", 8},
	I16: {"I16", 16}, U16: {"U16", 16}, F16: {"F16", 16}, BF16: {"BF16", 16},
	I32: {"I32", 32}, U32: {"U32", 32}, F32: {"F32", 32},
	C64: {"C64", 64}, F64: {"F64", 64}, I64: {"I64", 64}, U64: {"U64", 64},
}

var dtypeByName = func() map[string]Dtype {
	m := make(map[string]Dtype, len(dtypes))
	for d := BOOL; d.Valid(); d++ {
		m[d.String()] = d
	}
	return m
}()

// ParseDtype takes the name that headers use, such as "BF16".
func ParseDtype(s string) (Dtype, error) {
	if d, ok := dtypeByName[s]; ok {
		return d, nil
	}
	return 0, fmt.Errorf("unknown dtype %q", s)
}

// Valid reports whether d is one of the format's types.
func (d Dtype) Valid() bool { return d != 0 && int(d) < len(dtypes) }

func (d Dtype) String() string {
	if d.Valid() {
		return dtypes[d].name
	}
	return fmt.Sprintf("Dtype(%d)", uint8(d))
}

// Bits is the size of one element. The F4 and F6 types have less than a byte,
// and their tensors are packed without gaps.
func (d Dtype) Bits() int {
	if d.Valid() {
		return int(dtypes[d].bits)
	}
	return 0
}

// MarshalText gives the name that headers use.
func (d Dtype) MarshalText() ([]byte, error) {
	if !d.Valid() {
		return nil, fmt.Errorf("%v is not a dtype of the format", d)
	}
	return []byte(d.String()), nil
}

// UnmarshalText takes what MarshalText gives.
func (d *Dtype) UnmarshalText(b []byte) (err error) {
	*d, err = ParseDtype(string(b))
	return err
}
