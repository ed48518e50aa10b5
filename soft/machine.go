package soft

import (
	"fmt"

	"github.com/culvert-io/culvert/internal/dev"
	softgpu "github.com/culvert-io/culvert/soft/gpu"
)

// A Machine is the devices of a software machine, ready to be opened.
type Machine struct {
	GPU *softgpu.Driver
	OS  dev.OS
}

// New builds a machine.
func New(cfg Config) (*Machine, error) {
	g, err := softgpu.New(cfg.gpu())
	if err != nil {
		return nil, fmt.Errorf("software GPU: %w", err)
	}
	return &Machine{GPU: g, OS: dev.Host()}, nil
}
