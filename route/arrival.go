package route

import (
	"fmt"
	"slices"
	"strings"
)

// Arrival says how it is known that the bytes of a direct route arrived: in GPU memory
// for a read, in the file for a write.
type Arrival uint8

const (
	// NotDirect: no direct route moved bytes. Routes through host memory copy what
	// they have read, so there is nothing to prove.
	NotDirect Arrival = iota
	// ArrivalReported: a driver or a drive said so, and nothing was compared.
	ArrivalReported
	// ArrivalSampled: places that nothing could guess were compared.
	ArrivalSampled
	// ArrivalProved: all bytes were compared, or 1 MiB of them spread over the range.
	ArrivalProved
)

var arrivalNames = [...]string{"", "reported", "sampled", "proved"}

func (a Arrival) String() string {
	if int(a) < len(arrivalNames) {
		return arrivalNames[a]
	}
	return fmt.Sprintf("Arrival(%d)", uint8(a))
}

// MarshalText encodes the arrival as its name.
func (a Arrival) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText is the inverse of MarshalText.
func (a *Arrival) UnmarshalText(text []byte) error {
	i := slices.Index(arrivalNames[:], string(text))
	if i < 0 {
		return fmt.Errorf("unknown arrival %q (arrivals: %s)", text, strings.Join(arrivalNames[1:], ", "))
	}
	*a = Arrival(i)
	return nil
}

// weaker is what is known about two transfers together.
func (a Arrival) weaker(b Arrival) Arrival {
	if a == NotDirect || b == NotDirect {
		return max(a, b)
	}
	return min(a, b)
}
