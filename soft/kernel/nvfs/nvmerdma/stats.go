package nvmerdma

import (
	"sync/atomic"

	"github.com/culvert-io/culvert/soft/pcie"
)

// Stats are the module's counters.
type Stats struct {
	Out, In     uint64 // bytes of data from the drive, and to it
	GPU, CPU    uint64 // commands with memory that nvidia-fs mapped, and with ordinary memory
	MapErrors   uint64 // commands whose memory nvidia-fs did not map
	Connections uint64
	Retries     uint64 // requests that were performed again
}

type counters struct {
	out, in, gpu, cpu, mapErrors, connections, retries atomic.Uint64
}

func (c *counters) moved(write bool, n int) {
	if write {
		c.in.Add(uint64(n))
	} else {
		c.out.Add(uint64(n))
	}
}

// Stats returns the counters.
func (m *Module) Stats() Stats {
	c := &m.stats
	return Stats{
		Out: c.out.Load(), In: c.in.Load(), GPU: c.gpu.Load(), CPU: c.cpu.Load(), MapErrors: c.mapErrors.Load(),
		Connections: c.connections.Load(), Retries: c.retries.Load(),
	}
}

// Port returns where the adapter is plugged in, nil before the first request.
func (m *Module) Port() *pcie.Function {
	m.link.Lock()
	defer m.link.Unlock()
	if m.nic == nil {
		return nil
	}
	return m.nic.Function()
}

// Cut ends the connection with the target, as a network that fails does. The module
// connects again.
func (m *Module) Cut() {
	m.link.Lock()
	defer m.link.Unlock()
	if m.s != nil {
		m.s.target.listen.cut()
	}
}

// Down ends the connection; the target does not answer until Down(false).
func (m *Module) Down(down bool) {
	m.down.Store(down)
	if down {
		m.Cut()
	}
}
