package lab

import (
	"bytes"
	"os"
)

// A Feature is what some suites need of a kernel and not every kernel has.
type Feature struct {
	Name   string
	marker string // a string that images with the feature contain
	module string // of kernels that have it as a module; "" if it is never one
}

// The features. Each marker is a name that the feature shows to programs.
var (
	PeerDMA      = Feature{"peer-to-peer DMA", "p2pmem", ""}
	MemoryGroups = Feature{"control groups for memory", "oom.group", ""}
	MemoryNodes  = Feature{"memory nodes", "numa_maps", ""}
	NFSServer    = Feature{"an NFS server", "nfsd", "nfsd"}
)

// Has reports whether the kernel has a feature.
func (k Kernel) Has(f Feature) (bool, error) {
	if f.module != "" && k.Modules != "" {
		t, err := readModuleTable(k.Modules)
		if err != nil {
			return false, err
		}
		return t.files[f.module] != "" || t.builtin[f.module], nil
	}
	b, err := os.ReadFile(k.Image)
	return bytes.Contains(b, []byte("\x00"+f.marker+"\x00")), err
}
