package main

import (
	"encoding/json"
	"fmt"
	"io"
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
		return 0, usageError{fmt.Errorf("%q names no GPU: want gpu:0, gpu:1, …", s)}
	}
	return int(n), nil
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

// openDriver opens the machine that the environment asks for, and cuFile on it.
// The machine must have the GPUs that are named.
func openDriver(gpus ...int) (*machine.Machine, *cufile.Driver, error) {
	m, err := machine.Open()
	if err != nil {
		return nil, nil, err
	}
	if err := hasGPUs(m, gpus); err != nil {
		return nil, nil, err
	}
	drv, err := cufile.Open(m)
	return m, drv, err
}

func hasGPUs(m *machine.Machine, gpus []int) error {
	there, err := m.GPU.Devices()
	if err != nil {
		return err
	}
	for _, n := range gpus {
		if n < len(there) {
			continue
		}
		fix := "culvert check lists them"
		if m.Soft {
			fix = fmt.Sprintf("CULVERT_SOFT=gpus=%d gives the software machine more", n+1)
		}
		return fmt.Errorf("no gpu:%d: GPUs in this machine: %d (%s)", n, len(there), fix)
	}
	return nil
}

func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}
