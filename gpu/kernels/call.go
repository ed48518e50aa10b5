package kernels

import "github.com/culvert-io/culvert/gpu"

// Call loads a kernel on a device, runs it and waits for its end. A program that runs
// one often loads PTX itself: loading takes longer than most kernels.
func Call(dev gpu.Device, name string, grid, block gpu.Dim, args ...any) error {
	m, err := dev.Load(PTX)
	if err != nil {
		return err
	}
	defer m.Close()
	f, err := m.Func(name)
	if err != nil {
		return err
	}
	s, err := dev.NewStream()
	if err != nil {
		return err
	}
	defer s.Close()
	if err := s.Launch(f, grid, block, args...); err != nil {
		return err
	}
	return s.Synchronize()
}
