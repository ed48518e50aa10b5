package route

import "github.com/culvert-io/culvert/internal/enum"

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

func (a Arrival) String() string { return enum.Name(arrivalNames[:], a, "Arrival(%d)") }

// MarshalText encodes the arrival as its name.
func (a Arrival) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText is the inverse of MarshalText.
func (a *Arrival) UnmarshalText(text []byte) (err error) {
	*a, err = enum.Parse("arrival", arrivalNames[:], NotDirect, string(text))
	return err
}

// weaker is what is known about two transfers together.
func (a Arrival) weaker(b Arrival) Arrival {
	if a == NotDirect || b == NotDirect {
		return max(a, b)
	}
	return min(a, b)
}
