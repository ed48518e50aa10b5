package tensor

import (
	"encoding/hex"
	"fmt"
	"strconv"

	"github.com/culvert-io/culvert/internal/crc32c"
)

// A Sum is a CRC-32C. As text it has eight hexadecimal digits.
type Sum uint32

func (s Sum) String() string { return fmt.Sprintf("%08x", uint32(s)) }

// MarshalText returns the digits.
func (s Sum) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText accepts exactly eight hexadecimal digits.
func (s *Sum) UnmarshalText(b []byte) error {
	if _, err := hex.DecodeString(string(b)); err != nil || len(b) != 8 {
		return fmt.Errorf("CRC-32C %q: want eight hexadecimal digits", b)
	}
	n, err := strconv.ParseUint(string(b), 16, 32)
	*s = Sum(n)
	return err
}

func sumOf(p []byte) Sum { return Sum(crc32c.Sum(p)) }

// join returns the sum of two ranges in a row, of which the second has n bytes.
func (s Sum) join(next Sum, n int64) Sum { return Sum(crc32c.Join(uint32(s), uint32(next), n)) }
