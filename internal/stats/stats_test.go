package stats

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

var routes = []string{"none", "vendor", "ring"}

// segments is a directory whose file system keeps locks: overlayfs does not.
func segments(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	var on unix.Statfs_t
	if err := unix.Statfs(dir, &on); err != nil {
		t.Fatal(err)
	}
	if on.Type != unix.OVERLAYFS_SUPER_MAGIC {
		return dir
	}
	dir, err := os.MkdirTemp("/dev/shm", "stats")
	if err != nil {
		t.Skipf("needs a directory outside of overlayfs: %v", err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func newProcess(t *testing.T, dir string) *Process {
	t.Helper()
	p := New([]string{dir}, routes)
	if _, err := p.Path(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.die)
	return p
}

// die does to the segment what the end of the process does.
func (p *Process) die() {
	if p.mem != nil {
		unix.Munmap(p.mem)
		p.mem, p.seg = nil, nil
	}
}

func read(t *testing.T, path string) *Snapshot {
	t.Helper()
	s, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Many threads add, and what they added is read by way of the file.
func TestSumsAreReadFromOutside(t *testing.T) {
	p := newProcess(t, segments(t))
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
	s := read(t, p.path)
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
	dir := segments(t)
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		sub := filepath.Join(dir, fmt.Sprint(n))
		if err := os.Mkdir(sub, 0o700); err != nil {
			rt.Fatal(err)
		}
		p := newProcess(t, sub)
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
		s := read(t, p.path)
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

// Totals never go back while slots change hands.
func TestReadingDuringChanges(t *testing.T) {
	p := newProcess(t, segments(t))
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
		s := read(t, p.path)
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
	dir := os.Getenv("STATS_TEST_DIR")
	if dir == "" {
		t.Skip("needs a parent: TestSegmentOutlivesItsProcess starts it")
	}
	p := New([]string{dir}, routes)
	p.Attach("/data/file").Add(3, &Transfer{Route: 2, Bytes: 4711})
	fmt.Println("ready", p.path)
	for {
		unix.Pause() // where Go would see that nobody can wake it, it ends the process
	}
}

func TestSegmentOutlivesItsProcess(t *testing.T) {
	dir := segments(t)
	cmd := exec.Command(os.Args[0], "-test.run=^TestHelper$")
	cmd.Env = append(os.Environ(), "STATS_TEST_DIR="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	path, ok := strings.CutPrefix(strings.TrimSpace(line), "ready ")
	if err != nil || !ok {
		t.Fatalf("%q, %v", line, err)
	}
	if found, err := Find([]string{"/nowhere", dir}, cmd.Process.Pid); err != nil || found != path {
		t.Errorf("found %q, %v, want %q", found, err, path)
	}
	now := time.Now()
	sweep(dir, now.Add(time.Hour))
	if s := read(t, path); !s.Alive || s.Totals.Bytes[0][2] != 4711 {
		t.Errorf("while it runs: %+v", s)
	}
	cmd.Process.Kill()
	cmd.Wait()
	if s := read(t, path); s.Alive || s.Totals.Bytes[0][2] != 4711 || s.Files[0].Name != "/data/file" {
		t.Errorf("after it was killed: %+v", s)
	}
	// The first who finds it leaves it; after a minute it goes.
	for _, c := range []struct {
		after time.Duration
		there bool
	}{{0, true}, {59 * time.Second, true}, {61 * time.Second, false}} {
		sweep(dir, now.Add(c.after))
		if _, err := os.Stat(path); (err == nil) != c.there {
			t.Errorf("%v after it was found dead: %v", c.after, err)
		}
	}
	if _, err := Find([]string{dir}, cmd.Process.Pid); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("found when it is gone: %v", err)
	}
}

// A file of a dead process with the same number gives way; one of a living
// process does not.
func TestSameNumber(t *testing.T) {
	dir := segments(t)
	first := newProcess(t, dir)
	first.Attach("a").Add(0, &Transfer{Bytes: 5})
	second := New([]string{dir}, routes)
	if path, err := second.Path(); path != "" || !errors.Is(err, fs.ErrExist) {
		t.Errorf("a second segment beside the first: %q, %v", path, err)
	}
	f := second.Attach("b")
	f.Add(0, &Transfer{Bytes: 7})
	sums := second.Detach(f)
	if _, n := sums.Sum(false); n != 7 {
		t.Errorf("without a segment: %d bytes", n)
	}
	first.die()
	third := newProcess(t, dir)
	s := read(t, third.path)
	if _, n := s.Totals.Sum(false); n != 0 {
		t.Errorf("a new segment begins with %d bytes", n)
	}
}

// What lies in the way is neither followed nor taken for a segment.
func TestForeignFiles(t *testing.T) {
	dir := segments(t)
	precious := filepath.Join(dir, "precious")
	if err := os.WriteFile(precious, []byte("do not touch"), 0o600); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, fileName(os.Getuid(), os.Getpid()))
	if err := os.Symlink(precious, path); err != nil {
		t.Fatal(err)
	}
	if got, err := New([]string{dir}, routes).Path(); got != "" || err == nil {
		t.Errorf("a segment was made through a link: %q", got)
	}
	if _, err := Read(path); err == nil {
		t.Error("a link was read")
	}
	if text, err := os.ReadFile(precious); err != nil || string(text) != "do not touch" {
		t.Errorf("%q, %v", text, err)
	}
	os.Remove(path)
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(path); err == nil {
		t.Error("a pipe was read")
	}
	sweep(dir, time.Now().Add(time.Hour)) // must not hang, nor remove it
	if _, err := os.Lstat(path); err != nil {
		t.Error(err)
	}
	if got, err := New([]string{"/proc/nowhere", filepath.Join(dir, "missing")}, routes).Path(); got != "" || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no directory: %q, %v", got, err)
	}
}

func FuzzRead(f *testing.F) {
	p := New([]string{segments(f)}, routes)
	p.Attach("x").Add(1, &Transfer{Bytes: 9})
	image, err := os.ReadFile(p.path)
	if err != nil {
		f.Fatal(err)
	}
	p.die()
	f.Add(image[:4096])
	f.Add([]byte{})
	f.Add([]byte("culvstat"))
	path := filepath.Join(f.TempDir(), "segment")
	f.Fuzz(func(t *testing.T, head []byte) {
		b := make([]byte, segmentSize)
		copy(b, head)
		if len(head) < 16 {
			b = head
		}
		if len(b) > 48 {
			b[40] &^= 1 // or it waits for the end of a change
		}
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := Read(path)
		if (s == nil) == (err == nil) {
			t.Errorf("%v, %v", s, err)
		}
	})
}

func TestAddAllocatesNothing(t *testing.T) {
	p := newProcess(t, segments(t))
	f := p.Attach("x")
	tr := &Transfer{Bytes: 1, Route: 2, Host: 1}
	if n := testing.AllocsPerRun(100, func() { f.Add(1, tr) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkAdd(b *testing.B) {
	p := New([]string{segments(b)}, routes)
	f := p.Attach("x")
	tr := &Transfer{Bytes: 1, Route: 2, Host: 1, Time: 1}
	for b.Loop() {
		f.Add(1, tr)
	}
}
