package main

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
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
	want := []string{
		"█████████████░░░░░░░░░░░░░░░░░░░░░░░░░░",
		"Transferred: 3.5 GiB / 10.0 GiB, 35%, 1.342GB/s, ETA 5s",
		"Files:       3 / 12, 25%",
		"Elapsed:     2s",
		" * model-00004-of-00010.safetensors: 1.0 GiB, 50%, 536.9MB/s, ETA 1s",
		" * tokenizer.json: 100 B, 0%, 0B/s, ETA -",
		" * empty: 0 B, 100%, 0B/s, ETA -",
	}
	if d := cmp.Diff(want, s.render(start.Add(2*time.Second), 40)); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	for width, bar := range map[int]int{1: 0, 80: 60, 200: 60} {
		if got := utf8.RuneCountInString(s.render(start, width)[0]); got != bar {
			t.Errorf("the bar has %d of %d columns", got, width)
		}
	}
	if !strings.Contains((&copyState{start: start}).render(start, 80)[1], "0 B / 0 B, 100%, 0B/s, ETA -") {
		t.Error("nothing at all is not shown as such")
	}
}

func TestCommandLine(t *testing.T) {
	got := commandLine([]string{"cp", "a b", "it's", "--via=gpu:0", "", "x$y"})
	if want := `culvert cp 'a b' 'it'\''s' --via=gpu:0 '' 'x$y'`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
