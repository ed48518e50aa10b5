package tensor

import (
	"fmt"
	"math"
	"math/bits"
)

// MaxHeader is the format's limit on the JSON header, in bytes.
const MaxHeader = 100_000_000

// lengthSize is the size of the header's length in front of it.
const lengthSize = 8

// metadataKey names the header entry that is not a tensor.
const metadataKey = "__metadata__"

// A Rule of the safetensors format. As an error it says that a file breaks the
// rule: errors.Is(err, tensor.RuleOffsets).
type Rule string

// The rules, in the order in which a file is checked against them.
const (
	RuleLength    Rule = "a file starts with the header's length in 8 bytes"
	RuleHeaderMax Rule = "a header has at most 100,000,000 bytes"
	RuleHeaderEnd Rule = "the header lies inside the file"
	RuleUTF8      Rule = "the header is UTF-8"
	RuleJSON      Rule = "the header is one JSON object of tensors with dtype, shape and data_offsets"
	RuleMetadata  Rule = "__metadata__ maps strings to strings"
	RuleDuplicate Rule = "a name occurs once"
	RuleDtype     Rule = "the dtype is one of the format's"
	RuleOffsets   Rule = "data_offsets follow each other without holes or overlaps, from 0"
	RuleOverflow  Rule = "the size of a tensor, counted in bits, fits into 63 bits"
	RuleSubByte   Rule = "a tensor ends on a byte border"
	RuleSize      Rule = "shape and dtype give the size that data_offsets give"
	RuleEnd       Rule = "the file ends where its last tensor does"
)

func (r Rule) Error() string { return string(r) }

// A FormatError says which file breaks which rule, and where.
type FormatError struct {
	File   string
	Tensor string // the entry at fault, where one is known
	Rule   Rule
	Detail string // what was found
}

func (e *FormatError) Error() string {
	s := e.File
	if s == "" {
		s = "safetensors"
	}
	if e.Tensor != "" {
		s += fmt.Sprintf(": tensor %q", e.Tensor)
	}
	return fmt.Sprintf("%s: %s (rule: %s)", s, e.Detail, e.Rule)
}

// Unwrap gives the rule to errors.Is.
func (e *FormatError) Unwrap() error { return e.Rule }

func breaks(r Rule, tensor, format string, args ...any) *FormatError {
	return &FormatError{Tensor: tensor, Rule: r, Detail: fmt.Sprintf(format, args...)}
}

// An Info describes one tensor of a file.
type Info struct {
	Name  string  `json:"name"`
	Dtype Dtype   `json:"dtype"`
	Shape []int64 `json:"shape"`
	Off   int64   `json:"offset"` // of its first byte, from the start of the file
	Len   int64   `json:"bytes"`
}

// byteSize is the size of a packed tensor. The rule is empty where there is one.
func byteSize(d Dtype, shape []int64) (n int64, broken Rule) {
	var count uint64 = 1
	for _, dim := range shape {
		hi, lo := bits.Mul64(count, uint64(dim))
		if hi != 0 {
			return 0, RuleOverflow
		}
		count = lo
	}
	hi, nbits := bits.Mul64(count, uint64(d.Bits()))
	switch {
	case hi != 0 || nbits > math.MaxInt64:
		return 0, RuleOverflow
	case nbits%8 != 0:
		return 0, RuleSubByte
	}
	return int64(nbits / 8), ""
}
