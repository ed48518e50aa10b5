package route

import "github.com/culvert-io/culvert/internal/enum"

// A Machine is the kind of machine on which a transfer ran.
type Machine uint8

// They are ordered so that a sum is as weak as its weakest part: one transfer on the
// software machine makes the sum one of the software machine.
const (
	UnknownMachine  Machine = iota // nothing was moved, or the receipt was made by hand
	RealMachine                    // the GPUs and drives of this computer
	SoftwareMachine                // emulated ones: routes and counts say nothing about hardware
)

var machineNames = [...]string{"unknown", "real", "software"}

func (m Machine) String() string { return enum.Name(machineNames[:], m, "Machine(%d)") }

// MarshalText encodes the machine as its name.
func (m Machine) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText is the inverse of MarshalText.
func (m *Machine) UnmarshalText(text []byte) (err error) {
	*m, err = enum.Parse("machine", machineNames[:], UnknownMachine, string(text))
	return err
}
