package bench

import (
	"fmt"
	"time"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/human"
	"github.com/culvert-io/culvert/route"
)

// A Pattern is the kind and order of accesses.
type Pattern string

const (
	SeqRead   Pattern = "read"
	SeqWrite  Pattern = "write"
	RandRead  Pattern = "randread"
	RandWrite Pattern = "randwrite"
	SeqMixed  Pattern = "rw"     // reads and writes, each sequential
	RandMixed Pattern = "randrw" // reads and writes
)

// Writes reports whether the pattern changes the file.
func (p Pattern) Writes() bool { return p == SeqWrite || p == RandWrite || p.Mixed() }

// Mixed reports whether the pattern both reads and writes.
func (p Pattern) Mixed() bool { return p == SeqMixed || p == RandMixed }

func (p Pattern) random() bool { return p == RandRead || p == RandWrite || p == RandMixed }

// ParsePattern reads a pattern's name.
func ParsePattern(s string) (Pattern, error) {
	switch p := Pattern(s); p {
	case SeqRead, SeqWrite, RandRead, RandWrite, SeqMixed, RandMixed:
		return p, nil
	}
	return "", fmt.Errorf("unknown pattern %q (want read, write, randread, randwrite, rw or randrw)", s)
}

// A Workload is one measurement.
type Workload struct {
	Pattern  Pattern       `json:"pattern"`
	Block    int64         `json:"block"`
	Threads  int           `json:"threads"`
	Batch    int           `json:"batch"` // requests per call
	Kind     gpu.Kind      `json:"-"`
	Register bool          `json:"registered"`
	Cold     bool          `json:"cold"` // drop the file's page cache first
	Verify   bool          `json:"verified,omitempty"`
	Bytes    int64         `json:"-"` // to move; 0 means run for Time
	Time     time.Duration `json:"-"`
	// ReadPercent is how many of 100 calls of a mixed pattern read.
	ReadPercent int `json:"read_percent,omitempty"`
	// Limit is in bytes per second, for all callers together; 0 means none.
	Limit int64 `json:"limit_bytes_per_second,omitempty"`
	// Region is how much of the file, from its beginning, is used; 0 means all.
	Region int64 `json:"region,omitempty"`
	// Files is how many files take turns by blocks; 0 means one. Measuring sets it.
	Files int `json:"files,omitempty"`
	// Heat asks for the result's heat map.
	Heat bool `json:"-"`
	// Job is the name of the job, in results of a job file.
	Job string `json:"job,omitempty"`
}

// Check reports what cannot be measured.
func (w *Workload) Check() error {
	switch {
	case !w.Pattern.Mixed():
		return nil
	case w.ReadPercent < 1 || w.ReadPercent > 99:
		return fmt.Errorf("%d %% reads of mixed reads and writes must be from 1 to 99", w.ReadPercent)
	case w.Cold:
		return fmt.Errorf("pattern %s cannot be cold: its writes fill the page cache", w.Pattern)
	case w.Verify:
		return fmt.Errorf("pattern %s cannot be verified: a caller may overwrite what another has read", w.Pattern)
	}
	return nil
}

// CheckLimit reports a limit that lets no call pass in the time of the run. The first call
// waits for nothing, so its rate alone would be the result.
func (w *Workload) CheckLimit() error {
	if w.Limit <= 0 || w.Time <= 0 {
		return nil
	}
	call := w.Block * int64(max(w.Batch, 1))
	if need := float64(call) / float64(w.Limit); need > w.Time.Seconds() {
		return fmt.Errorf("at %s a call of %s takes %s s, longer than the run of %v (fix: a smaller block, a longer run, or a higher limit)",
			human.Speed(float64(w.Limit)), human.Size(call), human.Digits(need), w.Time)
	}
	return nil
}

// mix returns how the calls of the caller with this number alternate.
func (w *Workload) mix(caller int) mix {
	m := mix{reads: w.ReadPercent, at: caller * 100 / w.Threads} // callers do not write all at once
	if !w.Pattern.Mixed() {
		m.reads = 100
		if w.Pattern.Writes() {
			m.reads = 0
		}
	}
	return m
}

// A mix spreads reads evenly: of any 100 calls in a row exactly so many read.
type mix struct{ reads, at int }

func (m *mix) next() route.Dir {
	if m.at += m.reads; m.at >= 100 {
		m.at -= 100
		return route.Read
	}
	return route.Write
}
