package bench

import (
	"fmt"
	"time"

	"github.com/culvert-io/culvert/gpu"
)

// A Pattern is the kind and order of accesses.
type Pattern string

const (
	SeqRead   Pattern = "read"
	SeqWrite  Pattern = "write"
	RandRead  Pattern = "randread"
	RandWrite Pattern = "randwrite"
)

// Writes reports whether the pattern changes the file.
func (p Pattern) Writes() bool { return p == SeqWrite || p == RandWrite }

func (p Pattern) random() bool { return p == RandRead || p == RandWrite }

// ParsePattern reads a pattern's name.
func ParsePattern(s string) (Pattern, error) {
	switch p := Pattern(s); p {
	case SeqRead, SeqWrite, RandRead, RandWrite:
		return p, nil
	}
	return "", fmt.Errorf("unknown pattern %q (want read, write, randread or randwrite)", s)
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
}
