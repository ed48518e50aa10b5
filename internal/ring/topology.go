package ring

import (
	"io/fs"
	"path"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// machine is what sysfs says of the place where a GPU is plugged in. Cores need
// no look: GOMAXPROCS already follows affinity and cgroup.
type topology struct{ root fs.FS }

func (m topology) read(pci, name string) string {
	b, err := fs.ReadFile(m.root, path.Join("sys/bus/pci/devices", strings.ToLower(pci), name))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// link is the rate of the GPU's PCIe link in bytes per second, or 0. It is the
// most that both ends can do: an idle GPU slows its link down.
func (m topology) link(pci string) int64 {
	speed, _, _ := strings.Cut(m.read(pci, "max_link_speed"), " ") // "32.0 GT/s PCIe"
	gts, err := strconv.ParseFloat(speed, 64)
	if err != nil {
		return 0
	}
	width, err := strconv.Atoi(m.read(pci, "max_link_width"))
	if err != nil {
		return 0
	}
	bits := 128.0 / 130
	if gts < 8 {
		bits = 8.0 / 10
	}
	return int64(gts * 1e9 * bits / 8 * float64(width))
}

// near is the set of CPUs beside the GPU, and whether it tells anything: on a
// machine with one memory node all CPUs are.
func (m topology) near(pci string) (unix.CPUSet, bool) {
	var mine, local unix.CPUSet
	if unix.SchedGetaffinity(0, &mine) != nil {
		return local, false
	}
	for _, cpu := range parseCPUs(m.read(pci, "local_cpulist")) {
		if mine.IsSet(cpu) {
			local.Set(cpu)
		}
	}
	return local, local.Count() > 0 && local.Count() < mine.Count()
}

// parseCPUs reads "0-3,8".
func parseCPUs(list string) []int {
	var cpus []int
	for part := range strings.SplitSeq(list, ",") {
		first, last, isRange := strings.Cut(part, "-")
		from, err := strconv.Atoi(first)
		if err != nil {
			return cpus
		}
		to := from
		if isRange {
			if to, err = strconv.Atoi(last); err != nil {
				return cpus
			}
		}
		const most = 4096 // CPUs that a kernel can have; more is not a list of CPUs
		for cpu := from; cpu <= to && len(cpus) < most; cpu++ {
			cpus = append(cpus, cpu)
		}
	}
	return cpus
}

// beside runs do on a thread that the scheduler keeps on the CPUs near the GPU,
// so that memory which it touches first is near, too.
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
				runtime.LockOSThread() // the thread is spoilt: let it end with its goroutine
			}
		}()
	}
	return do()
}
