package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/culvert-io/culvert/gdrcopy"
	"github.com/culvert-io/culvert/machine"
)

// fill is the whole child. A nil machine is this computer.
func fill(socket *os.File, m *machine.Machine) (err error) {
	conn, err := connect(socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	want, f, err := receive(conn)
	if err != nil {
		return err
	}
	defer f.Close()
	b, err := gdrcopy.Import(m, want.PCI, f, want.Size)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Unpin()) }()
	start := time.Now()
	if err := write(b, want.Size); err != nil {
		return err
	}
	_, err = fmt.Fprintf(conn, "process %d, driver library loaded: %v, has written %d bytes in %v",
		os.Getpid(), hasCUDA(), want.Size, time.Since(start).Round(time.Microsecond))
	return err
}

func write(b *gdrcopy.Buffer, size uint64) error {
	const step = 1 << 20
	buf := make([]byte, step)
	for off := uint64(0); off < size; off += step {
		part := buf[:min(step, size-off)]
		pattern(part, off)
		if err := b.CopyTo(off, part); err != nil {
			return err
		}
	}
	return nil
}

// hasCUDA looks for the driver's library in this process.
func hasCUDA() bool {
	maps, err := os.ReadFile("/proc/self/maps")
	return err == nil && strings.Contains(string(maps), "libcuda")
}
