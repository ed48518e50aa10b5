package endpoint

import (
	"testing"

	"github.com/culvert-io/culvert/rdma"
	"github.com/culvert-io/culvert/rdma/tcp"
)

// Whatever an endpoint has, and wherever making it fails, Close leaves nothing behind: a
// device with objects cannot be closed.
func TestNothingIsLeft(t *testing.T) {
	huge := rdma.QPCaps{SendWR: 1 << 30}
	for name, c := range map[string]struct {
		cfg  Config
		fail bool
	}{
		"with memory":       {Config{Completions: 4, Bytes: 8192, Access: rdma.LocalWrite}, false},
		"without memory":    {Config{Completions: 4}, false},
		"wrong access":      {Config{Completions: 4, Bytes: 8192, Access: rdma.RemoteWrite}, true},
		"no completions":    {Config{Bytes: 8192, Access: rdma.LocalWrite}, true},
		"queues too large":  {Config{Completions: 4, Bytes: 8192, Access: rdma.LocalWrite, Caps: huge}, true},
		"memory too large":  {Config{Completions: 4, Bytes: 1 << 62}, true},
		"domain of another": {Config{Completions: 4, Bytes: 4096, Access: rdma.LocalWrite}, false},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := tcp.New(tcp.Config{})
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			dev, err := p.Open("")
			if err != nil {
				t.Fatal(err)
			}
			if name == "domain of another" {
				if c.cfg.PD, err = dev.AllocPD(); err != nil {
					t.Fatal(err)
				}
			}
			e, err := New(dev, c.cfg)
			if (err != nil) != c.fail {
				t.Fatalf("new: %v", err)
			}
			if err == nil {
				if _, err := e.Pair(huge); err == nil {
					t.Error("a queue pair that no device has")
				}
				if e.Mem != nil && e.SGE(4096, 1)[0].Addr != e.Mem.Addr()+4096 {
					t.Error("a wrong address")
				}
				if err := e.Close(); err != nil {
					t.Error(err)
				}
			}
			if c.cfg.PD != nil { // it is the caller's
				if err := c.cfg.PD.Close(); err != nil {
					t.Error(err)
				}
			}
			if err := dev.Close(); err != nil {
				t.Errorf("something is left: %v", err)
			}
		})
	}
}
