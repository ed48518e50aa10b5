package nic_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/culvert-io/culvert/rdma"
	"github.com/culvert-io/culvert/rdma/rdmatest"
	"github.com/culvert-io/culvert/soft"
	"github.com/culvert-io/culvert/soft/pcie"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// machine builds a machine, which is not in use any more when the test ends.
func machine(t *testing.T, cfg soft.Config) *soft.Machine {
	t.Helper()
	if cfg.Memory == 0 {
		cfg.Memory = 16 << 20
	}
	m, err := soft.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.InUse(); err != nil {
			t.Error(err)
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

func open(t *testing.T, m *soft.Machine, name string) rdma.Device {
	t.Helper()
	d, err := m.RDMA().Open(name)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// The software adapter and TCP give the same bytes and the same completions.
func TestConformance(t *testing.T) {
	for _, mode := range []pcie.IOMMU{pcie.Off, pcie.Translating} {
		t.Run(mode.String(), func(t *testing.T) {
			rdmatest.Run(t, rdmatest.Backend{Open: func(t *testing.T) (a, b rdma.Device) {
				m := machine(t, soft.Config{IOMMU: mode, NICs: []soft.NIC{{GPU: 0}, {GPU: -1}}})
				return open(t, m, "soft0"), open(t, m, "soft1")
			}})
		})
	}
}
