package stats

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

var routes = []string{"none", "vendor", "ring"}

func newProcess(t testing.TB) *Process {
	t.Helper()
	p := New(routes)
	if p.err != nil {
		t.Skipf("needs System V shared memory: %v", p.err)
	}
	t.Cleanup(func() {
		p.die()
		_ = remove(p.id) // a test may have removed it
	})
	return p
}

// die does to the segment what the end of the process does.
func (p *Process) die() {
	if p.mem != nil {
		unix.SysvShmDetach(p.mem)
		p.mem, p.seg = nil, nil
	}
}

// entryOf finds a segment among all.
func entryOf(t *testing.T, id int) (e entry, ok bool) {
	t.Helper()
	for _, e := range entries() {
		if e.id == id {
			return e, true
		}
	}
	return e, false
}

func read(t *testing.T, id int) *Snapshot {
	t.Helper()
	e, ok := entryOf(t, id)
	if !ok {
		t.Fatalf("segment %d is gone", id)
	}
	s, err := e.read()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Many threads add, and what they added is read by way of the file.
func TestSumsAreReadFromOutside(t *testing.T) {
	p := newProcess(t)
	f, g := p.Attach("/data/one"), p.Attach("/data/two")
	var wg sync.WaitGroup
	for i := range uint32(16) {
		wg.Go(func() {
			for range 1000 {
				f.Add(i, &Transfer{Route: 2, Bytes: 3, Host: 2, Retries: 1, Time: time.Microsecond})
				g.Add(i, &Transfer{Route: 1, Write: true, Bytes: 5, Failed: true})
			}
		})
	}
	wg.Wait()
	s := read(t, p.id)
	want := Totals{Host: 32_000, Errors: 16_000, Retries: 16_000, Time: 16 * time.Millisecond}
	want.Ops[0][2], want.Bytes[0][2] = 16_000, 48_000
	want.Ops[1][1], want.Bytes[1][1] = 16_000, 80_000
	if d := cmp.Diff(want, s.Totals); d != "" {
		t.Error(d)
	}
	if !s.Alive || s.PID != os.Getpid() || s.UID != os.Getuid() || s.Routes[2] != "ring" || !strings.HasPrefix(s.Command, os.Args[0][:10]) {
		t.Errorf("%+v", s)
	}
	if len(s.Files) != 2 || s.Files[0].Name != "/data/one" || !s.Files[1].Open || s.Files[1].Totals.Bytes[1][1] != 80_000 {
		t.Errorf("files: %+v", s.Files)
	}
	sums := f.Totals()
	if ops, n := sums.Sum(false); ops != 16_000 || n != 48_000 {
		t.Errorf("file: %d operations, %d bytes", ops, n)
	}
}

// However files come and go, more than there are slots, the process's totals are
// those of all of them, and each file's are its own.
func TestFilesAgainstAModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p := newProcess(t)
		type entry struct {
			f    *File
			sums int64
		}
		var live []entry
		var total int64
		for range rapid.IntRange(1, 300).Draw(rt, "steps") {
			switch what := rapid.IntRange(0, 9).Draw(rt, "what"); {
			case what < 4 || len(live) == 0:
				live = append(live, entry{p.Attach(fmt.Sprint("file", len(live))), 0})
			case what < 8:
				e := &live[rapid.IntRange(0, len(live)-1).Draw(rt, "which")]
				bytes := int64(rapid.IntRange(0, 1000).Draw(rt, "bytes"))
				e.f.Add(rapid.Uint32().Draw(rt, "shard"), &Transfer{Bytes: bytes, Route: 2})
				e.sums += bytes
				total += bytes
			default:
				i := rapid.IntRange(0, len(live)-1).Draw(rt, "which")
				got := p.Detach(live[i].f)
				if _, n := got.Sum(false); n != live[i].sums {
					rt.Fatalf("a file of %d bytes says %d at its end", live[i].sums, n)
				}
				live = append(live[:i], live[i+1:]...)
			}
		}
		s := read(t, p.id)
		if _, n := s.Totals.Sum(false); n != total {
			rt.Fatalf("%d bytes in all, want %d", n, total)
		}
		for i, e := range live {
			sums := e.f.Totals()
			if _, n := sums.Sum(false); n != e.sums {
				rt.Fatalf("file %d has %d bytes, want %d", i, n, e.sums)
			}
		}
	})
}

// A file that comes again has its slot and sums again, and others keep theirs.
func TestSameFileAgain(t *testing.T) {
	p := newProcess(t)
	other := p.Attach("/data/other")
	other.Add(0, &Transfer{Route: 1, Bytes: 7})
	p.Detach(other)
	for range 2 * slots {
		f := p.Attach("/data/file")
		f.Add(0, &Transfer{Route: 2, Bytes: 3, Host: 1, Time: 1})
		now := f.Totals()
		if end := p.Detach(f); end != now || end.Bytes[0][2] != 3 || end.Host != 1 || end.Time != 1 {
			t.Fatalf("one of many: %+v, at its end %+v", now, end)
		}
	}
	s := read(t, p.id)
	if len(s.Files) != 2 || s.Files[0].Totals.Bytes[0][1] != 7 || s.Files[1].Totals.Bytes[0][2] != 2*slots*3 {
		t.Errorf("%+v", s.Files)
	}
}

// Totals never go back while slots change hands.
func TestReadingDuringChanges(t *testing.T) {
	p := newProcess(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 5000 {
			f := p.Attach(fmt.Sprint(i))
			f.Add(uint32(i), &Transfer{Bytes: 1})
			p.Detach(f)
		}
	}()
	last := int64(0)
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		s := read(t, p.id)
		_, n := s.Totals.Sum(false)
		if n < last {
			t.Fatalf("%d bytes after %d", n, last)
		}
		last = n
	}
	if last != 5000 {
		t.Errorf("%d bytes at the end", last)
	}
}

// TestHelper is a process that counts and waits for its end.
func TestHelper(t *testing.T) {
	if os.Getenv("STATS_TEST_HELPER") == "" {
		t.Skip("needs a parent: TestSegmentOutlivesItsProcess starts it")
	}
	p := New(routes)
	p.Attach("/data/file").Add(3, &Transfer{Route: 2, Bytes: 4711})
	fmt.Println("ready", p.id)
	for {
		unix.Pause() // where Go would see that nobody can wake it, it ends the process
	}
}

// start starts TestHelper and returns its segment.
func start(t *testing.T) (*exec.Cmd, int) {
	t.Helper()
	newProcess(t) // or skip
	cmd := exec.Command(os.Args[0], "-test.run=^TestHelper$")
	cmd.Env = append(os.Environ(), "STATS_TEST_HELPER=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var id int
	if _, err := fmt.Fscanf(bufio.NewReader(out), "ready %d\n", &id); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		_ = remove(id) // the test may have removed it
	})
	return cmd, id
}

func TestSegmentOutlivesItsProcess(t *testing.T) {
	cmd, id := start(t)
	pid := cmd.Process.Pid
	sweepOne := func(after time.Duration) bool {
		t.Helper()
		e, ok := entryOf(t, id)
		if !ok {
			t.Fatal("the segment is gone")
		}
		sweep([]entry{e}, time.Unix(e.lastUse(), 0).Add(after))
		_, ok = entryOf(t, id)
		return ok
	}
	if !sweepOne(time.Hour) {
		t.Fatal("the segment of a running process was removed")
	}
	if s, err := Read(pid); err != nil || !s.Alive || s.PID != pid || s.UID != os.Geteuid() || s.Totals.Bytes[0][2] != 4711 {
		t.Errorf("while it runs: %+v, %v", s, err)
	}
	cmd.Process.Kill()
	cmd.Wait()
	if s, err := Read(pid); err != nil || s.Alive || s.Totals.Bytes[0][2] != 4711 || s.Files[0].Name != "/data/file" {
		t.Errorf("after it was killed: %+v, %v", s, err)
	}
	if !sweepOne(0) || !sweepOne(keep) {
		t.Error("the segment did not stay for a minute")
	}
	if sweepOne(keep + time.Second) {
		t.Error("the segment stayed longer than a minute")
	}
	if _, err := Read(pid); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("found when it is gone: %v", err)
	}
}

// A removed segment stays while its process runs: transfers do not depend on it.
func TestRemovedWhileRunning(t *testing.T) {
	p := newProcess(t)
	f := p.Attach("a")
	if err := remove(p.id); err != nil {
		t.Fatal(err)
	}
	p.Attach("b").Add(0, &Transfer{Bytes: 7})
	f.Add(0, &Transfer{Bytes: 5})
	if sum := f.Totals(); sum.Bytes[0][0] != 5 {
		t.Errorf("%+v", sum)
	}
	if s := read(t, p.id); s.Totals.Bytes[0][0] != 12 {
		t.Errorf("%+v", s.Totals)
	}
}

// Of the segments of one process ID, that of the running process is read, and else
// the latest.
func TestSameNumber(t *testing.T) {
	old := entry{id: 1, desc: unix.SysvShmDesc{Cpid: int32(os.Getpid()), Ctime: 5}}
	later := entry{id: 2, desc: unix.SysvShmDesc{Cpid: int32(os.Getpid()), Ctime: 6}}
	running := entry{id: 3, desc: unix.SysvShmDesc{Cpid: int32(os.Getpid()), Ctime: 4, Nattch: 1}}
	for _, tt := range []struct{ first, second entry }{{later, old}, {running, old}, {running, later}} {
		if !tt.first.before(&tt.second) || tt.second.before(&tt.first) {
			t.Errorf("%d is not before %d", tt.first.id, tt.second.id)
		}
	}
}

// A segment of another user's earlier process does not pass for that of a process
// that has the same ID now.
func TestCredible(t *testing.T) {
	const nobody = 65534
	me := os.Geteuid()
	for _, tt := range []struct {
		pid, user int
		want      bool
	}{
		{1, 0, true},
		{1, me, true},
		{1, nobody, me == nobody},
		{os.Getpid(), nobody, me == nobody},
		{1999999999, nobody, true}, // it has ended
	} {
		e := entry{desc: unix.SysvShmDesc{Cpid: int32(tt.pid)}}
		e.desc.Perm.Cuid = uint32(tt.user)
		if e.credible() != tt.want {
			t.Errorf("process %d, user %d: %v", tt.pid, tt.user, !tt.want)
		}
	}
	if got := users("Name:\tx\nUid:\t1\t2\t3\t4\nGid:\t5\n"); strings.Join(got, " ") != "1 2 3 4" {
		t.Errorf("%q", got)
	}
}

// Segments of ended processes do not use up those that the kernel has for everybody.
// The test makes none: other processes of this user sweep at the same time.
func TestSurplus(t *testing.T) {
	const user = 1000
	now := time.Unix(1e9, 0)
	ended := func(id int, age time.Duration) entry {
		e := entry{id: id, desc: unix.SysvShmDesc{Segsz: segmentSize, Dtime: now.Add(-age).Unix()}}
		e.desc.Perm.Cuid, e.desc.Perm.Key = user, unix.IPC_PRIVATE
		return e
	}
	var recent []entry
	for i := range maxEnded {
		recent = append(recent, ended(i, keep/2))
	}
	running, others, small, named := ended(1, time.Hour), ended(2, time.Hour), ended(3, time.Hour), ended(4, time.Hour)
	running.desc.Nattch, others.desc.Perm.Cuid, small.desc.Segsz, named.desc.Perm.Key = 1, 0, 4096, 7
	for name, tt := range map[string]struct {
		list []entry
		want []int
	}{
		"as many as allowed": {recent, nil},
		"the oldest go":      {append([]entry{ended(900, keep-time.Second), ended(901, keep-2*time.Second)}, recent...), []int{901, 900}},
		"too old":            {[]entry{ended(902, keep+time.Second), ended(903, 0)}, []int{902}},
		"not ours":           {[]entry{running, others, small, named}, nil},
	} {
		var got []int
		for _, e := range surplus(tt.list, user, now) {
			got = append(got, e.id)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// A segment of an ended process is removed, and memory of other programs is not.
func TestSweep(t *testing.T) {
	newProcess(t) // or skip
	for name, contents := range map[string]string{"ours": string(magic[:]), "another program's": "another program's"} {
		id, mem, err := create()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = remove(id) })
		copy(mem, contents)
		e := entry{id: id}
		if err := unix.SysvShmDetach(mem); err != nil {
			t.Fatal(err)
		}
		if _, err := unix.SysvShmCtl(id, unix.IPC_STAT, &e.desc); err != nil {
			t.Fatal(err)
		}
		sweep([]entry{e}, time.Now().Add(2*keep))
		if _, there := entryOf(t, id); there == (name == "ours") {
			t.Errorf("%s: there is %v", name, there)
		}
	}
}

func FuzzRead(f *testing.F) {
	image := make([]byte, segmentSize)
	h := headerAt(image)
	h.Magic, h.Version, h.Slots = magic, layoutVersion, slots
	f.Add(image[:headerSize+slotSize])
	f.Add([]byte{})
	f.Add([]byte("culvstat"))
	f.Fuzz(func(t *testing.T, head []byte) {
		b := make([]byte, segmentSize)
		copy(b, head)
		if len(head) < 16 {
			b = head
		}
		if len(b) > 48 {
			b[40] &^= 1 // or it waits for the end of a change
		}
		s, err := snapshot(b)
		if (s == nil) == (err == nil) {
			t.Errorf("%v, %v", s, err)
		}
	})
}

func TestAddAllocatesNothing(t *testing.T) {
	p := newProcess(t)
	f := p.Attach("x")
	tr := &Transfer{Bytes: 1, Route: 2, Host: 1}
	if n := testing.AllocsPerRun(100, func() { f.Add(1, tr) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkAdd(b *testing.B) {
	p := newProcess(b)
	f := p.Attach("x")
	tr := &Transfer{Bytes: 1, Route: 2, Host: 1, Time: 1}
	for b.Loop() {
		f.Add(1, tr)
	}
}
