package route

import "fmt"

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

func (m Machine) String() string {
	if int(m) < len(machineNames) {
		return machineNames[m]
	}
	return fmt.Sprintf("Machine(%d)", uint8(m))
}

// MarshalText encodes the machine as its name.
func (m Machine) MarshalText() ([]byte, error) { return []byte(m.String()), nil }
