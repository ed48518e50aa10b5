package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/machine"
)

// parseGPU reads "gpu:0".
func parseGPU(s string) (int, error) {
	digits, ok := strings.CutPrefix(s, "gpu:")
	n, err := strconv.ParseUint(digits, 10, 8)
	if !ok || err != nil {
		return 0, usageError{fmt.Errorf("invalid GPU %q (want gpu:N, such as gpu:0)", s)}
	}
	return int(n), nil
}

// gpuArg reads the second argument, which names a GPU; gpu:0 if there is none.
func gpuArg(a []string) (int, error) {
	if len(a) < 2 {
		return 0, nil
	}
	return parseGPU(a[1])
}

// parseGPUs reads "gpu:0,gpu:1".
func parseGPUs(list string) (devices []int, err error) {
	for name := range strings.SplitSeq(list, ",") {
		dev, err := parseGPU(name)
		if err != nil {
			return nil, err
		}
		if slices.Contains(devices, dev) {
			return nil, usageError{fmt.Errorf("%s is named twice", name)}
		}
		devices = append(devices, dev)
	}
	return devices, nil
}

// openDriver opens the machine that the environment selects, and cuFile on it.
// The machine must have the named GPUs.
func openDriver(gpus ...int) (*machine.Machine, *cufile.Driver, error) {
	m, err := machine.Open()
	if err != nil {
		return nil, nil, err
	}
	if err := checkGPUs(m, gpus...); err != nil {
		return nil, nil, err
	}
	drv, err := cufile.Open(m)
	return m, drv, err
}

func checkGPUs(m *machine.Machine, gpus ...int) error {
	have, err := m.GPU.Devices()
	if err != nil {
		return err
	}
	for _, n := range gpus {
		if n < len(have) {
			continue
		}
		fix := "culvert check lists them"
		if m.Soft {
			fix = fmt.Sprintf("CULVERT_SOFT=gpus=%d gives the software machine more", n+1)
		}
		return fmt.Errorf("gpu:%d not found: this machine has %d (%s)", n, len(have), fix)
	}
	return nil
}
