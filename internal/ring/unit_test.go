package ring

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"golang.org/x/sys/unix"
)

func TestSizing(t *testing.T) {
	tests := []struct {
		name string
		cfg  Config
		want sizing
		err  string
	}{
		{"default", Config{Workers: 16}, sizing{256 << 20, 4 << 20, 2, 16, 16, 64, 10, 0, 16}, ""},
		{"small budget", Config{Budget: 16 << 20, Workers: 8}, sizing{16 << 20, 2 << 20, 2, 3, 8, 15, 0, 0, 3}, ""},
		{"tiny budget", Config{Budget: 1 << 20, Workers: 8}, sizing{1 << 20, 128 << 10, 2, 3, 8, 1, 0, 0, 3}, ""},
		{"least budget", Config{Budget: 300 << 10, Workers: 8}, sizing{300 << 10, 64 << 10, 2, 1, 8, 1, 0, 0, 1}, ""},
		{"given sizes", Config{Budget: 64 << 20, Slot: 1 << 20, Depth: 8, Workers: 3}, sizing{64 << 20, 1 << 20, 8, 3, 3, 60, 0, 0, 3}, ""},
		{"no budget", Config{Budget: 200 << 10}, sizing{}, "budget of 204800 bytes"},
		{"slot too large", Config{Budget: 8 << 20, Slot: 8 << 20}, sizing{}, "budget of 8388608 bytes"},
		{"odd slot", Config{Slot: 100_000}, sizing{}, "multiple of 4096"},
		{"small slot", Config{Slot: 4096}, sizing{}, "at least 65536"},
		{"negative", Config{Workers: -1}, sizing{}, "negative"},
	}
	for _, tt := range tests {
		got, err := tt.cfg.resolve(0)
		switch {
		case tt.err != "":
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%s: %v, want %q", tt.name, err, tt.err)
			}
		case err != nil || got != tt.want:
			t.Errorf("%s: %+v, %v, want %+v", tt.name, got, err, tt.want)
		case int64(got.pipelines)*got.pipelineBytes()+int64(got.smallSlots)*smallSlotBytes+int64(got.stageSlots)*stageSlotBytes > got.budget:
			t.Errorf("%s: %+v is over its budget", tt.name, got)
		}
	}
}

func TestLink(t *testing.T) {
	m := topology{fstest.MapFS{
		"sys/bus/pci/devices/0000:65:00.0/max_link_speed": {Data: []byte("32.0 GT/s PCIe\n")},
		"sys/bus/pci/devices/0000:65:00.0/max_link_width": {Data: []byte("16\n")},
		"sys/bus/pci/devices/0000:66:00.0/max_link_speed": {Data: []byte("8.0 GT/s PCIe\n")},
		"sys/bus/pci/devices/0000:66:00.0/max_link_width": {Data: []byte("16\n")},
		"sys/bus/pci/devices/0000:67:00.0/max_link_speed": {Data: []byte("Unknown\n")},
		"sys/bus/pci/devices/0000:68:00.0/max_link_speed": {Data: []byte("5.0 GT/s PCIe\n")},
		"sys/bus/pci/devices/0000:68:00.0/max_link_width": {Data: []byte("x\n")},
	}}
	for pci, want := range map[string]float64{
		"0000:65:00.0": 63.0, "0000:66:00.0": 15.75, "0000:67:00.0": 0, "0000:68:00.0": 0, "none": 0,
	} {
		if got := float64(m.link(pci)) / 1e9; got < want-0.1 || got > want+0.1 {
			t.Errorf("%s: link %v GB/s, want %v", pci, got, want)
		}
	}
}

// As many workers are used as fill the link at their rate.
func TestWorkerTarget(t *testing.T) {
	const gen5, gen3 = 63_000_000_000, 15_750_000_000
	tests := []struct {
		name               string
		pipelines, workers int
		link               int64
		rate               float64 // GB/s; 0: none measured yet
		want               int
	}{
		{"at first", 16, 16, gen5, 0, 13},
		{"fast cores", 16, 16, gen5, 6.5, 10},
		{"slow cores", 16, 16, gen5, 2, 16},
		{"slow link", 16, 16, gen3, 5, 4},
		{"link not known", 16, 16, 0, 5, 16},
		{"few cores", 4, 4, gen5, 5, 4},
		{"a disk", 24, 16, gen5, 0.2, 16},
		{"little memory", 3, 16, gen5, 5, 3},
	}
	for _, tt := range tests {
		sc := &scheduler{sizing: sizing{pipelines: tt.pipelines, workers: tt.workers, link: tt.link}, limit: tt.pipelines}
		for range 200 {
			if tt.rate > 0 {
				sc.readRate.Add(4<<20, time.Duration(4<<20/tt.rate))
			}
		}
		if got := sc.workerTargetLocked(); got != tt.want {
			t.Errorf("%s: %d workers, want %d", tt.name, got, tt.want)
		}
	}
}

// A thread that waits for a network needs no core.
func TestWorkersOfSources(t *testing.T) {
	sc := &scheduler{sizing: sizing{pipelines: 16, workers: 16, link: 63 << 30}, limit: 16}
	sc.readRate.Add(8<<30, time.Second)
	file, source := &batch{reqs: []Request{{}}}, &batch{reqs: []Request{{Source: &os.File{}}}}
	sc.active = []*batch{file}
	if got := sc.workerTargetLocked(); got >= 16 {
		t.Errorf("%d workers read a file", got)
	}
	sc.active = []*batch{file, source}
	if got := sc.workerTargetLocked(); got != 16 {
		t.Errorf("%d workers read a source", got)
	}
	source.next = 1 // complete
	if got := sc.workerTargetLocked(); got >= 16 {
		t.Errorf("%d workers after the source", got)
	}
	// A computer of few cores has more pipelines for a source than for a file.
	sc = &scheduler{sizing: sizing{pipelines: 4, workers: 4, link: 63 << 30}, limit: sourceWorkers, pipelines: 4}
	sc.active = []*batch{file}
	if target, unused := sc.workerTargetLocked(), sc.unusedLocked(); target != 4 || unused != 0 {
		t.Errorf("a file: %d workers, %d pipelines can be made", target, unused)
	}
	source.next = 0
	sc.active = []*batch{source}
	if target, unused := sc.workerTargetLocked(), sc.unusedLocked(); target != sourceWorkers || unused != sourceWorkers-4 {
		t.Errorf("a source: %d workers, %d pipelines can be made", target, unused)
	}
}

// Callers are not turned away when there are workers enough.
func TestSpareWorkers(t *testing.T) {
	sc := &scheduler{sizing: sizing{pipelines: 16, workers: 4}, limit: 16}
	for used := range 17 {
		sc.pipelines, sc.free = used, nil
		if got, want := sc.spareWorkersLocked(), max(4-used, 0); got != want {
			t.Errorf("%d in use: %d workers to spare, want %d", used, got, want)
		}
		if got := sc.unusedLocked(); got != 16-used {
			t.Errorf("%d in use: %d unused", used, got)
		}
	}
	sc.pipelines = 15
	sc.active = []*batch{{hasCaller: true}}
	if sc.neededLocked() {
		t.Error("a worker takes a batch that has its caller")
	}
	sc.active = append(sc.active, &batch{})
	if !sc.neededLocked() {
		t.Error("a batch without a pipeline finds no worker")
	}
	sc.pipelines = 16
	if sc.neededLocked() {
		t.Error("a worker is needed where there is no pipeline")
	}
}

func TestNear(t *testing.T) {
	var mine unix.CPUSet
	if err := unix.SchedGetaffinity(0, &mine); err != nil {
		t.Fatal(err)
	}
	var cpus []int
	for cpu := range 1024 {
		if mine.IsSet(cpu) {
			cpus = append(cpus, cpu)
		}
	}
	if len(cpus) < 2 {
		t.Skip("needs two CPUs")
	}
	at := func(list string) topology {
		return topology{fstest.MapFS{"sys/bus/pci/devices/a/local_cpulist": {Data: []byte(list)}}}
	}
	if at("0-4095").near("a") != nil {
		t.Error("all CPUs are near, so none is nearer")
	}
	if at("").near("a") != nil {
		t.Error("an empty list tells nothing")
	}
	near := at(fmt.Sprint(cpus[0])).near("a")
	if near == nil || near.Count() != 1 || !near.IsSet(cpus[0]) {
		t.Fatalf("near: %v", near)
	}
	// A ring for such a GPU works, and puts threads back as they were.
	g := &nullGPU{t: t}
	r, err := newRing(g, Config{Workers: 2, Slot: 64 << 10}, at(fmt.Sprint(cpus[0])))
	if err != nil {
		t.Fatal(err)
	}
	r.pool.near, r.sched.near = near, near // nullGPU has no PCI address
	f := newFile(t, noise(1, 4<<20))
	if _, err := run1(r, Request{Buffered: f.buffered, Direct: -1, Addr: 4096, Len: 4 << 20}); err != nil {
		t.Error(err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if err := runNear(near, func() error { return nil }); err != nil {
		t.Error(err)
	}
	var after unix.CPUSet
	if err := unix.SchedGetaffinity(0, &after); err != nil || after != mine {
		t.Errorf("the thread's CPUs changed: %v", err)
	}
}

func FuzzCPUs(f *testing.F) {
	f.Add("0-3,8")
	f.Add("")
	f.Add("5-1,,x")
	f.Add("0-99999999999")
	f.Fuzz(func(t *testing.T, list string) {
		if n := len(parseCPUs(list)); n > 4096 {
			t.Errorf("%d CPUs", n)
		}
	})
}

// The plan of a request is text: what is taken, in which order, into which
// place of a slot.
func TestChunks(t *testing.T) {
	const slotLen = 128 << 10
	tests := []struct {
		name string
		reqs []Request
		want int64
		text string
	}{
		{"aligned", []Request{{Len: 300 << 10}}, 64 << 10, `
req 0 [0,65536) at 0
req 0 [65536,131072) at 0
req 0 [131072,196608) at 0
req 0 [196608,262144) at 0
req 0 [262144,307200) at 0`},
		{"unaligned: only the first chunk is off the boundary", []Request{{Off: 5000, Len: 200 << 10}}, 128 << 10, `
req 0 [0,130168) at 904
req 0 [130168,204800) at 0`},
		{"a short rest goes with the chunk before", []Request{{Off: 100, Len: 64 << 10}}, 64 << 10, `
req 0 [0,65536) at 100`},
		{"unless the slot is full", []Request{{Off: 100, Len: 128 << 10}}, 128 << 10, `
req 0 [0,130972) at 100
req 0 [130972,131072) at 0`},
		{"wide alignment", []Request{{Off: 20000, Len: 100 << 10, Direct: 5, Align: 16 << 10}}, 64 << 10, `
req 0 [0,61920) at 3616
req 0 [61920,102400) at 0`},
		{"coalesced, with a large one between", []Request{{Direct: -1, Len: 100}, {Len: 0}, {Direct: -1, Len: 4096}, {Len: 70000}, {Len: 7}}, 64 << 10, `
req 0 [0,100) at 0; req 2 [0,4096) at 128
req 3 [0,70000) at 0
req 4 [0,7) at 0`},
		{"reads that must fill nothing keep room for O_DIRECT", []Request{{Direct: 5, Off: 100, Len: 100}, {Direct: -1, Len: 9}, {Direct: 5, Off: 8191, Len: 2}}, 64 << 10, `
req 0 [0,100) at 100; req 1 [0,9) at 4096; req 2 [0,2) at 12287`},
		{"directions do not mix, and O_DIRECT keeps its place", []Request{{Len: 9}, {Write: true, Direct: -1, Len: 9}, {Write: true, Direct: 5, Off: 4100, Len: 9}}, 64 << 10, `
req 0 [0,9) at 0
req 1 [0,9) at 0; req 2 [0,9) at 4100`},
	}
	for _, tt := range tests {
		o := newBatch(slotLen / 4)
		o.reset(t.Context(), tt.reqs, make([]Result, len(tt.reqs)))
		var text strings.Builder
		for o.left > 0 {
			s := &slot{mem: make([]byte, slotLen)}
			o.take(s, tt.want)
			for i, p := range s.segments {
				text.WriteString([]string{"\n", "; "}[min(i, 1)])
				fmt.Fprintf(&text, "req %d [%d,%d) at %d", p.req, p.off, p.off+int64(p.n), p.at)
			}
		}
		if got := text.String(); got != tt.text {
			t.Errorf("%s:%s\nwant%s", tt.name, got, tt.text)
		}
	}
}

// Chunks of a request are of much the same size.
func TestEven(t *testing.T) {
	const unit, want = 64 << 10, 4 << 20
	for _, n := range []int64{1, unit, want - 1, want, want + 1, want + unit, 2*want - 1, 2*want + 1, 10*want + 5, 1 << 33} {
		size := even(n, want, unit)
		chunks := (n + size - 1) / size
		if size > want || size%unit != 0 || chunks != (n+want-1)/want {
			t.Errorf("%d bytes: %d chunks of %d", n, chunks, size)
		}
		if rest := n - (chunks-1)*size; chunks > 1 && rest < size-chunks*unit {
			t.Errorf("%d bytes: %d chunks of %d leave %d", n, chunks, size, rest)
		}
	}
}
