package rm_test

import (
	"io/fs"
	"testing"
	"testing/fstest"

	"github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/internal/rm"
)

// An overlay has the device nodes of one machine and the files of another.
type overlay struct {
	dev.OS
	files fstest.MapFS
}

func (o overlay) FS() fs.FS { return o.files }

func TestInstances(t *testing.T) {
	m := newMachine(t, config{})
	os := overlay{dev.Of(m.os), fstest.MapFS{"proc/driver/nvidia/capabilities/gpu0/mig/gi1/access": {}}}
	mapper := rm.NewMapper(os, m.device(t, 0), rm.NoBudget)
	defer mapper.Close()
	decline(t, mapper.Probe(), "MIG")
}
