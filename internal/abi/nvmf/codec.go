package nvmf

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/culvert-io/culvert/internal/abi/nvme"
)

// A Struct is a fixed-size structure of the wire.
type Struct interface {
	RDMARequest | RDMAAccept | RDMAReject | ConnectCommand | ConnectData | PropertyCommand | nvme.Command | nvme.Completion
}

// Encode returns the bytes of a structure.
func Encode[S Struct](s *S) []byte {
	b, err := binary.Append(nil, binary.LittleEndian, s)
	if err != nil {
		panic(err) // S has a fixed size
	}
	return b
}

// Decode reads a structure from the beginning of b. It is an error if b is too
// short; what follows the structure is ignored.
func Decode[S Struct](b []byte) (S, error) {
	var s S
	if _, err := binary.Decode(b, binary.LittleEndian, &s); err != nil {
		return s, fmt.Errorf("decode %T: %d bytes must be at least %d", s, len(b), binary.Size(s))
	}
	return s, nil
}

// NQN is a name in a field of 256 bytes.
func NQN(name string) (b [256]byte, err error) {
	if len(name) > 223 {
		return b, fmt.Errorf("name %q has %d bytes, must have at most 223", name, len(name))
	}
	copy(b[:], name)
	return b, nil
}

// Name is the name in such a field.
func Name(b *[256]byte) string {
	name, _, _ := bytes.Cut(b[:], []byte{0})
	return string(name)
}
