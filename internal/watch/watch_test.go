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
	save(t, dir, "10.0.faults", []byte("errno=EIO\t   1\nunplug\t   0\nshort=1,file=a\tb\t   2\n"))
	c := Collect(dir, time.Hour)
	s := &stats.Snapshot{Routes: []string{"none", "ring", "nvfs"}, Files: []stats.FileSnapshot{{Name: "/data/a"}}}
	s.Files[0].Totals.Bytes[0][1], s.Files[0].Totals.Bytes[0][2], s.Files[0].Totals.Host = 2<<20, 4<<20, 2<<20
	s.Files[0].Declined = "nvfs: buffer: not registered\nnvfs: buffer: not registered\n"
	c.found[segment{pid: -10}], c.found[segment{pid: -11}] = s, new(stats.Snapshot)
	r := &Report{Program: []string{"./program", "x"}, Engine: "culvert", Machine: route.SoftwareMachine, Status: 3}
	if err := c.Report(r, ""); err != nil {
		t.Fatal(err)
	}
	const want = `culvert: ./program x: status 3, engine culvert, 10 cuFile calls by 2 processes
This is the software machine: routes and times say nothing about hardware.
/data/a
  8 reads, 6.0 MiB, 2 failed; 50 % within 10.2 µs, 99 % within 2.1 ms
    sizes: 8 from 1.0 MiB
  routes nvfs 4.0 MiB, ring 2.0 MiB (counted); 67 % direct, 2.0 MiB through host memory
  declined nvfs: buffer: not registered
  error 5 EIO: input/output error, 2 times
failed calls
  cuFileRead  5  EIO: input/output error  2 times
fault: errno=EIO: 1 time
fault: short=1,file=a	b: 2 times
`
	if got := r.String(); got != want {
		t.Errorf("report:\n%s\nwant:\n%s", got, want)
	}
}

// A reader of many files meets each reason once, and sizes as exactly as they are known.
func TestReportOfSeveralFiles(t *testing.T) {
	rec := &rawRecord{PID: 1, Calls: 60}
	file := func(i int, path string) *rawFile {
		f := &rec.Files[i]
		f.Used = 2
		copy(f.Path[:], path)
		return f
	}
	a, b, c := file(1, "/data/a"), file(2, "/data/b"), file(3, "/data/c")
	a.Dir[0].Calls, a.Dir[0].Bytes, a.Dir[0].Sizes[23], a.Dir[0].Times[4*21+1] = 4, 32<<20, 4, 4
	a.Dir[1].Calls, a.Dir[1].Bytes, a.Dir[1].Sizes[23], a.Dir[1].Times[4*21+1] = 1, 8<<20, 1, 1
	b.Dir[0].Calls, b.Dir[0].Async, b.Dir[0].Sizes[16], b.Asked[0] = 26, 26, 26, 26<<16
	b.Dir[1].Calls, b.Dir[1].Async, b.Dir[1].Sizes[16], b.Asked[1] = 2, 2, 2, 2<<16+512
	c.Dir[1].Calls, c.Dir[1].Bytes, c.Dir[1].Sizes[12], c.Dir[1].Sizes[20], c.Dir[1].Times[4*21] = 2, 1<<20+1<<12, 1, 1, 2
	c.Dir[1].Calls, c.Dir[1].Async, c.Dir[1].Sizes[9], c.Asked[1] = 3, 1, 1, 512
	r := &Report{Program: []string{"./program"}, Engine: "culvert"}
	r.addRecord(rec)
	s := &stats.Snapshot{Routes: []string{"none", "bar", "ring"}}
	for _, name := range []string{"/data/a", "/data/b", "/data/c"} {
		f := stats.FileSnapshot{Name: name}
		f.Declined = "nvfs: kernel module: missing (fix: modprobe)\np2pdma: client: no\n"
		f.Totals.Bytes[0][2], f.Totals.Host = 1<<20, 1<<20
		s.Files = append(s.Files, f)
	}
	s.Files[1].Totals.Bytes[0][1] = 1 << 20
	s.Files[2].Declined += "bar: direction: no writes\n"
	r.addStats(s)
	r.finish()
	r.explain("")
	const want = `culvert: ./program: status 0, engine culvert, 60 cuFile calls by 1 process
/data/a
  4 reads of 8.0 MiB, 32.0 MiB; 99 % within 3.15 ms
  1 write of 8.0 MiB; 99 % within 3.15 ms
  routes ring 1.0 MiB (counted); 0 % direct, 1.0 MiB through host memory
  declined nvfs: kernel module, p2pdma: client (reasons below)
/data/b
  26 asynchronous reads of 64.0 KiB, 1.6 MiB
  2 asynchronous writes, 128.5 KiB
    sizes: 2 from 64.0 KiB
  routes bar 1.0 MiB, ring 1.0 MiB (counted); 50 % direct, 1.0 MiB through host memory
  declined nvfs: kernel module, p2pdma: client (reasons below)
/data/c
  2 writes, 1.0 MiB; 99 % within 2.62 ms; 1 asynchronous write, 512 B
    sizes: 1 of 512 B, 1 of 4.0 KiB, 1 of 1.0 MiB
  routes ring 1.0 MiB (counted); 0 % direct, 1.0 MiB through host memory
  declined bar: direction: no writes
  declined nvfs: kernel module, p2pdma: client (reasons below)
declined for several files
  nvfs: kernel module: missing (fix: modprobe)
  p2pdma: client: no
note: asynchronous requests are those of batches and streams; they are counted when they are made, not when they end
`
	if got := r.String(); got != want {
		t.Errorf("report:\n%s\nwant:\n%s", got, want)
	}
}

// What a process moved in files for which its statistics had no room is that of other files.
func TestRoutesOfOtherFiles(t *testing.T) {
	s := &stats.Snapshot{Routes: []string{"none", "ring"}, Files: []stats.FileSnapshot{{Name: "/data/a"}}}
	s.Files[0].Totals.Bytes[0][1], s.Files[0].Totals.Host = 1<<20, 1<<20
	s.Totals.Bytes[0][1], s.Totals.Bytes[1][1], s.Totals.Host = 4<<20, 1<<20, 5<<20
	r := new(Report)
	r.addStats(s)
	r.finish()
	if f := r.Files[0]; f.Path != "(other files)" || f.Host != 4<<20 || len(f.Routes) != 1 || f.Routes[0].Bytes != 4<<20 {
		t.Errorf("%+v", f)
	}
	if f := r.Files[1]; f.Path != "/data/a" || f.Routes[0].Bytes != 1<<20 {
		t.Errorf("%+v", f)
	}
}

// What is known of the routes of a file for which the record had no room is, as its calls,
// that of other files. A file that another library than libcufile used stays.
func TestManyFiles(t *testing.T) {
	s := &stats.Snapshot{Routes: []string{"none", "ring"}, Files: []stats.FileSnapshot{{Name: "/data/last"}}}
	s.Files[0].Totals.Bytes[0][1] = 1 << 20
	for _, crowded := range []bool{false, true} {
		rec := example(1, "/data/first")
		if crowded {
			rec.Files[0].Used, rec.Files[0].Dir[0].Calls = 1, 3
		}
		r := new(Report)
		r.addRecord(rec)
		r.addStats(s)
		r.finish()
		r.explain("")
		want, notes := "/data/last", 0
		if crowded {
			want, notes = otherFiles, 1
		}
		if f := r.file(want); len(f.Routes) != 1 || len(r.Files) != 2 || len(r.Notes) != notes {
			t.Errorf("crowded %v: %+v, notes %q", crowded, r.Files, r.Notes)
		}
	}
}

// The statistics have the beginning of a long path. It is that of the file which the records
// name, unless several begin so.
func TestLongPaths(t *testing.T) {
	long := "/" + strings.Repeat("d", 300)
	s := &stats.Snapshot{Routes: []string{"none", "ring"}, Files: []stats.FileSnapshot{{Name: long[:stats.MaxName]}}}
	s.Files[0].Totals.Bytes[0][1] = 1 << 20
	for _, paths := range [][]string{{long}, {long, long + "2"}} {
		r := new(Report)
		for _, path := range paths {
			r.addRecord(example(1, path))
		}
		r.addStats(s)
		var with []string
		for _, f := range r.Files {
			if len(f.Routes) > 0 {
				with = append(with, f.Path)
			}
		}
		want := long
		if len(paths) > 1 {
			want = long[:stats.MaxName]
		}
		if len(with) != 1 || with[0] != want {
			t.Errorf("%d files: routes of %q", len(paths), with)
		}
	}
}

// A process whose statistics cannot be found is said to have no routes.
func TestWithoutStatistics(t *testing.T) {
	for _, tt := range []struct {
		engine      string
		known, want bool
	}{{"culvert", false, true}, {"culvert", true, false}, {"nvidia", false, false}} {
		dir := t.TempDir()
		save(t, dir, "10.0.record", encode(t, example(-10, "/data/a")))
		c := Collect(dir, time.Hour)
		if tt.known {
			c.found[segment{pid: -10}] = new(stats.Snapshot)
		}
		r := &Report{Engine: tt.engine}
		if err := c.Report(r, ""); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(strings.Join(r.Notes, "; "), "1 process has transfers here but no routes"); got != tt.want {
			t.Errorf("%+v: notes %q", tt, r.Notes)
		}
	}
}

// Statistics from before the run are those of an earlier process with the number.
func TestEarlierProcess(t *testing.T) {
	count := func(name string) {
		p := stats.New([]string{"none", "ring"})
		if err := p.Err(); err != nil {
			t.Skipf("needs System V shared memory: %v", err)
		}
		p.Attach(name).Add(0, &stats.Transfer{Route: 1, Bytes: 1})
	}
	dir := t.TempDir()
	save(t, dir, "10.0.record", encode(t, &rawRecord{PID: int64(os.Getpid())}))
	count("/data/before")
	c := Collect(dir, time.Hour)
	count("/data/after")
	r := new(Report)
	if err := c.Report(r, ""); err != nil {
		t.Fatal(err)
	}
	if len(r.Files) != 1 || r.Files[0].Path != "/data/after" {
		t.Errorf("%+v", r.Files)
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

// What the terminal would obey is quoted, and each word of the program stays in its line.
func TestEscapes(t *testing.T) {
	r := &Report{Program: []string{"sh", "-c", "a\nb", "\x1b[31m"}, Notes: []string{"/\x1b[31m is statically linked"}, Faults: []string{"unplug,file=\x1b: 1 time"}}
	const want = `culvert: sh -c "a\nb" "\x1b[31m": status 0, engine , 0 cuFile calls by 0 processes
fault: unplug,file=\x1b: 1 time
note: /\x1b[31m is statically linked
`
	if got := r.String(); got != want {
		t.Errorf("report:\n%s\nwant:\n%s", got, want)
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

// A request of no bytes is not one of 1 byte.
func TestNoBytes(t *testing.T) {
	d := Direction{Calls: 2, Bytes: 1, Sizes: map[string]int64{"1": 2}}
	if list, one := d.sizes(); len(list) != 1 || list[0] != "2 of 0 or 1 B" || one != "" {
		t.Errorf("%q, %q", list, one)
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
