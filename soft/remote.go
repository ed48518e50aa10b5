package soft

import (
	"errors"
	"fmt"

	"github.com/culvert-io/culvert/soft/kernel/nvfs/nvmerdma"
	"github.com/culvert-io/culvert/soft/nic"
)

// remoteDrive is the value of Config.Drive for a drive on another host.
const remoteDrive = "nvme-rdma"

// loadRemote loads nvme_rdma. It has a drive if the configuration wants one.
func (m *Machine) loadRemote() error {
	cfg := nvmerdma.Config{NIC: m.storageNIC, Points: m.cfg.Points}
	switch m.cfg.Drive {
	case "", "nvme":
	case remoteDrive:
		if m.cfg.Fabrics == nil {
			return errors.New("drive nvme-rdma: Config.Fabrics is nil (fix: build the machine with package machine)")
		}
		if m.cfg.Stack != "" {
			return errors.New("drive nvme-rdma and stack exclude each other")
		}
		if len(m.nics()) == 0 {
			return errors.New("drive nvme-rdma needs a network adapter (fix: remove nics=0)")
		}
		cfg.Fabrics = m.cfg.Fabrics
		nvmerdma.Show(m.os, nicName(0, m.nics()[0]))
	default:
		return fmt.Errorf("unknown drive %q (drives: nvme, nvme-rdma)", m.cfg.Drive)
	}
	m.remote = nvmerdma.New(cfg)
	m.remote.Lie(m.cfg.Liar)
	return m.loaded(m.remote, nil)
}

// storageNIC is the adapter that reaches a remote drive.
func (m *Machine) storageNIC() (*nic.NIC, error) {
	all, err := m.NICs()
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

// Remote returns the driver of a remote drive, to break its connection and to count. It is
// nil if nvidia-fs is not loaded.
func (m *Machine) Remote() *nvmerdma.Module { return m.remote }
