package tensor

import (
	"cmp"
	"fmt"

	"github.com/culvert-io/culvert/internal/object"
)

// The rules of the format, in the order in which a file is checked against them.
const (
	ruleLength    = "a file starts with the header's length in 8 bytes"
	ruleHeaderMax = "a header has at most 100,000,000 bytes"
	ruleHeaderEnd = "the header lies inside the file"
	ruleUTF8      = "the header is UTF-8"
	ruleJSON      = "the header is one JSON object of tensors with dtype, shape and data_offsets"
	ruleMetadata  = "__metadata__ maps strings to strings"
	ruleDuplicate = "a name occurs once"
	ruleDtype     = "the dtype is one of the format's"
	ruleOffsets   = "data_offsets follow each other without holes or overlaps, from 0"
	ruleOverflow  = "the size of a tensor, counted in bits, fits into 63 bits"
	ruleSubByte   = "a tensor ends on a byte boundary"
	ruleSize      = "shape and dtype give the size that data_offsets give"
	ruleEnd       = "the file ends where its last tensor does"

	ruleIndex = "an index maps the names of tensors to files in its directory"
)

// A FormatError says which rule of the format a file breaks, and where.
type FormatError struct {
	File   string // the file, or an index of shards
	Tensor string // the entry at fault, where one is known
	Rule   string
	Detail string // what was found
}

func (e *FormatError) Error() string {
	s := cmp.Or(object.Redact(e.File), "safetensors")
	if e.Tensor != "" {
		s += fmt.Sprintf(": tensor %q", e.Tensor)
	}
	return fmt.Sprintf("%s: %s (rule: %s)", s, e.Detail, e.Rule)
}

func breaks(rule, tensor, format string, args ...any) *FormatError {
	return &FormatError{Tensor: tensor, Rule: rule, Detail: fmt.Sprintf(format, args...)}
}
