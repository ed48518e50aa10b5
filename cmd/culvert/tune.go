package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/internal/bench"
	"github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/internal/human"
	"github.com/culvert-io/culvert/internal/ladder"
	"github.com/culvert-io/culvert/internal/registration"
	"github.com/culvert-io/culvert/internal/storage"
	"github.com/culvert-io/culvert/internal/tune"
	"github.com/culvert-io/culvert/machine"
)

type tuneOptions struct{ show, clear, json bool }

func newTune() *cobra.Command {
	var o tuneOptions
	cmd := &cobra.Command{
		Use:   "tune {PATH [gpu:N] | --show | --clear}",
		Short: "Measure what routes are chosen by, and show or clear the results",
		Long: `Measure the pinned-copy rate of a GPU, and up to which size reads from the file
system of PATH are faster over route bar than over ring. PATH is a file of at
least 1 MiB; it is only read. Transfers never measure: without results, built-in
values apply.

Results are kept in culvert/tune.json in the user's cache directory. They apply to
the same GPU, driver, kernel and file system, for 90 days. --show prints them,
--clear removes them.

EXIT STATUS
  0  success
  1  an error, or this machine lacks one of the two routes
  2  invalid command line`,
		Example: `  culvert tune /data/model.safetensors gpu:0
  culvert tune --show
  culvert tune --clear`,
		Args: args(cobra.MaximumNArgs(2)),
		RunE: run(o.run),
	}
	f := cmd.Flags()
	f.BoolVar(&o.show, "show", false, "print the results")
	f.BoolVar(&o.clear, "clear", false, "remove the results")
	f.BoolVar(&o.json, "json", false, "print JSON")
	return cmd
}

func (o *tuneOptions) run(ctx context.Context, a []string, out io.Writer) error {
	cache := tune.User()
	switch {
	case o.show && o.clear || (o.show || o.clear) == (len(a) > 0):
		return usageError{errors.New("want a PATH, --show or --clear")}
	case o.clear:
		return cache.Clear()
	case o.show:
		entries, err := cache.Entries()
		if err != nil {
			return err
		}
		return show(out, o.json, &tuneReport{cache.Path(), append([]tune.Entry{}, entries...)})
	}
	n, err := gpuArg(a)
	if err != nil {
		return err
	}
	if err := cache.Prepare(); err != nil {
		return err
	}
	m, err := machine.Open()
	if err != nil {
		return err
	}
	defer m.Close()
	if err := checkGPUs(m, n); err != nil {
		return err
	}
	res, err := measure(ctx, m, n, a[0])
	if err != nil {
		return fmt.Errorf("tune %s: %w", a[0], err)
	}
	return show(out, o.json, res)
}

// measure measures and keeps the results.
func measure(ctx context.Context, m *machine.Machine, n int, path string) (*tuneResult, error) {
	device, err := m.GPU.Open(n)
	if err != nil {
		return nil, err
	}
	defer device.Close()
	f, err := openWarm(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	res := &tuneResult{File: path, GPU: n, Soft: m.Soft}
	for dir, rate := range []*float64{&res.ToGPU, &res.FromGPU} {
		if *rate, err = bench.PinnedCopyRate(device, dir == 1); err != nil {
			return nil, err
		}
		if err := tune.StorePinned(device.Info(), dev.Of(m).FS(), dir == 1, *rate); err != nil {
			return nil, err
		}
	}
	l := ladder.Open(device, dev.Of(m), slog.New(slog.DiscardHandler), ladder.Settings{})
	defer l.Close()
	res.Crossover, err = l.TuneBar(ctx, ladder.FileSource(f))
	return res, err
}

// openWarm opens a file and reads as much of it as is measured, so that it is in the
// page cache.
func openWarm(path string) (*storage.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) // does not wait for the writer of a pipe
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if _, err := f.ReadAt(make([]byte, ladder.TuneBytes), 0); err != nil {
		return nil, fmt.Errorf("read the first %s: %w (fix: name a larger file)", human.Size(ladder.TuneBytes), err)
	}
	return storage.Adopt(int(f.Fd()))
}

// A tuneResult is what tune measured.
type tuneResult struct {
	File      string           `json:"file"`
	GPU       int              `json:"gpu"`
	Crossover ladder.Crossover `json:"bar_crossover"`
	ToGPU     float64          `json:"to_gpu_bytes_per_second"` // of a pinned copy
	FromGPU   float64          `json:"from_gpu_bytes_per_second"`
	Soft      bool             `json:"software_machine"`
}

func (r *tuneResult) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "tuned gpu:%d for %s: %s%s\n", r.GPU, human.Name(r.File), crossoverText(r.Crossover), human.SoftMark(r.Soft))
	fmt.Fprintf(&b, "pinned copies: %s\n", pinnedText(r.ToGPU, r.FromGPU))
	w := human.Table(&b)
	fmt.Fprintln(w, "READ\tBAR\tRING")
	for _, m := range r.Crossover.Rates {
		fmt.Fprintf(w, "%s\t%s\t%s\n", human.ShortSize(int64(m.Len)), human.Speed(m.Bar), human.Speed(m.Ring))
	}
	w.Flush()
	return b.String()
}

// A tuneReport is what tune --show prints.
type tuneReport struct {
	Path    string       `json:"path"`
	Entries []tune.Entry `json:"entries"`
}

func (r *tuneReport) String() string {
	if len(r.Entries) == 0 {
		return "no results: built-in values apply (culvert tune PATH measures)"
	}
	var b strings.Builder
	gpu := ""
	for _, e := range slices.SortedStableFunc(slices.Values(r.Entries), func(a, b tune.Entry) int { return cmp.Compare(a.Subject.GPU, b.Subject.GPU) }) {
		if e.Subject.GPU != gpu {
			gpu = e.Subject.GPU
			fmt.Fprintln(&b, gpu)
		}
		fmt.Fprintf(&b, "  %s  %s\n", e.Measured.Format(time.DateOnly), entryText(&e))
	}
	return b.String() + "in " + r.Path
}

// entryText says what was measured. A kind that this version does not know stays JSON.
func entryText(e *tune.Entry) string {
	switch {
	case e.What == tune.WhatPinned:
		var r struct {
			To   float64 `json:"to_gpu_bytes_per_second"`
			From float64 `json:"from_gpu_bytes_per_second"`
		}
		if json.Unmarshal(e.Result, &r) == nil {
			return "pinned copies: " + pinnedText(r.To, r.From)
		}
	case e.What == ladder.WhatCrossover:
		var c ladder.Crossover
		if json.Unmarshal(e.Result, &c) == nil {
			return fmt.Sprintf("%s %s, %s: %s", e.Subject.FS, e.Subject.Dev, human.Count(e.Subject.Callers, "caller"), crossoverText(c))
		}
	case e.What == registration.What:
		var list []registration.Result
		if json.Unmarshal(e.Result, &list) == nil {
			return fmt.Sprintf("adapter %s: %s", e.Subject.Dev, registrationText(list))
		}
	}
	var result bytes.Buffer
	_ = json.Compact(&result, e.Result) // decoded before
	return fmt.Sprintf("%s %s: %s", e.What, e.Subject.Dev, &result)
}

func crossoverText(c ladder.Crossover) string {
	if c.Max == 0 {
		return "all reads go by ring"
	}
	return fmt.Sprintf("reads up to %s go by bar, larger ones by ring", human.ShortSize(int64(c.Max)))
}

func pinnedText(to, from float64) string {
	var parts []string
	if to > 0 {
		parts = append(parts, human.Speed(to)+" to the GPU")
	}
	if from > 0 {
		parts = append(parts, human.Speed(from)+" from the GPU")
	}
	return strings.Join(parts, ", ")
}
