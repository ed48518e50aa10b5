package gdstools

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/culvert-io/culvert/internal/bench"
	"github.com/culvert-io/culvert/internal/check"
	"github.com/culvert-io/culvert/internal/stats"
	"github.com/culvert-io/culvert/route"
)

func job(change func(*Job)) *Job {
	j := &Job{File: "f", Threads: 1, Blocks: []int64{1 << 20}, Batch: 1}
	change(j)
	return j
}

// Each of gdsio's options, as people type it.
func TestOptions(t *testing.T) {
	for line, want := range map[string]*Job{
		"-f f":                           job(func(*Job) {}),
		"-D d -w 4":                      job(func(j *Job) { j.File, j.Dir, j.Threads = "", "d", 4 }),
		"-ff -d1 -w16":                   job(func(j *Job) { j.GPU, j.Threads = 1, 16 }),
		"-f f -s 1G -i 4k -I 1":          job(func(j *Job) { j.Size, j.Blocks, j.Operation = 1<<30, []int64{4096}, 1 }),
		"-f f -i 1M:3M:1M -I 2":          job(func(j *Job) { j.Blocks, j.Operation = []int64{1 << 20, 2 << 20, 3 << 20}, 2 }),
		"-f f -m 1 -x 2 -T 5":            job(func(j *Job) { j.Memory, j.Transfer, j.Time = 1, 2, 5*time.Second }),
		"-f f -x 5 -w 4":                 job(func(j *Job) { j.Transfer, j.Threads = 5, 4 }),
		"-f f -x 6 -B 128 -b -V":         job(func(j *Job) { j.Transfer, j.Batch, j.Unregister, j.Verify = 6, 128, true, true }),
		"-f f -O 1 -o 0":                 job(func(j *Job) { j.Buffered = true }),
		"-f f -O 0 -n 1 -p 2 -k 7 -R -F": job(func(j *Job) { j.Ignored = []string{"-n", "-p", "-k", "-R", "-F"} }),
		"-f f -J":                        job(func(j *Job) { j.Ignored = []string{"-J"} }),
	} {
		got, err := ParseJob(strings.Fields(line))
		if err != nil {
			t.Errorf("%s: %v", line, err)
		} else if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", line, diff)
		}
	}
	for line, want := range map[string]string{
		"":                     "want a file (-f) or a directory (-D)",
		"-f f -D d":            "want a file (-f) or a directory (-D)",
		"-f f -z":              "unknown option -z",
		"f":                    `unexpected argument "f": gdsio's job files are not read here`,
		"-f f -M 70":           "option -M of NVIDIA's gdsio does not exist here: culvert bench --mix mixes reads and writes",
		"-f f -U":              "does not exist here: random offsets are multiples of the request size",
		"-f f -w":              "option -w needs a value (N)",
		"-f f -w 0":            "option -w 0: want a number from 1 to 1024",
		"-f f -V1":             "option -V takes no value",
		"-f f -x 7":            "option -x 7: want a number from 0 to 6",
		"-f f -i 1M:2M":        "want SIZE or MIN:MAX:STEP",
		"-f f -i 0":            "a size must not be 0",
		"-f f -i 1:9999999:1":  "want SIZE or MIN:MAX:STEP",
		"-f f -i 1:2:3:4":      "want SIZE or MIN:MAX:STEP",
		"-f f -s x":            "invalid size",
		"-f f -I 1":            "a write needs a size (-s)",
		"-f f -o 4096":         "only offset 0 is supported",
		"-f f -B 2":            "option -B needs -x 6",
		"-f f -T 0":            "want seconds",
		"-f f -m 3":            "want a number from 0 to 2",
		"-f f -s 99999999999T": "too large",
	} {
		if _, err := ParseJob(strings.Fields(line)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", line, err, want)
		}
	}
	help := GDSIOHelp()
	for _, o := range gdsioOptions {
		if !strings.Contains(help, "-"+string(o.letter)+" ") {
			t.Errorf("no -%c in the help", o.letter)
		}
	}
}

func FuzzParseJob(f *testing.F) {
	f.Add("-f f -i 1M:3M:1M -x 6 -B 2")
	f.Fuzz(func(t *testing.T, line string) {
		if j, err := ParseJob(strings.Fields(line)); err == nil && (len(j.Blocks) == 0 || j.Threads < 1) {
			t.Errorf("%q: %+v", line, j)
		}
	})
}

// The result line parses with the expressions of scripts that read gdsio's output.
func TestLine(t *testing.T) {
	j := job(func(j *Job) { j.Size, j.Threads = 1<<30, 4 })
	one := &bench.Result{Seconds: 0.25, Part: bench.Part{Moved: 1 << 30, Ops: 1024, Latency: bench.Latency{Mean: 690.1}, Receipt: &route.Receipt{Route: route.Ring, Host: route.ByteCount{Bytes: 1 << 30}}}}
	line := j.line(1<<20, []*bench.Result{one})
	for _, re := range []string{
		`IoType: (READ) XferType: (GPUD) Threads: (4) +DataSetSize: (1048576)/(1048576)\(KiB\) IOSize: (1024)\(KiB\)`,
		`Throughput: (4\.0+) GiB/sec, Avg_Latency: (690\.10*) usecs ops: (1024) total_time (0\.250*) secs`,
	} {
		if !regexp.MustCompile(re).MatchString(line) {
			t.Errorf("%s does not match %s", line, re)
		}
	}
	if got, want := routeLine([]*bench.Result{one, one}, true), "Route: ring, 2.0 GiB through host memory, software machine: the figures say nothing about hardware"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := routeLine([]*bench.Result{{Engine: "pread"}}, false); got != "Route: none: pread is not Culvert" {
		t.Errorf("got %q", got)
	}
}

// The verdict fails without a GPU and names a software machine.
func TestCheckVerdict(t *testing.T) {
	able := check.GPU{Attributes: []check.Attribute{{Name: "GPU_DIRECT_RDMA_SUPPORTED", Value: 1, Known: true}}}
	gpu := check.Devices{GPUs: []check.GPU{able, {}}, Modules: []check.Module{{Name: "nvidia_fs", Loaded: true, Detail: "version: 2.28"}}}
	for _, tt := range []struct {
		name  string
		r     check.Report
		asked bool
		want  string
		bad   bool
	}{
		{"hardware", check.Report{Devices: gpu}, false, "NVMe               : Supported\n", false},
		{"hardware", check.Report{Devices: gpu}, false, "Platform verification succeeded\n", false},
		{"GPUs", check.Report{Devices: gpu}, false, " supports GDS\n", false},
		{"GPUs", check.Report{Devices: gpu}, false, " does not support GDS\n", false},
		{"software", check.Report{Software: &gpu}, true, "succeeded (software machine", false},
		{"nobody asked", check.Report{Software: &gpu, NoGPU: "no driver"}, false, "nvidia_fs version:  not loaded", true},
	} {
		var out strings.Builder
		err := Check(&tt.r, "1.0", tt.asked, &out)
		if (err != nil) != tt.bad || !strings.Contains(out.String(), tt.want) || tt.bad && strings.Contains(out.String(), "succeeded") {
			t.Errorf("%s: %v, want %q in\n%s", tt.name, err, tt.want, &out)
		}
	}
}

func TestStats(t *testing.T) {
	s := &stats.Snapshot{Routes: []string{"none", "ring"}}
	s.Totals.Ops[0][1], s.Totals.Bytes[0][1], s.Totals.Host, s.Totals.Errors, s.Totals.Time = 4, 8<<20, 8<<20, 1, 40*time.Microsecond
	s.Files = []stats.FileSnapshot{{Totals: s.Totals, Description: stats.Description{GPU: 1}}}
	var out strings.Builder
	if err := Stats(s, 3, &out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Total Read Size (MiB): 8\n", "Read IO count: 4\n", "Avg Latency (usecs): 10\n", "Route ring (MiB): 8\n", "GPU 1: n=4 posix=100% err=1 MiB=8\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("want %q in\n%s", want, &out)
		}
	}
}
