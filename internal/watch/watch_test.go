package watch

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/culvert-io/culvert/internal/stats"
	"github.com/culvert-io/culvert/route"
)

// encode is a record as a process leaves it.
func encode(t *testing.T, r *rawRecord) []byte {
	t.Helper()
	r.Magic, r.Version, r.Slots = magic, version, fileSlots
	var b bytes.Buffer
	if err := binary.Write(&b, binary.LittleEndian, r); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// example is a process that read a file, with one failure.
func example(pid int64, path string) *rawRecord {
	r := &rawRecord{PID: pid, Calls: 5}
	copy(r.Command[:], "./program")
	f := &r.Files[1]
	f.Used, f.Direct = 2, 1
	copy(f.Path[:], path)
	d := &f.Dir[0]
	d.Calls, d.Bytes, d.Failed = 4, 3<<20, 1
	d.Sizes[20] = 4
	d.Times[4*13] = 3 // from 8.192 µs to 10.24 µs
	d.Times[4*20+3] = 1
	f.Codes[0] = rawCode{Code: 5, Count: 1}
	copy(r.Failures[0].Function[:], "cuFileRead")
	r.Failures[0].Code, r.Failures[0].Ready, r.Failures[0].Count = 5, 1, 1
	return r
}

func save(t *testing.T, dir, name string, data []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// Records of several processes are added up by path; routes come from the statistics.
func TestReport(t *testing.T) {
	dir := t.TempDir()
	save(t, dir, "10.0.record", encode(t, example(-10, "/data/a")))
	save(t, dir, "11.0.record", encode(t, example(-11, "/data/a")))
	save(t, dir, "12.0.record", make([]byte, 100)) // being made
	save(t, dir, "10.0.faults", []byte("errno=EIO\t   1\nunplug\t   0\n"))
	c := Collect(dir, time.Hour)
	s := &stats.Snapshot{Routes: []string{"none", "ring", "nvfs"}, Files: []stats.FileSnapshot{{Name: "/data/a"}}}
	s.Files[0].Totals.Bytes[0][1], s.Files[0].Totals.Bytes[0][2], s.Files[0].Totals.Host = 2<<20, 4<<20, 2<<20
	s.Files[0].Declined = "nvfs: buffer: not registered\nnvfs: buffer: not registered\n"
	c.found[segment{pid: -10}] = s
	r := &Report{Program: []string{"./program", "x"}, Engine: "culvert", Machine: route.SoftwareMachine, Status: 3}
	if err := c.Report(r, ""); err != nil {
		t.Fatal(err)
	}
	const want = `culvert: ./program x: status 3, engine culvert, 10 cuFile calls by 2 of 2 processes
This is the software machine: routes and times say nothing about hardware.
/data/a
  reads 8 calls, 6.0 MiB, 2 failed; 50 % within 10.2 µs, 95 % 2.1 ms, 99 % 2.1 ms
  request sizes from 1.0 MiB: 8
  routes nvfs 4.0 MiB, ring 2.0 MiB (counted); 67 % direct, 2.0 MiB through host memory
  declined nvfs: buffer: not registered
  error 5 EIO: input/output error, 2 times
failed calls
  cuFileRead  5  EIO: input/output error  2 times
fault: errno=EIO: 1 time
`
	if got := r.String(); got != want {
		t.Errorf("report:\n%s\nwant:\n%s", got, want)
	}
}

// What NVIDIA's library did is inferred, and called so.
func TestInfer(t *testing.T) {
	for _, nvfs := range []bool{true, false} {
		r := &Report{Engine: "nvidia"}
		r.addRecord(example(1, "/data/a"))
		r.finish()
		r.infer(nvfs)
		f := r.Files[0]
		if known := f.DirectShare == 0 && f.Evidence == "inferred" && f.Host == 3<<20; known == nvfs {
			t.Errorf("nvidia-fs %v: %+v", nvfs, f)
		}
	}
}

// An empty report says why it is empty.
func TestNotes(t *testing.T) {
	quiet := &rawRecord{PID: 1}
	for _, tt := range []struct {
		records []*rawRecord
		linked  string
		want    string
	}{
		{nil, "", "no process loaded the libraries"},
		{nil, "x is statically linked", "x is statically linked"},
		{[]*rawRecord{quiet}, "", "no process called cuFile"},
		{[]*rawRecord{quiet, example(2, "/a")}, "", ""},
	} {
		r := new(Report)
		for _, rec := range tt.records {
			r.addRecord(rec)
		}
		r.explain(tt.linked)
		if got := strings.Join(r.Notes, "; "); !strings.HasPrefix(got, tt.want) || tt.want == "" && got != "" {
			t.Errorf("%d records, %q: notes %q, want %q", len(tt.records), tt.linked, got, tt.want)
		}
	}
}

// A record that is none is an error with its path.
func TestDamaged(t *testing.T) {
	old := encode(t, example(1, "/a"))
	old[8] = 9
	for name, data := range map[string][]byte{"text": []byte("not a record"), "short": encode(t, example(1, "/a"))[:4096], "version": old} {
		dir := t.TempDir()
		save(t, dir, "1.0.record", data)
		if err := Collect(dir, time.Hour).Report(new(Report), ""); err == nil || !strings.Contains(err.Error(), "1.0.record") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Classes of durations follow each other without gap.
func TestClasses(t *testing.T) {
	for i := 8; i < timeSlots-16; i++ {
		if a, b := classEnd(i), classEnd(i+1); b <= a || float64(b)/float64(a) > 1.3 {
			t.Errorf("class %d ends at %d, the next at %d", i, a, b)
		}
	}
}
