package rm

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/dev"
)

// declined returns an [*Unavailable] where BAR1 is not the plain window on all GPU
// memory that this package was written for. Nothing is asked of the driver before.
func declined(os dev.OS, info gpu.Info) error {
	if strings.Contains(info.Name, " MIG ") {
		return unavailable("MIG", fmt.Errorf("%s is a part of a GPU: mapping its memory was never tried", info.Name))
	}
	return confined(os)
}

// confined is declined in a confidential virtual machine.
func confined(os dev.OS) error {
	if dev.Simulated(os) || !confidential(os.FS()) {
		return nil
	}
	return unavailable("confidential computing", errors.New("this is a confidential virtual machine: the GPU protects its memory from the CPU"))
}

// partitioned is declined for a GPU with MIG instances, which a process may use whole.
func partitioned(os dev.OS, minor uint32) error {
	dirs, err := fs.Glob(os.FS(), fmt.Sprintf("proc/driver/nvidia/capabilities/gpu%d/mig/gi*", minor))
	if err == nil && len(dirs) > 0 {
		return &Unavailable{
			Test: "MIG", Err: fmt.Errorf("the GPU has %d MIG instances (/%s): mapping its memory was never tried", len(dirs), dirs[0]),
			Fix: "nvidia-smi -mig 0, as root, if nothing uses the instances",
		}
	}
	return nil
}

// confidential reports a guest of Intel TDX or AMD SEV-SNP. A GPU in the mode of
// confidential computing works in no other machine. A container may lack the device
// nodes, but has the processor's flags.
func confidential(root fs.FS) bool {
	for _, node := range []string{"dev/tdx_guest", "dev/sev-guest"} {
		if _, err := fs.Stat(root, node); err == nil {
			return true
		}
	}
	f, err := root.Open("proc/cpuinfo")
	if err != nil {
		return false
	}
	defer f.Close()
	first := make([]byte, 4<<10) // the first processor: there may be hundreds
	n, _ := io.ReadFull(f, first)
	return strings.Contains(string(first[:n]), " tdx_guest")
}
