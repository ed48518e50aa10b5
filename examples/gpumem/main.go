// Gpumem shows how a device that CUDA does not know reaches GPU memory. It locks
// memory, lists its physical pages, writes each through a CPU mapping, then has a DMA
// engine write them. It checks the result on the GPU each time.
//
// It needs the gpudma project's module gpumem. The software machine has the module,
// and an engine.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/gpumem"
	"github.com/culvert-io/culvert/machine"
	"github.com/culvert-io/culvert/soft"
	"github.com/culvert-io/culvert/soft/pcie"
)

func main() {
	log.SetFlags(0)
	size := flag.Uint64("size", 1<<20, "bytes to allocate")
	flag.Parse()
	m, err := machine.Open()
	if err == nil {
		err = on(os.Stdout, m, *size)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// on runs on a machine. A software machine gets an engine below the GPU's switch.
func on(out io.Writer, m *machine.Machine, size uint64) error {
	d, err := m.GPU.Open(0)
	if err != nil {
		return err
	}
	s, ok := soft.Of(m.GPU)
	if !ok {
		return errors.Join(run(out, m, d, nil, size), d.Close())
	}
	fmt.Fprintf(out, "Software machine: %s\n", m.Why)
	port, err := s.Plug(0)
	if err != nil {
		return errors.Join(err, d.Close())
	}
	if err := errors.Join(run(out, m, d, &pcie.Engine{Port: port}, size), d.Close()); err != nil {
		return err
	}
	fmt.Fprintf(out, "The engine moved %d bytes over its link, %d of them to host memory.\n",
		port.Traffic().Up, port.Fabric().HostTraffic().Written)
	return nil
}

// run runs all steps. e is nil without an engine.
func run(out io.Writer, m *machine.Machine, d gpu.Device, e *pcie.Engine, size uint64) (err error) {
	fmt.Fprintf(out, "%s\n", d.Info().Name)
	// Whole pages, and at least 1 MiB: the driver puts smaller allocations into
	// shared pages, which are overwritten below.
	size = (max(size, 1<<20) + gpumem.PageSize - 1) &^ (gpumem.PageSize - 1)
	a, err := d.Alloc(gpu.KindDevice, size, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Free(a)) }()
	// Without this another device may see old bytes after a copy has returned.
	if err := d.SetSyncMemops(a, true); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.SetSyncMemops(a, false)) }()
	c, err := gpumem.Open(m)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }() // unmaps and unlocks
	l, err := c.Lock(a, size)
	if err != nil {
		return err
	}
	pages, err := l.Pages()
	if err != nil {
		return err
	}
	list(out, l, pages)
	if err := mapAndWrite(out, d, a, l); err != nil {
		return err
	}
	if e == nil {
		fmt.Fprintln(out, "Now give these addresses to your device.")
		return nil
	}
	return engineWrites(out, d, a, l, pages, e)
}

func list(out io.Writer, l *gpumem.Lock, pages []uint64) {
	fmt.Fprintf(out, "%d pages of %d bytes are locked at %v:\n", len(pages), gpumem.PageSize, l.Addr())
	for i, p := range pages {
		if i == 4 && len(pages) > 6 {
			fmt.Fprintf(out, "  ... %d more\n", len(pages)-i)
			break
		}
		fmt.Fprintf(out, "  %02d: %#x\n", i, p)
	}
}

// expect compares GPU memory with what was written.
func expect(d gpu.Device, at gpu.Addr, want []byte) error {
	if err := d.Synchronize(); err != nil {
		return err
	}
	got := make([]byte, len(want))
	if err := d.CopyOut(got, at); err != nil {
		return err
	}
	if !bytes.Equal(got, want) {
		return fmt.Errorf("GPU memory differs at %v", at)
	}
	return nil
}

// mapAndWrite writes the number of each page into it, through a mapping.
func mapAndWrite(out io.Writer, d gpu.Device, a gpu.Addr, l *gpumem.Lock) error {
	for i := range l.Len() {
		m, err := l.Map(i)
		if err != nil {
			return err
		}
		copy(m.Bytes(), bytes.Repeat([]byte{byte(i + 1)}, gpumem.PageSize))
		if err := m.Unmap(); err != nil {
			return err
		}
		if err := expect(d, a+gpu.Addr(i*gpumem.PageSize), bytes.Repeat([]byte{byte(i + 1)}, gpumem.PageSize)); err != nil {
			return fmt.Errorf("page %d: %w", i, err)
		}
	}
	fmt.Fprintf(out, "The CPU wrote %d pages through mappings, and the GPU has read them.\n", l.Len())
	return nil
}

// engineWrites has the engine write all pages, the last one first.
func engineWrites(out io.Writer, d gpu.Device, a gpu.Addr, l *gpumem.Lock, pages []uint64, e *pcie.Engine) error {
	n := len(pages)
	var sg []pcie.Range
	var data, want []byte
	for i := range n {
		sg = append(sg, pcie.Range{Bus: pages[n-1-i], Len: gpumem.PageSize})
		data = append(data, bytes.Repeat([]byte{byte(0x80 + i)}, gpumem.PageSize)...)
		want = append(want, bytes.Repeat([]byte{byte(0x80 + n - 1 - i)}, gpumem.PageSize)...)
	}
	if _, err := e.Write(sg, data); err != nil {
		return err
	}
	if err := expect(d, a, want); err != nil {
		return err
	}
	fmt.Fprintf(out, "The engine wrote %d pages at their physical addresses, and the GPU has read them.\n", n)
	if err := l.Unlock(); err != nil {
		return err
	}
	if _, err := e.Write(sg[:1], data); err == nil {
		return errors.New("the engine reaches the memory after the unlock")
	}
	fmt.Fprintln(out, "After the unlock the fabric refuses the engine.")
	return nil
}
