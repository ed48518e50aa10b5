// Package gdstools is NVIDIA's tools for GPUDirect Storage on Culvert: gdsio,
// gdscheck, gds_stats and gdsio_verify. They take NVIDIA's options and print
// NVIDIA's lines, so that scripts work, and add a line with the route really taken.
package gdstools

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/bench"
	"github.com/culvert-io/culvert/internal/human"
	"github.com/culvert-io/culvert/route"
)

// A Job is what gdsio's options ask for.
type Job struct {
	File, Dir  string
	GPU        int
	Threads    int
	Size       int64
	Offset     int64
	Blocks     []int64
	Memory     int
	Transfer   int
	Operation  int
	Batch      int
	Time       time.Duration
	Unregister bool // -b: buffers are not registered
	Verify     bool
	Buffered   bool // -O 1: without O_DIRECT
	Ignored    []string
}

// An option of gdsio: its letter, its value, or "" if it takes none, and what it does.
type option struct {
	letter byte
	value  string
	help   string
	set    func(j *Job, value string) error
}

var gdsioOptions = []option{
	{'f', "FILE", "file to read or write, shared by the threads", func(j *Job, v string) error { j.File = v; return nil }},
	{'D', "DIR", "directory of the files gdsio.0, gdsio.1, ..., one per thread", func(j *Job, v string) error { j.Dir = v; return nil }},
	{'d', "GPU", "number of the GPU", number(func(j *Job) *int { return &j.GPU }, 0, 255)},
	{'w', "N", "threads", number(func(j *Job) *int { return &j.Threads }, 1, 1024)},
	{'s', "SIZE", "bytes of each file: 1G", size(func(j *Job) *int64 { return &j.Size })},
	{'o', "OFFSET", "only 0 is supported", size(func(j *Job) *int64 { return &j.Offset })},
	{'i', "SIZE|MIN:MAX:STEP", "bytes per request; a range runs each size in turn", setBlocks},
	{'m', "N", "memory: 0 cudaMalloc, 1 cuMem, 2 cudaMallocHost", number(func(j *Job) *int { return &j.Memory }, 0, 2)},
	{'x', "N", "transfer: 0 GPUD, 1 CPUONLY, 2 CPU_GPU, 3 CPU_ASYNC_GPU, 4 CPU_CACHED_GPU, 5 GPU_ASYNC, 6 GPU_BATCH", setTransfer},
	{'I', "N", "operation: 0 read, 1 write, 2 randread, 3 randwrite", number(func(j *Job) *int { return &j.Operation }, 0, 3)},
	{'B', "N", "requests per batch, with -x 6", number(func(j *Job) *int { return &j.Batch }, 1, 256)},
	{'T', "SECONDS", "run for this time instead of once through the file", setTime},
	{'b', "", "do not register buffers", func(j *Job, _ string) error { j.Unregister = true; return nil }},
	{'V', "", "verify what was moved", func(j *Job, _ string) error { j.Verify = true; return nil }},
	{'O', "N", "1: open without O_DIRECT", func(j *Job, v string) error { j.Buffered = v == "1"; return nil }},
	{'n', "NODE", "accepted and ignored: the NUMA node", ignore('n')},
	{'p', "N", "accepted and ignored: NVLink routes", ignore('p')},
	{'k', "SEED", "accepted and ignored: random offsets have a fixed seed", ignore('k')},
	{'R', "", "accepted and ignored: fill with random data", ignore('R')},
	{'F', "", "accepted and ignored: refill buffers", ignore('F')},
	{'J', "", "accepted and ignored: results per job", ignore('J')},
}

// missing are options of NVIDIA's gdsio that are refused, and what there is instead.
var missing = map[byte]string{
	'M': "culvert bench --mix mixes reads and writes",
	'P': "culvert rdma bench measures RDMA",
	'U': "random offsets are multiples of the request size",
	'a': "random offsets are multiples of the request size",
}

func number(field func(*Job) *int, low, high int) func(*Job, string) error {
	return func(j *Job, v string) error {
		n, err := strconv.Atoi(v)
		if err != nil || n < low || n > high {
			return fmt.Errorf("want a number from %d to %d", low, high)
		}
		*field(j) = n
		return nil
	}
}

func size(field func(*Job) *int64) func(*Job, string) error {
	return func(j *Job, v string) (err error) {
		*field(j), err = human.ParseSize(strings.ToUpper(v))
		return err
	}
}

func ignore(letter byte) func(*Job, string) error {
	return func(j *Job, _ string) error { j.Ignored = append(j.Ignored, "-"+string(letter)); return nil }
}

func setTime(j *Job, v string) error {
	n, err := strconv.Atoi(v)
	if err != nil || n < 1 || n > 1e6 {
		return fmt.Errorf("want seconds")
	}
	j.Time = time.Duration(n) * time.Second
	return nil
}

func setTransfer(j *Job, v string) error {
	n, err := strconv.Atoi(v)
	if err != nil || n < 0 || n >= len(transferNames) {
		return fmt.Errorf("want a number from 0 to %d", len(transferNames)-1)
	}
	j.Transfer = n
	return nil
}

func setBlocks(j *Job, v string) error {
	parts := strings.Split(strings.ToUpper(v), ":")
	var n [3]int64
	for i, part := range parts {
		if i >= len(n) {
			return fmt.Errorf("want SIZE or MIN:MAX:STEP")
		}
		var err error
		if n[i], err = human.ParseSize(part); err != nil {
			return err
		}
		if n[i] == 0 {
			return fmt.Errorf("a size must not be 0")
		}
	}
	switch {
	case len(parts) == 1:
		j.Blocks = []int64{n[0]}
	case len(parts) == 3 && n[1] >= n[0] && (n[1]-n[0])/n[2] < 1000:
		j.Blocks = nil
		for size := n[0]; size <= n[1]; size += n[2] {
			j.Blocks = append(j.Blocks, size)
		}
	default:
		return fmt.Errorf("want SIZE or MIN:MAX:STEP")
	}
	return nil
}

// ParseJob reads gdsio's command line. A value may follow its letter directly.
func ParseJob(args []string) (*Job, error) {
	j := &Job{Threads: 1, Blocks: []int64{1 << 20}, Batch: 1}
	for len(args) > 0 {
		arg := args[0]
		args = args[1:]
		if len(arg) < 2 || arg[0] != '-' {
			return nil, fmt.Errorf("unexpected argument %q: gdsio's job files are not read here (culvert bench --job reads fio's)", arg)
		}
		o := find(arg[1])
		if what := missing[arg[1]]; what != "" {
			return nil, fmt.Errorf("option -%c of NVIDIA's gdsio does not exist here: %s", arg[1], what)
		}
		if o == nil {
			return nil, fmt.Errorf("unknown option %s", arg)
		}
		value := arg[2:]
		switch {
		case o.value == "" && value != "":
			return nil, fmt.Errorf("option -%c takes no value", o.letter)
		case o.value != "" && value == "":
			if len(args) == 0 {
				return nil, fmt.Errorf("option -%c needs a value (%s)", o.letter, o.value)
			}
			value, args = args[0], args[1:]
		}
		if err := o.set(j, value); err != nil {
			return nil, fmt.Errorf("option -%c %s: %w", o.letter, value, err)
		}
	}
	return j, j.check()
}

func find(letter byte) *option {
	for i := range gdsioOptions {
		if gdsioOptions[i].letter == letter {
			return &gdsioOptions[i]
		}
	}
	return nil
}

func (j *Job) check() error {
	switch {
	case (j.File == "") == (j.Dir == ""):
		return fmt.Errorf("want a file (-f) or a directory (-D)")
	case j.Offset != 0:
		return fmt.Errorf("option -o: only offset 0 is supported")
	case j.Writes() && j.Size == 0:
		return fmt.Errorf("a write needs a size (-s)")
	case j.Batch > 1 && j.Transfer != 6:
		return fmt.Errorf("option -B needs -x 6")
	}
	return nil
}

// GDSIOHelp lists the options.
func GDSIOHelp() string {
	var b strings.Builder
	for _, o := range gdsioOptions {
		fmt.Fprintf(&b, "  -%c %-18s %s\n", o.letter, o.value, o.help)
	}
	return b.String()
}

var (
	transferNames = [...]string{"GPUD", "CPUONLY", "CPU_GPU", "CPU_ASYNC_GPU", "CPU_CACHED_GPU", "GPU_ASYNC", "GPU_BATCH"}
	operations    = [...]bench.Pattern{bench.SeqRead, bench.SeqWrite, bench.RandRead, bench.RandWrite}
	opNames       = [...]string{"READ", "WRITE", "RANDREAD", "RANDWRITE"}
	kinds         = [...]gpu.Kind{gpu.KindDevice, gpu.KindVirtual, gpu.KindHost}
)

// Writes reports whether the job changes files.
func (j *Job) Writes() bool { return operations[j.Operation].Writes() }

// Paths are the files of the job.
func (j *Job) Paths() []string {
	if j.File != "" {
		return []string{j.File}
	}
	list := make([]string, j.Threads)
	for i := range list {
		list[i] = fmt.Sprintf("%s/gdsio.%d", strings.TrimSuffix(j.Dir, "/"), i)
	}
	return list
}

// method is how the transfer moves data.
func (j *Job) method() bench.Method {
	switch j.Transfer {
	case 1:
		return bench.Method{Peer: bench.PeerMemory}
	case 2:
		return bench.Method{Peer: bench.PeerPread}
	case 3, 4:
		return bench.Method{Route: route.Ring}
	case 5:
		return bench.Method{Async: true}
	}
	return bench.Method{}
}

// workload is the job on one of its files.
func (j *Job) workload(block int64) bench.Workload {
	w := bench.Workload{
		Pattern: operations[j.Operation], Block: block, Threads: j.Threads, Batch: max(j.Batch, 1), Kind: kinds[j.Memory],
		Register: !j.Unregister, Verify: j.Verify, Bytes: j.Size, Time: j.Time,
	}
	if j.Dir != "" {
		w.Threads = 1
	}
	if w.Time > 0 {
		w.Bytes = 0
	}
	return w
}
