package route

import "github.com/culvert-io/culvert/internal/enum"

// A Dir is the direction of a transfer.
type Dir uint8

const (
	Read  Dir = iota // file to GPU
	Write            // GPU to file
)

var dirNames = [...]string{"read", "write"}

func (d Dir) String() string { return enum.Name(dirNames[:], d, "Dir(%d)") }

// MarshalText encodes the direction as its name.
func (d Dir) MarshalText() ([]byte, error) { return []byte(d.String()), nil }
