package ring

import (
	"io/fs"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/internal/sysfs"
)

// A topology is what sysfs says about the PCIe slot of a GPU.
type topology struct{ root fs.FS }

func (t topology) read(pci, name string) string { return sysfs.Text(t.root, sysfs.PCI(pci)+"/"+name) }

// link is the rate of the GPU's PCIe link in bytes per second; 0 if unknown. It is
// the maximum of both ends: an idle GPU slows its link down.
func (t topology) link(pci string) int64 {
	speed, _, _ := strings.Cut(t.read(pci, "max_link_speed"), " ") // "32.0 GT/s PCIe"
	gts, err := strconv.ParseFloat(speed, 64)
	if err != nil {
		return 0
	}
	width, err := strconv.Atoi(t.read(pci, "max_link_width"))
	if err != nil {
		return 0
	}
	bits := 128.0 / 130
	if gts < 8 {
		bits = 8.0 / 10
	}
	return int64(gts * 1e9 * bits / 8 * float64(width))
}

// near is the set of CPUs close to the GPU; nil if all that the process may use are,
// as on a machine with one memory node.
func (t topology) near(pci string) *unix.CPUSet {
	var allowed, local unix.CPUSet
	if unix.SchedGetaffinity(0, &allowed) != nil {
		return nil
	}
	for _, cpu := range parseCPUs(t.read(pci, "local_cpulist")) {
		if allowed.IsSet(cpu) {
			local.Set(cpu)
		}
	}
	if local.Count() == 0 || local.Count() == allowed.Count() {
		return nil
	}
	return &local
}

// parseCPUs parses "0-3,8".
func parseCPUs(list string) []int {
	var cpus []int
	for part := range strings.SplitSeq(list, ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		from, err := strconv.Atoi(first)
		to, err2 := strconv.Atoi(last)
		if err != nil || err2 != nil {
			return cpus
		}
		const most = 4096 // CPUs that a kernel can have
		for cpu := from; cpu <= to && len(cpus) < most; cpu++ {
			cpus = append(cpus, cpu)
		}
	}
	return cpus
}

// runNear runs do on a thread that stays on the CPUs near the GPU, so that memory
// which it touches first is near, too.
func runNear(near *unix.CPUSet, do func() error) error {
	if near == nil {
		return do()
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before unix.CPUSet
	if unix.SchedGetaffinity(0, &before) == nil && unix.SchedSetaffinity(0, near) == nil {
		defer func() {
			if unix.SchedSetaffinity(0, &before) != nil {
				runtime.LockOSThread() // the thread must end with its goroutine
			}
		}()
	}
	return do()
}
