package route

import (
	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/dev"
)

// For builds the ladder of a GPU from what the machine has. os is where the
// probes look for nodes and modules.
func For(device gpu.Device, os dev.OS) (*Ladder, error) {
	return NewLadder([]Route{NewHost(device)}, absent(os)), nil
}
