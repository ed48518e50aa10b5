package fiojob

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/culvert-io/culvert/internal/human"
)

// options set what a line says.
var options = map[string]func(*Job, string) error{
	"rw": func(j *Job, v string) error {
		if v == "readwrite" {
			v = "rw"
		}
		if !slices.Contains(patterns, v) {
			return fmt.Errorf("unknown pattern %q (known: %s)", v, strings.Join(patterns, ", "))
		}
		j.Pattern = v
		return nil
	},
	"bs":         func(j *Job, v string) (err error) { j.Block, err = size(v); return err },
	"size":       func(j *Job, v string) (err error) { j.Size, err = size(v); return err },
	"rate":       func(j *Job, v string) (err error) { j.Rate, err = size(v); return err },
	"numjobs":    func(j *Job, v string) (err error) { j.Callers, err = number(v, 1, 1024); return err },
	"iodepth":    func(j *Job, v string) (err error) { j.Depth, err = number(v, 1, 1<<16); return err },
	"rwmixread":  func(j *Job, v string) (err error) { j.ReadPercent, err = number(v, 1, 99); return err },
	"runtime":    func(j *Job, v string) (err error) { j.Runtime, err = duration(v); return err },
	"filename":   func(j *Job, v string) (err error) { j.Files, err = files(v); return err },
	"direct":     func(j *Job, v string) (err error) { j.Direct, err = flag(v); return err },
	"time_based": func(j *Job, v string) (err error) { j.TimeBased, err = flag(v); return err },
	"stonewall":  func(j *Job, v string) (err error) { j.stonewall, err = flag(v); return err },
}

// flags are options that need no value.
var flags = map[string]bool{"direct": true, "time_based": true, "stonewall": true}

var patterns = []string{"read", "write", "randread", "randwrite", "rw", "readwrite", "randrw"}

// Known returns the names of all options.
func Known() []string { return slices.Sorted(maps.Keys(options)) }

// size reads bytes as fio does: k is 1024. fio's Ki is 1000, against the usual meaning.
func size(v string) (int64, error) {
	if strings.Contains(v, ",") {
		return 0, fmt.Errorf("%q: different values for reads and writes are not supported", v)
	}
	plain := strings.TrimSuffix(strings.ToUpper(v), "B")
	if strings.HasSuffix(plain, "I") {
		return 0, fmt.Errorf("%q: KiB are 1000 bytes in fio (fix: write 4k for 4096)", v)
	}
	n, err := human.ParseSize(plain)
	if err != nil {
		return 0, fmt.Errorf("invalid size %q (want bytes, or a size such as 4k, 512m or 8g)", v)
	}
	if n == 0 || n > 1<<50 { // products with numjobs fit into 64 bits
		return 0, fmt.Errorf("%q must be from 1 to 1024T", v)
	}
	return n, nil
}

func number(v string, low, high int) (int, error) {
	n, err := strconv.Atoi(v)
	if err != nil || n < low || n > high {
		return 0, fmt.Errorf("%q must be a number from %d to %d", v, low, high)
	}
	return n, nil
}

func flag(v string) (bool, error) {
	n, err := number(v, 0, 1)
	return n == 1, err
}

var units = map[string]time.Duration{
	"": time.Second, "us": time.Microsecond, "ms": time.Millisecond, "s": time.Second, "m": time.Minute, "h": time.Hour,
}

// duration reads a time as fio does: without a unit it is in seconds.
func duration(v string) (time.Duration, error) {
	digits := strings.TrimRight(v, "ushm")
	unit, ok := units[v[len(digits):]]
	n, err := strconv.ParseInt(digits, 10, 32)
	if err != nil || !ok || n <= 0 {
		return 0, fmt.Errorf("invalid time %q (want seconds, or a time such as 500ms, 30s, 5m or 1h)", v)
	}
	return time.Duration(n) * unit, nil
}

// files reads names. fio separates several by colons and escapes others by a backslash.
func files(v string) (list []string, err error) {
	for name := range strings.SplitSeq(strings.ReplaceAll(v, `\:`, "\x00"), ":") {
		if name == "" {
			return nil, fmt.Errorf(`%q has an empty name (a colon in a name is \:)`, v)
		}
		list = append(list, strings.ReplaceAll(name, "\x00", ":"))
	}
	return list, nil
}
