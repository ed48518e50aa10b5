package top

import (
	"context"
	"flag"
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/gdamore/tcell/v2"

	"github.com/culvert-io/culvert/internal/stats"
)

var update = flag.Bool("update", false, "write the golden screens")

var routes = []string{"none", "vendor", "nvfs", "ring"}

// snapshot is a process with two files, each of which moved n MiB.
func snapshot(pid int, n int64) *stats.Snapshot {
	s := &stats.Snapshot{PID: pid, Command: "/opt/venv/bin/python3 serve.py --model llama", Started: time.Unix(int64(pid), 0), Alive: true, Routes: routes}
	var ring, nvfs stats.Totals
	ring.Ops[0][3], ring.Bytes[0][3], ring.Host, ring.Time = n, n<<20, n<<20, time.Duration(n)*time.Millisecond
	nvfs.Ops[1][2], nvfs.Bytes[1][2], nvfs.Errors, nvfs.Time = 2*n, n<<20, n/100, time.Duration(n)*100*time.Microsecond
	s.Files = []stats.FileSnapshot{
		{Name: "/srv/models/llama-70b/model-00001-of-00030.safetensors", Open: true, Totals: ring, Description: stats.Description{
			GPU: 0, Ceiling: 5e10, Declined: "vendor: direct: NVIDIA's library would use its compatibility mode for this file system\nnvfs: kernel module: /dev/nvidia-fs0: no such file or directory (fix: modprobe nvidia-fs)",
		}},
		{Name: "/srv/checkpoints/step-100\x1b[2J", Open: true, Totals: nvfs, Description: stats.Description{GPU: 1}},
	}
	s.Totals = ring
	s.Totals.Ops[1], s.Totals.Bytes[1], s.Totals.Errors = nvfs.Ops[1], nvfs.Bytes[1], nvfs.Errors
	s.Totals.Time += nvfs.Time
	return s
}

func TestMeter(t *testing.T) {
	var m Meter
	start := time.Unix(1000, 0)
	for i, want := range []float64{0, 500 << 20, 1000 << 20} {
		n := int64([]int{100, 1100, 3100}[i])
		rows := m.Step(start.Add(time.Duration(i)*2*time.Second), []*stats.Snapshot{snapshot(1, n)})
		if got := rows[0].Files[0].Read; got != want {
			t.Errorf("step %d: read %.0f, want %.0f", i, got, want)
		}
		if i == 0 {
			continue
		}
		f := rows[0].Files[0]
		if f.Route != "ring" || f.Latency != time.Millisecond || f.Host != want || f.Link != want/5e10 || len(f.Declined) != 2 {
			t.Errorf("step %d: %+v", i, f)
		}
		if rows[0].Files[1].Write != want || rows[0].Rate() != 2*want {
			t.Errorf("step %d: %+v", i, rows[0])
		}
	}
	// A process that starts between two steps, and a slot that went to another file.
	rows := m.Step(start.Add(6*time.Second), []*stats.Snapshot{snapshot(2, 10), snapshot(1, 50)})
	if got := rows[0].Files[0].Read; got != 5<<20 {
		t.Errorf("new process: %.0f", got)
	}
	if got := rows[1].Files[0].Read; got < 0 {
		t.Errorf("reused slot: %.0f", got)
	}
}

// A file that is open several times is one row, whose rate is that of all of them.
func TestMeterOfOneFileOpenTwice(t *testing.T) {
	var m Meter
	twice := func(n int64) []*stats.Snapshot {
		s := snapshot(1, n)
		again := s.Files[0]
		again.Totals.Add(&again.Totals) // twice as much
		other := s.Files[0]
		other.GPU = 1
		s.Files = append(s.Files, again, other)
		return []*stats.Snapshot{s}
	}
	start := time.Unix(1000, 0)
	m.Step(start, twice(100))
	rows := m.Step(start.Add(time.Second), twice(200))
	files := rows[0].Files
	if len(files) != 3 || files[0].Read != 300<<20 || files[0].Latency != time.Millisecond || files[2].GPU != 1 || files[2].Read != 100<<20 {
		t.Errorf("%+v", files)
	}
	if got := m.Step(start.Add(2*time.Second), twice(50))[0].Files[0].Read; got != 0 {
		t.Errorf("after one was closed and opened again: %.0f", got)
	}
	m.Step(start.Add(3*time.Second), twice(100))
	one := []*stats.Snapshot{snapshot(1, 110)}
	if got := m.Step(start.Add(4*time.Second), one)[0].Files[0].Read; got != 0 {
		t.Errorf("after one of two was closed: %.0f", got)
	}
	if len(files[0].History) != 2 {
		t.Errorf("%d intervals in the history after two", len(files[0].History))
	}
}

func view(t *testing.T) *View {
	t.Helper()
	var m Meter
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	v := &View{Now: start}
	for i, n := range []int64{0, 1000, 1500, 3500} {
		ended := snapshot(99, 5)
		ended.Alive = false
		v.Rows = m.Step(start.Add(time.Duration(i)*time.Second), []*stats.Snapshot{snapshot(4711, n), ended})
	}
	return v
}

// The screens at three widths, of which no line is wider, and the details of a file.
func TestScreens(t *testing.T) {
	var out strings.Builder
	for _, size := range [][2]int{{40, 10}, {80, 24}, {200, 10}} {
		for _, change := range []func(*View){
			func(*View) {}, func(v *View) { v.ASCII = true; v.Selected = 1; v.Detail = true }, func(v *View) { v.Filter = "zzz"; v.Typing = true },
		} {
			v := view(t)
			change(v)
			lines := v.Render(size[0], size[1])
			if len(lines) != size[1] {
				t.Errorf("%v: %d lines", size, len(lines))
			}
			for _, line := range lines {
				if n := utf8.RuneCountInString(line.Text); n > size[0] {
					t.Errorf("%v: %d columns: %s", size, n, line.Text)
				}
				out.WriteString(strings.TrimRight(line.Text, " ") + "\n")
			}
			out.WriteString(strings.Repeat("-", size[0]) + "\n")
		}
	}
	const path = "testdata/screens.txt"
	if *update {
		if err := os.WriteFile(path, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if out.String() != string(want) {
		t.Errorf("the screens differ from %s (-update writes it):\n%s", path, &out)
	}
}

func TestArrange(t *testing.T) {
	rows := view(t).Rows
	for _, tt := range []struct {
		by     Order
		filter string
		want   int // PID of the first
		files  int
	}{{ByRate, "", 4711, 2}, {ByPID, "", 99, 2}, {ByRate, "step-100", 4711, 1}, {ByErrors, "", 4711, 2}, {ByLatency, "serve", 4711, 2}, {ByHost, "", 4711, 2}} {
		got := Arrange(rows, tt.by, tt.filter)
		if len(got) != 2 || got[0].PID != tt.want || len(got[0].Files) != tt.files {
			t.Errorf("%v %q: %+v", tt.by, tt.filter, got)
		}
	}
	if got := Arrange(rows, ByRate, "nothing"); len(got) != 0 {
		t.Errorf("%+v", got)
	}
}

// Keys filter, sort and inspect.
func TestKeys(t *testing.T) {
	v := view(t)
	for _, r := range "s/stepx\x7f\rj\r" {
		k := tcell.KeyRune
		if r < ' ' || r == 0x7f {
			k = tcell.Key(r)
		}
		if v.key(k, r) {
			t.Fatalf("%q ends the program", r)
		}
	}
	if v.Filter != "step" || !v.Detail || v.Selected != 1 || v.Order != ByLatency {
		t.Errorf("%+v", v)
	}
	if v.key(tcell.KeyEscape, 0); v.Detail {
		t.Error("escape does not leave the details")
	}
	if !v.key(tcell.KeyRune, 'q') || !v.key(tcell.KeyCtrlC, 0) {
		t.Error("q and ^C do not end the program")
	}
}

// The program draws what was read and ends when the user asks for it.
func TestRun(t *testing.T) {
	screen := tcell.NewSimulationScreen("UTF-8")
	done, ticks := make(chan error), make(chan time.Time)
	go func() {
		done <- Run(context.Background(), screen, &View{}, ticks, func() []*stats.Snapshot { return []*stats.Snapshot{snapshot(1, 1)} })
	}()
	ticks <- time.Now() // the screen is ready and was drawn
	ticks <- time.Now()
	cells, width, _ := screen.GetContents()
	var text strings.Builder
	for _, c := range cells[:3*width] {
		text.WriteString(string(c.Runes))
	}
	screen.InjectKey(tcell.KeyRune, 'q', 0)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(text.String(), "culvert top  1 process ") || !strings.Contains(text.String(), "1   python3 serve") {
		t.Errorf("the screen shows %q", &text)
	}
}

// Letters that take two columns move no other column, and none is drawn over.
func TestWideNames(t *testing.T) {
	screen := tcell.NewSimulationScreen("UTF-8")
	if err := screen.Init(); err != nil {
		t.Fatal(err)
	}
	defer screen.Fini()
	screen.SetSize(80, 24)
	s := snapshot(1, 1)
	s.Files[0].Name = "/srv/" + strings.Repeat("模型", 40) + ".bin"
	draw(screen, &View{Rows: new(Meter).Step(time.Unix(1000, 0), []*stats.Snapshot{s})})
	cells, width, _ := screen.GetContents()
	row := func(y int) string {
		var b strings.Builder
		for _, c := range cells[y*width : (y+1)*width] {
			b.WriteString(string(append(c.Runes, ' ')[:1]))
		}
		return b.String()
	}
	at := func(text, word string) int {
		before, _, found := strings.Cut(text, word)
		if !found {
			t.Fatalf("%q has no %s", text, word)
		}
		return utf8.RuneCountInString(before) + len(word)
	}
	if title, ring := at(row(1), "ROUTE"), at(row(3), "ring"); title != ring || strings.Count(row(3), "模") < 3 {
		t.Errorf("a letter is lost, or the route ends in column %d below a title that ends in %d:\n%s\n%s", ring, title, row(1), row(3))
	}
}

// A cancelled context ends the program.
func TestCancel(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := Run(ctx, tcell.NewSimulationScreen(""), &View{}, nil, func() []*stats.Snapshot { return nil }); err == nil {
		t.Error("no error")
	}
}
