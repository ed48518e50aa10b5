// Gdrcopy measures how fast the CPU reads and writes GPU memory through a mapping,
// and the driver's copies, by size.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"text/tabwriter"
	"time"

	"github.com/culvert-io/culvert/gdrcopy"
	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/machine"
)

func main() {
	log.SetFlags(0)
	limit := flag.Int("max", 1<<20, "largest size in bytes")
	each := flag.Duration("time", 20*time.Millisecond, "time to spend on each figure")
	flag.Parse()
	m, err := machine.Open()
	if err == nil {
		err = run(os.Stdout, m, *limit, *each)
	}
	if err != nil {
		log.Fatal(err)
	}
}

func run(out io.Writer, m *machine.Machine, limit int, each time.Duration) error {
	if limit < 1 {
		return fmt.Errorf("largest size %d must be at least 1", limit)
	}
	d, err := m.GPU.Open(0)
	if err != nil {
		return err
	}
	defer d.Close()
	a, err := d.Alloc(gpu.KindVirtual, uint64(limit), 0)
	if err != nil {
		return err
	}
	defer d.Free(a)
	s, err := gdrcopy.Open(m, d)
	if err != nil {
		return err
	}
	defer s.Close()
	b, err := s.Pin(a, uint64(limit))
	if err != nil {
		return err
	}
	if err := b.Map(); err != nil {
		return err
	}
	info, err := b.Info()
	if err != nil {
		return err
	}
	how := s.Info()
	fmt.Fprintf(out, "%s\nbackend: %s\n", d.Info().Name, how.Backend)
	if how.Declined != "" {
		fmt.Fprintf(out, "not gdrdrv: %s\n", how.Declined)
	}
	fmt.Fprintf(out, "%d bytes at %v mapped as %v\n", info.MappedSize, info.VA, info.Type)
	if m.Soft {
		fmt.Fprintln(out, "This is a software machine: its times are not those of a GPU.")
	}
	if err := table(out, d, a, b, limit, each); err != nil {
		return err
	}
	return check(out, d, a, b, limit)
}

// maxLoad is the largest size for loads: larger ones take milliseconds.
const maxLoad = 64 << 10

func table(out io.Writer, d gpu.Device, a gpu.Addr, b *gdrcopy.Buffer, limit int, each time.Duration) error {
	host := make([]byte, limit)
	columns := []struct {
		name  string
		limit int
		run   func(h []byte) error
	}{
		{"CopyTo", limit, func(h []byte) error { return b.CopyTo(0, h) }},
		{"driver in", limit, func(h []byte) error { return d.CopyIn(a, h) }},
		{"CopyFrom", maxLoad, func(h []byte) error { return b.CopyFrom(h, 0) }},
		{"driver out", limit, func(h []byte) error { return d.CopyOut(h, a) }},
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "bytes\t")
	for _, c := range columns {
		fmt.Fprintf(w, "%s us\tGB/s\t", c.name)
	}
	fmt.Fprintln(w)
	for n := 1; n <= limit; n *= 4 {
		fmt.Fprintf(w, "%d\t", n)
		for _, c := range columns {
			if n > c.limit {
				fmt.Fprint(w, "-\t-\t")
				continue
			}
			t, err := timed(func() error { return c.run(host[:n]) }, each)
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			fmt.Fprintf(w, "%.2f\t%.2f\t", t*1e6, float64(n)/t/1e9)
		}
		fmt.Fprintln(w)
	}
	return w.Flush()
}

// timed returns the time of one call in seconds.
func timed(f func() error, each time.Duration) (float64, error) {
	const batch = 10
	calls := 0
	start := time.Now()
	for calls == 0 || time.Since(start) < each {
		for range batch {
			if err := f(); err != nil {
				return 0, err
			}
		}
		calls += batch
	}
	return time.Since(start).Seconds() / float64(calls), nil
}

// check writes a pattern by one method and reads it by the other.
func check(out io.Writer, d gpu.Device, a gpu.Addr, b *gdrcopy.Buffer, limit int) error {
	want, got := make([]byte, limit), make([]byte, limit)
	for i := range want {
		want[i] = byte(i * 7 >> 3)
	}
	if err := b.CopyTo(0, want); err != nil {
		return err
	}
	if err := d.CopyOut(got, a); err != nil {
		return err
	}
	if !bytes.Equal(got, want) {
		return errors.New("GPU memory differs from what was written through the mapping")
	}
	fmt.Fprintf(out, "%d bytes written through the mapping, read back by the driver: equal\n", limit)
	return nil
}
