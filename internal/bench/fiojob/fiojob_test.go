package fiojob

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestParse(t *testing.T) {
	jobs, err := Parse(strings.NewReader(`; as fio's examples look
[global]
bs=64k
filename=/data/a\:b
direct=1
size = 1G

# the first
[reads]
runtime=90
numjobs=4

[mixed]
stonewall
rw=randrw
rwmixread=70
bs=4kb
iodepth=32
rate=100m
runtime=5m
time_based
direct=0
[global]
rw=readwrite
[last]
filename=/data/a:/data/b\:c
stonewall=1
runtime=500ms
`), "x.fio")
	if err != nil {
		t.Fatal(err)
	}
	want := []Job{
		{Name: "reads", Line: 9, Pattern: "read", Block: 64 << 10, Size: 1 << 30, Callers: 4, Depth: 1, Runtime: 90 * time.Second, Files: []string{"/data/a:b"}, Direct: true, ReadPercent: 50},
		{Name: "mixed", Line: 13, Pattern: "randrw", Block: 4096, Size: 1 << 30, Callers: 1, Depth: 32, Runtime: 5 * time.Minute, TimeBased: true, Files: []string{"/data/a:b"}, ReadPercent: 70, Rate: 100 << 20, stonewall: true},
		{Name: "last", Line: 25, Pattern: "rw", Block: 64 << 10, Size: 1 << 30, Callers: 1, Depth: 1, Runtime: 500 * time.Millisecond, Files: []string{"/data/a", "/data/b:c"}, Direct: true, ReadPercent: 50, stonewall: true},
	}
	if !reflect.DeepEqual(jobs, want) {
		t.Errorf("got  %+v\nwant %+v", jobs, want)
	}
}

// Whatever is not understood is an error that says where, and what would be.
func TestParseErrors(t *testing.T) {
	for text, want := range map[string]string{
		"":                                    "x.fio: no job",
		"[global]\nbs=4k":                     "x.fio: no job",
		"bs=4k\n[a]":                          `x.fio:1: "bs=4k" is in no section`,
		"[a]\nioengine=libaio":                `x.fio:2: unknown option "ioengine" (known: bs, direct, filename, iodepth, numjobs, rate, runtime, rw, rwmixread, size, stonewall, time_based)`,
		"[a]\n\n# x\nBS=4k":                   `x.fio:4: unknown option "BS"`,
		"[a]\nfilename=f\nbs=4x":              `x.fio:3: bs: invalid size "4x"`,
		"[a]\nbs=4KiB":                        `x.fio:2: bs: "4KiB": KiB are 1000 bytes in fio`,
		"[a]\nbs=4k,8k":                       `x.fio:2: bs: "4k,8k": different values`,
		"[a]\nbs=0":                           `x.fio:2: bs: "0" must be from 1 to 1024T`,
		"[a]\nrate=4000000T":                  "x.fio:2: rate: ",
		"[a]\nbs":                             "x.fio:2: bs: invalid size",
		"[a]\nrw=trim":                        `x.fio:2: rw: unknown pattern "trim" (known: read, write,`,
		"[a]\nrw=randread:8":                  "x.fio:2: rw: unknown pattern",
		"[a]\nnumjobs=0":                      `x.fio:2: numjobs: "0" must be a number from 1 to 1024`,
		"[a]\niodepth=-1":                     "x.fio:2: iodepth:",
		"[a]\nrwmixread=100":                  "x.fio:2: rwmixread:",
		"[a]\nruntime=1d":                     "x.fio:2: runtime: invalid time",
		"[a]\nruntime=":                       "x.fio:2: runtime: invalid time",
		"[a]\nruntime=5sm":                    "x.fio:2: runtime: invalid time",
		"[a]\ndirect=yes":                     "x.fio:2: direct:",
		"[a]\nfilename=a::b":                  "x.fio:2: filename: \"a::b\" has an empty name",
		"[a]\nfilename=a:b\nsize=4k":          "x.fio:1: job a: size 4096 must be at least a block of each of 2 files",
		"[a":                                  `x.fio:1: section "[a" has no name`,
		"[]":                                  `x.fio:1: section "[]" has no name`,
		"[":                                   `x.fio:1: section "[" has no name`,
		"[a]\nbs=4k":                          "x.fio:1: job a: no file (fix: filename=PATH)",
		"[a]\nfilename=f\ntime_based":         "x.fio:1: job a: time_based needs runtime",
		"[global]\nfilename=f\n[a]\n[b]":      "x.fio:4: job b: fio runs jobs at the same time",
		"[a]\nfilename=f\nsize=4k\niodepth=2": "x.fio:1: job a: size 4096 must be at least iodepth blocks, 8192 bytes",
		"[a]\n" + strings.Repeat("x", 1<<17):  "x.fio:2: ",
	} {
		if _, err := Parse(strings.NewReader(text), "x.fio"); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%.40q: %v\nwant %s", text, err, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("[a]\nfilename=f\nbs=4k\nruntime=1s\nrate=1m")
	f.Fuzz(func(t *testing.T, text string) {
		jobs, err := Parse(strings.NewReader(text), "x.fio")
		for _, j := range jobs {
			if err == nil && (len(j.Files) == 0 || j.Block < 1 || j.Callers < 1 || j.Depth < 1) {
				t.Errorf("%q: %+v", text, j)
			}
		}
	})
}
