package rm

import (
	"errors"
	"io/fs"
	"testing"
	"testing/fstest"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/dev"
)

// An untouched machine has files, and no device node may be opened.
type untouched struct {
	fstest.MapFS
	t *testing.T
}

func (u untouched) FS() fs.FS { return u.MapFS }

func (u untouched) Open(path string) (dev.Node, error) {
	u.t.Errorf("%s was opened", path)
	return nil, fs.ErrPermission
}

type named struct {
	GPU
	name string
}

func (n named) Info() gpu.Info                       { return gpu.Info{Name: n.name} }
func (n named) Attribute(gpu.Attribute) (int, error) { return 0, errors.ErrUnsupported }

// Where BAR1 is not a plain window on all memory, the driver is left alone.
func TestDeclined(t *testing.T) {
	const h100 = "NVIDIA H100 80GB HBM3"
	for name, c := range map[string]struct {
		gpu   string
		files []string
		flags string
		test  string
	}{
		"MIG":                 {h100 + " MIG 1g.10gb", nil, "", "MIG"},
		"TDX":                 {h100, []string{"dev/tdx_guest"}, "", "confidential computing"},
		"SEV-SNP":             {h100, []string{"dev/sev-guest"}, "", "confidential computing"},
		"TDX, in a container": {h100, nil, "flags\t\t: fpu vme tdx_guest avx\n", "confidential computing"},
	} {
		os := untouched{fstest.MapFS{"proc/cpuinfo": {Data: []byte("processor\t: 0\n" + c.flags)}}, t}
		for _, f := range c.files {
			os.MapFS[f] = &fstest.MapFile{}
		}
		m := NewMapper(os, named{name: c.gpu}, NoBudget)
		u, ok := errors.AsType[*Unavailable](m.Probe())
		if !ok || u.Test != c.test {
			t.Errorf("%s: %v", name, u)
		}
	}
	plain := untouched{fstest.MapFS{"proc/cpuinfo": {Data: []byte("flags : fpu sev sev_es\n")}}, t}
	if err := declined(plain, gpu.Info{Name: h100}); err != nil {
		t.Errorf("a host that can have confidential guests: %v", err)
	}
}

func TestPartitioned(t *testing.T) {
	os := untouched{fstest.MapFS{"proc/driver/nvidia/capabilities/gpu1/mig/gi3/access": {}}, t}
	if u, ok := errors.AsType[*Unavailable](partitioned(os, 1)); !ok || u.Test != "MIG" || u.Fix == "" {
		t.Errorf("a GPU with instances: %v", u)
	}
	if err := partitioned(os, 0); err != nil {
		t.Errorf("the GPU beside it: %v", err)
	}
}
