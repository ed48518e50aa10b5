package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/culvert-io/culvert/internal/transfer"
)

func TestProgressPicture(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	s := copyState{
		start: start, files: 3, of: 12, bytes: 3 << 30, total: 10 << 30, before: 1 << 30,
		active: []*activeFile{
			{path: "model-00004-of-00010.safetensors", begun: start.Add(time.Second), done: 512 << 20, size: 1 << 30},
			{path: "tokenizer.json", begun: start.Add(2 * time.Second), size: 100},
			{path: "empty", begun: start.Add(2 * time.Second)},
		},
	}
	s.routes = []string{"nvfs", "ring"}
	for width, want := range map[int][]string{
		40: {
			"█████████████░░░░░░░░░░░░░░░░░░░░░░░░░░",
			"35% of 10.0 GiB, 1.34 GB/s, ETA 5s",
			"3 of 12 files after 2s, by nvfs, ring",
			" * model~00010.safetensors: 50%, ETA 1s",
			" * small files: 2",
		},
		80: {
			"█████████████████████░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░",
			"35%, 3.5 GiB of 10.0 GiB, 1.34 GB/s, ETA 5s",
			"3 of 12 files after 2s, by nvfs, ring",
			" * model-0~04-of-00010.safetensors: 50%, 512.0 MiB of 1.0 GiB, 537 MB/s, ETA 1s",
			" * small files: 2",
		},
	} {
		got := s.render(start.Add(2*time.Second), width)
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("-want +got:\n%s", d)
		}
		for _, line := range got {
			if n := utf8.RuneCountInString(line); n >= width {
				t.Errorf("%d of %d columns: %s", n, width, line)
			}
		}
	}
	for width, bar := range map[int]int{1: 0, 80: 60, 200: 60} {
		if got := utf8.RuneCountInString(s.render(start, width)[0]); got != bar {
			t.Errorf("the bar has %d of %d columns", got, width)
		}
	}
	if !strings.Contains((&copyState{start: start}).render(start, 80)[1], "100%, 0 B of 0 B, 0 B/s, ETA -") {
		t.Error("nothing at all is not shown as such")
	}
}

func TestCommandLine(t *testing.T) {
	words := []string{"cp", "a b", "it's", "--via=gpu:0", "", "x$y", "模型", "a\n\x1b[2J", "\xff'\\é1"}
	got := commandLine(words)
	if want := `culvert cp 'a b' 'it'\''s' --via=gpu:0 '' 'x$y' '模型' $'a\012\033[2J' $'\377\'\\\303\2511'`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	bash, err := exec.LookPath("bash")
	if err != nil {
		return
	}
	out, err := exec.Command(bash, "-c", `culvert() { printf '%s\0' "$@"; }; `+got).Output()
	if want := strings.Join(words, "\x00") + "\x00"; err != nil || string(out) != want {
		t.Errorf("a shell reads %q, %v, want %q", out, err, want)
	}
}

// Off a terminal there is a line every ten seconds, whatever the number of files.
func TestProgressOffTerminal(t *testing.T) {
	var out strings.Builder
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	p := &progress{w: &out, logged: start, state: copyState{start: start, files: 3, of: 12, bytes: 3 << 30, total: 10 << 30, before: 1 << 30}}
	for s := range 25 {
		p.log(start.Add(time.Duration(s) * time.Second))
	}
	want := "3 of 12 files, 30%, 3.0 GiB of 10.0 GiB, 215 MB/s, ETA 35s\n3 of 12 files, 30%, 3.0 GiB of 10.0 GiB, 107 MB/s, ETA 1m10s\n"
	if out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

// A file that waits for its name counts with all its bytes, once, and has no line.
func TestProgressFilled(t *testing.T) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	f := &transfer.TreeFile{Path: "a", Size: 1 << 20}
	p := newProgress(null, &transfer.Tree{Files: []transfer.TreeFile{*f}}, false)
	check := func(when string, files, lines int) {
		t.Helper()
		if s := &p.state; s.files != files || s.moved() != f.Size || len(s.active) != lines {
			t.Errorf("%s: %d files, %d bytes, %d lines", when, s.files, s.moved(), len(s.active))
		}
	}
	p.Began(f)
	p.Advanced(f, f.Size)
	check("written", 0, 1)
	p.Filled(f)
	check("filled", 0, 0)
	p.Ended(f, &transfer.Result{}, nil)
	check("ended", 1, 0)
}

// What an earlier copy of a file left counts as done, and not in the rates.
func TestProgressResumed(t *testing.T) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	f := &transfer.TreeFile{Path: "a", Size: 1 << 30}
	p := newProgress(null, &transfer.Tree{Files: []transfer.TreeFile{*f}}, false)
	p.Began(f)
	p.Resumed(f, 1<<29)
	if s := &p.state; s.moved()-s.before != 0 || s.moved() != 1<<29 {
		t.Errorf("%d bytes are done, %d of them moved", s.moved(), s.moved()-s.before)
	}
	p.Advanced(f, 1<<29+10<<20)
	p.state.start, p.state.active[0].begun = time.Unix(0, 0), time.Unix(0, 0)
	lines := p.state.render(time.Unix(1, 0), 80)
	if text := strings.Join(lines, "\n"); strings.Count(text, "/s") != 2 || strings.Count(text, "10.5 MB/s") != 2 {
		t.Errorf("the rates of the file and of all are not 10 MiB in a second:\n%s", text)
	}
}
