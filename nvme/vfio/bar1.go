package vfio

import (
	"errors"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/internal/rm"
	"github.com/culvert-io/culvert/machine"
)

// BAR1 returns a Config.View that maps memory of g, a GPU of m, through BAR1.
func BAR1(m *machine.Machine, g gpu.Device) func(gpu.Span) ([]byte, func() error, error) {
	return func(s gpu.Span) ([]byte, func() error, error) {
		mapper := rm.NewMapper(dev.Of(m), g, rm.NoBudget)
		w, err := mapper.Map(s.Addr(), s.Len)
		if err != nil {
			return nil, nil, errors.Join(err, mapper.Close())
		}
		return w.Bytes(), func() error { return errors.Join(w.Close(), mapper.Close()) }, nil
	}
}
