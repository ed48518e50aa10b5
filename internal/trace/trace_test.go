package trace

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/route"
)

type called string

func (c called) Name() string { return string(c) }

// A file is what a reader of the format sees.
type file struct {
	Unit   string            `json:"displayTimeUnit"`
	Base   int64             `json:"baseTimeNanoseconds"`
	Other  map[string]string `json:"otherData"`
	Events []struct {
		Name, Cat, Ph string
		TS, Dur       float64
		PID, TID      int
		Args          map[string]any
	} `json:"traceEvents"`
}

func written(t *testing.T, r *Recorder) file {
	t.Helper()
	var out bytes.Buffer
	if err := r.Write(&out); err != nil {
		t.Fatal(err)
	}
	return parse(t, out.Bytes())
}

func parse(t *testing.T, text []byte) (f file) {
	t.Helper()
	if err := json.Unmarshal(text, &f); err != nil {
		t.Fatalf("%v:\n%s", err, text)
	}
	return f
}

// spans are the events with a duration.
func spans(f file) (list []string) {
	for _, e := range f.Events {
		if e.Ph == "X" {
			text, _ := json.Marshal(e.Args)
			list = append(list, e.Cat+" "+e.Name+" "+string(text))
		}
	}
	return list
}

func TestWrite(t *testing.T) {
	r := Start()
	defer r.Close()
	var b Buffer
	b.On()
	var ref FileRef
	c := Call{File: &ref, Named: called("/data/a \"b\"\n"), Dir: route.Write, GPU: 3, Off: 4096, Begin: 1500 * time.Nanosecond, End: 5 * time.Microsecond, Failed: true}
	b.Transfer(&c, []route.Receipt{
		{Bytes: 60, Route: route.NVFS, By: route.ByRoute{route.NVFS: 60}},
		{Bytes: 40, Host: route.ByteCount{Bytes: 10}, Route: route.NVFS, By: route.ByRoute{route.NVFS: 30, route.Host: 10}},
	})
	b.Piece(Piece{Kind: Copy, Begin: time.Microsecond, End: 3 * time.Microsecond, Off: 8, Bytes: 7})
	small := Call{File: &ref, Named: called("/data/a"), Off: 1, Begin: 6000, Turn: 6700, End: 8000}
	b.Transfer(&small, []route.Receipt{{Bytes: 9, Host: route.ByteCount{Bytes: 9}, Route: route.Ring, By: route.ByRoute{route.Ring: 9}}})
	r.Stop()
	f := written(t, r)
	if f.Base <= 0 || f.Other["dropped_events"] != "0" {
		t.Errorf("base %d, other %v", f.Base, f.Other)
	}
	for _, e := range f.Events {
		for name, want := range map[string][2]float64{"write a \"b\"\n": {1.5, 3.5}, "read a \"b\"\n": {6, 2}, "read": {6, 0.7}} {
			if e.Name == name && (e.TS != want[0] || e.Dur != want[1]) {
				t.Errorf("%s from %v for %v µs", e.Name, e.TS, e.Dur)
			}
		}
	}
	want := []string{
		`transfer write a "b"` + "\n" + ` {"by_route":{"host":10,"nvfs":90},"bytes":100,"failed":true,"file":"/data/a \"b\"\n","gpu":3,"host_bytes":10,"offset":4096,"requests":2,"route":"nvfs"}`,
		`transfer read a "b"` + "\n" + ` {"by_route":{"ring":9},"bytes":9,"file":"/data/a \"b\"\n","gpu":0,"host_bytes":9,"offset":1,"requests":1,"route":"ring"}`,
		`piece read {"bytes":9,"offset":1}`,
		`piece copy {"bytes":7,"offset":8}`,
		`piece copy {"bytes":9,"offset":1}`,
	}
	if got := spans(f); strings.Join(got, "|") != strings.Join(want, "|") {
		t.Errorf("%q, want %q", got, want)
	}
}

// Events of a track do not overlap, and as few tracks are used as possible.
func TestTracks(t *testing.T) {
	r := Start()
	var b Buffer
	b.On()
	for _, at := range [][2]time.Duration{{0, 10}, {5, 15}, {10, 20}, {12, 30}, {15, 16}, {20, 21}} {
		b.Piece(Piece{Kind: Read, Begin: at[0], End: at[1]})
		b.Piece(Piece{Kind: Wait, Begin: at[0], End: at[1]})
	}
	r.Stop()
	ends, names := map[int]float64{}, map[int]string{}
	for _, e := range written(t, r).Events {
		switch {
		case e.Name == "thread_name":
			names[e.TID] = e.Args["name"].(string)
		case e.Ph == "X":
			if e.TS < ends[e.TID] {
				t.Errorf("track %d has events that overlap at %v", e.TID, e.TS)
			}
			ends[e.TID] = e.TS + e.Dur
			if !strings.HasPrefix(names[e.TID], e.Name+" ") {
				t.Errorf("%s is on track %q", e.Name, names[e.TID])
			}
		}
	}
	if len(ends) != 6 {
		t.Errorf("%d tracks, want 3 of each kind", len(ends))
	}
}

// A recorder that is full counts what it drops.
func TestFull(t *testing.T) {
	r := start(1000, &memory{})
	defer r.Close()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			var b Buffer
			for range 500 {
				b.On()
				b.Piece(Piece{Kind: Read, End: 1})
			}
		})
	}
	wg.Wait()
	r.Stop()
	n := len(spans(written(t, r)))
	if int64(n)+r.Dropped() != 2000 || n > 1000 || n < 1000-3*grantUnit {
		t.Errorf("%d events recorded and %d dropped", n, r.Dropped())
	}
	if f := written(t, r); f.Other["dropped_events"] == "0" {
		t.Errorf("%v", f.Other)
	}
}

// Records of more than one slab are all there, and nothing is allocated for one.
func TestManyRecords(t *testing.T) {
	r := Start()
	defer r.Close()
	var b Buffer
	b.On()
	var ref FileRef
	res := []route.Receipt{{Bytes: 1, Route: route.Bar, By: route.ByRoute{route.Bar: 1}}}
	const n = 3*slabBytes/64 + 5
	if a := testing.AllocsPerRun(n-1, func() { b.Transfer(&Call{File: &ref, Named: called("f"), End: 1}, res) }); a != 0 {
		t.Errorf("%v allocations per record", a)
	}
	r.Stop()
	if got := len(r.process().transfers); got != n {
		t.Errorf("%d records, want %d", got, n)
	}
}

// TestKilled has a process record in a directory until it is killed.
func TestKilled(t *testing.T) {
	if dir := os.Getenv("TRACE_DIRECTORY"); dir != "" {
		recordUntilKilled(t, dir)
	}
	dir := t.TempDir()
	for range 2 {
		cmd := exec.Command(os.Args[0], "-test.run", "^TestKilled$")
		cmd.Env = append(os.Environ(), "TRACE_DIRECTORY="+dir)
		if err := cmd.Run(); err == nil || cmd.ProcessState.Sys().(interface{ Signaled() bool }).Signaled() == false {
			t.Fatalf("it was not killed: %v", err)
		}
	}
	var out bytes.Buffer
	n, err := Collect(&out, dir)
	if err != nil || n != 2 {
		t.Fatal(n, err)
	}
	f := parse(t, out.Bytes())
	pids, bytes := map[int]bool{}, 0.0
	for _, e := range f.Events {
		if e.Cat == "transfer" {
			pids[e.PID] = true
			bytes += e.Args["bytes"].(float64)
			if e.Name != "read killed.bin" {
				t.Fatalf("%+v", e)
			}
		}
	}
	if want := 2 * 40000.0; len(pids) != 2 || bytes != want {
		t.Errorf("%d processes, %v bytes, want %v", len(pids), bytes, want)
	}
}

func recordUntilKilled(t *testing.T, dir string) {
	r, err := StartIn(dir)
	if err != nil {
		t.Fatal(err)
	}
	_ = r
	var b Buffer
	b.On()
	var ref FileRef
	for i := range time.Duration(40000) { // more than one slab
		b.Transfer(&Call{File: &ref, Named: called("/data/killed.bin"), Begin: i, End: i + 1}, []route.Receipt{{Bytes: 1, Route: route.Bar, By: route.ByRoute{route.Bar: 1}}})
	}
	_ = unix.Kill(os.Getpid(), unix.SIGKILL)
}

// No descriptor of a file of the run stays open: a program that closes what it did not open
// would give its number to a file of its own, in which names would then be written.
func TestNothingStaysOpen(t *testing.T) {
	dir := t.TempDir()
	f, err := newFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	if _, err := f.grow(); err != nil {
		t.Fatal(err)
	}
	f.name("/data/a")
	links, err := filepath.Glob("/proc/self/fd/*")
	if err != nil || len(links) == 0 {
		t.Skipf("needs /proc: %v", err)
	}
	for _, link := range links {
		if to, _ := os.Readlink(link); strings.HasPrefix(to, dir) {
			t.Errorf("%s is open", to)
		}
	}
	text, err := os.ReadFile(f.base + namesSuffix)
	if err != nil || !strings.HasSuffix(string(text), "}\n\"/data/a\"\n") {
		t.Errorf("names %q, %v", text, err)
	}
}

// What is in the directory of a run may be anything: it is read without a panic.
func FuzzCollect(f *testing.F) {
	f.Add([]byte(`{"pid":1,"command":"a","base":5}`+"\n\"name\"\n"), bytes.Repeat([]byte{1, 255, 255, 0, 0, 0, 0, 0}, 16))
	f.Fuzz(func(t *testing.T, names, slab []byte) {
		dir := t.TempDir()
		if err := errors.Join(os.WriteFile(filepath.Join(dir, "1-1"+namesSuffix), names, 0o600), os.WriteFile(filepath.Join(dir, "1-1.000"+slabSuffix), slab, 0o600)); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if _, err := Collect(&out, dir); err == nil && !json.Valid(out.Bytes()) {
			t.Errorf("not JSON: %s", &out)
		}
	})
}

// What is off costs nothing, and the records of an earlier recorder are not used again.
func TestOff(t *testing.T) {
	var b Buffer
	if On() || b.On() {
		t.Error("it is on")
	}
	first := Start()
	b.On()
	b.Piece(Piece{Kind: Read, End: 1})
	first.Close()
	if On() || b.On() {
		t.Error("it is still on")
	}
	second := Start()
	defer second.Close()
	var ref FileRef
	if !b.On() || b.rec != second || b.One(&ref, &route.Receipt{}, nil) != nil {
		t.Error("the records of another recorder are used")
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestWriteError(t *testing.T) {
	r := Start()
	r.Stop()
	if err := r.Write(full{}); err == nil {
		t.Error("an error of the disk is not reported")
	}
}

func BenchmarkTransfer(b *testing.B) {
	var ref FileRef
	res := []route.Receipt{{Bytes: 1, Route: route.Bar, By: route.ByRoute{route.Bar: 1}}}
	for b.Loop() {
		r := Start()
		var buf Buffer
		for range 10000 {
			buf.On()
			buf.Transfer(&Call{File: &ref, Named: called("f"), End: 1}, res)
		}
		r.Close()
	}
	b.ReportMetric(float64(b.Elapsed())/float64(b.N)/10000, "ns/record")
}

// Each event has the fields that the format documents for its phase, and no others.
func TestFormat(t *testing.T) {
	r := Start()
	defer r.Close()
	var b Buffer
	b.On()
	b.Transfer(&Call{File: new(FileRef), Named: called("/a"), Begin: 1000, Turn: 2000, End: 3000}, []route.Receipt{{Bytes: 5, Route: route.Ring, By: route.ByRoute{route.Ring: 5}}})
	r.Stop()
	var out bytes.Buffer
	if err := r.Write(&out); err != nil {
		t.Fatal(err)
	}
	var f struct {
		Events []map[string]any `json:"traceEvents"`
	}
	if err := json.Unmarshal(out.Bytes(), &f); err != nil || len(f.Events) < 4 {
		t.Fatal(err, out.String())
	}
	fields := map[string]string{"X": "args cat dur name ph pid tid ts", "M": "args name ph pid tid ts"}
	for _, e := range f.Events {
		if got := strings.Join(slices.Sorted(maps.Keys(e)), " "); got != fields[e["ph"].(string)] {
			t.Errorf("phase %v has %s", e["ph"], got)
		}
		for name, v := range e {
			if _, number := v.(float64); number != slices.Contains([]string{"dur", "pid", "tid", "ts"}, name) {
				t.Errorf("%s is %T", name, v)
			}
		}
	}
}
