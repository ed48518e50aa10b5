package route

import "fmt"

// A Dir is the direction of a transfer.
type Dir uint8

const (
	Read  Dir = iota // file to GPU
	Write            // GPU to file
)

func (d Dir) String() string {
	switch d {
	case Read:
		return "read"
	case Write:
		return "write"
	}
	return fmt.Sprintf("Dir(%d)", uint8(d))
}

// MarshalText encodes the direction as its name.
func (d Dir) MarshalText() ([]byte, error) { return []byte(d.String()), nil }
