package bench

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/culvert-io/culvert/gpu"
)

// A Pattern is what the callers do.
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
	return "", fmt.Errorf("no pattern %q: want read, write, randread or randwrite", s)
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
	Bytes    int64         `json:"-"` // stop after so many; 0 means by time
	Time     time.Duration `json:"-"` // stop after so long
}

// ParseSize reads "4K", "1M", "8G" or bytes.
func ParseSize(s string) (int64, error) {
	shift, text := 0, s
	if i := strings.IndexByte("KMGT", last(s)); i >= 0 {
		shift = 10 * (i + 1)
		s = s[:len(s)-1]
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 || n > 1<<62>>shift {
		return 0, fmt.Errorf("%q is no size: want 4096, 4K, 16M or 8G", text)
	}
	return n << shift, nil
}

func last(s string) byte {
	if s == "" {
		return 0
	}
	return s[len(s)-1]
}

// ParseSizes reads a size, a list "4K,64K", or a range "4K:16M:x4" that grows by
// a factor.
func ParseSizes(s string) ([]int64, error) {
	if parts := strings.Split(s, ":"); len(parts) == 3 {
		return sizeRange(parts[0], parts[1], parts[2])
	}
	var list []int64
	for _, item := range strings.Split(s, ",") {
		n, err := ParseSize(item)
		if err != nil {
			return nil, err
		}
		if n == 0 {
			return nil, fmt.Errorf("a block of 0 bytes moves nothing")
		}
		list = append(list, n)
	}
	return list, nil
}

func sizeRange(from, to, step string) ([]int64, error) {
	lo, err := ParseSize(from)
	if err != nil {
		return nil, err
	}
	hi, err := ParseSize(to)
	if err != nil {
		return nil, err
	}
	factor, err := strconv.ParseInt(strings.TrimPrefix(step, "x"), 10, 32)
	if err != nil || factor < 2 || lo < 1 || hi < lo {
		return nil, fmt.Errorf("%s:%s:%s is no range of sizes: want 4K:16M:x4", from, to, step)
	}
	var list []int64
	for n := lo; n <= hi; n *= factor {
		list = append(list, n)
	}
	return list, nil
}
