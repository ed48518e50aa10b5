package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/internal/atomicfile"
	"github.com/culvert-io/culvert/internal/bench"
	"github.com/culvert-io/culvert/internal/bench/html"
	"github.com/culvert-io/culvert/internal/check"
	"github.com/culvert-io/culvert/internal/object"
	"github.com/culvert-io/culvert/machine"
)

func (o *benchOptions) printer(out io.Writer) bench.Printer {
	switch {
	case o.json:
		return jsonPrinter{json.NewEncoder(out)}
	case o.csv:
		return &bench.CSV{W: out}
	case o.lines:
		return bench.Lines{W: out}
	}
	return &bench.Table{W: out, Width: screenWidth(out)}
}

type jsonPrinter struct{ enc *json.Encoder }

func (p jsonPrinter) Print(r *bench.Result) error { return p.enc.Encode(r) }

// saved reads the runs to compare with, before anything is measured.
func (o *benchOptions) saved() (bench.Rates, error) {
	if o.compare == "" {
		return nil, nil
	}
	f, err := os.Open(o.compare)
	if err != nil {
		return nil, fmt.Errorf("--compare: %w (fix: make it with culvert bench --json)", err)
	}
	defer f.Close()
	rates, err := bench.ReadRates(f)
	if err != nil {
		return nil, fmt.Errorf("--compare %s: %w", o.compare, err)
	}
	return rates, nil
}

// A collector keeps the results that it prints.
type collector struct {
	bench.Printer
	results []*bench.Result
}

func (c *collector) Print(r *bench.Result) error {
	c.results = append(c.results, r)
	return c.Printer.Print(r)
}

func (o *benchOptions) writePage(m *machine.Machine, file, drawing string, dev int, results []*bench.Result) error {
	about := html.About{
		File: file, GPU: fmt.Sprintf("gpu:%d", dev), Machine: m.Kind().String(), Kernel: kernelRelease(),
		Version: version(), Command: commandLine(os.Args[1:]), Time: time.Now(), Drawing: drawing,
	}
	if devices, err := m.GPU.Devices(); err == nil && dev < len(devices) {
		about.GPU += " " + devices[dev].Name
	}
	return atomicfile.Write(o.html, 0o666, func(w io.Writer) error { return html.Write(w, about, results) })
}

func kernelRelease() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "unknown"
	}
	return unix.ByteSliceToString(u.Release[:])
}

// fileNames are the names of all files, each once.
func fileNames(list []*benchSeries) string {
	var names []string
	for _, s := range list {
		for _, file := range s.files {
			if name := object.Redact(file); !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	if more := len(names) - 8; more > 1 {
		names = append(names[:8], fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, ", ")
}

// drawings draw the ways between the files and the GPU, each way once. A file whose way is
// not known has none.
func drawings(m *machine.Machine, drv *cufile.Driver, list []*benchSeries, dev int) string {
	var all []string
	for _, s := range list {
		for _, file := range s.files {
			if object.IsURL(file) {
				continue
			}
			p, err := check.LookPath(m, drv, file, dev)
			if err != nil || p.Topology == nil {
				continue
			}
			if text := p.Topology.Draw(); !slices.Contains(all, text) {
				all = append(all, text)
			}
		}
	}
	return strings.Join(all, "\n")
}
