package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

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
		"Transferred: 3.5 GiB / 10.0 GiB, 35%, 1.342GB/s, ETA 5s",
		"Files:       3 / 12, 25%",
		"Elapsed:     2s",
		" * model-00004-of-00010.safetensors: 1.0 GiB, 50%, 536.9MB/s, ETA 1s",
		" * tokenizer.json: 100 B, 0%, 0B/s, ETA -",
		" * empty: 0 B, 100%, 0B/s, ETA -",
	}
	if d := cmp.Diff(want, s.render(start.Add(2*time.Second))); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	if !strings.Contains((&copyState{start: start}).render(start)[0], "0 B / 0 B, 100%, 0B/s, ETA -") {
		t.Error("nothing at all is not shown as such")
	}
}

// Where there is no terminal a long transfer is told about now and then, in lines
// without control characters, and a short one not at all.
func TestMeterInALog(t *testing.T) {
	var b bytes.Buffer
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	m := &meter{w: &b, now: func() time.Time { return now }, start: now, drawn: now}
	for i := range int64(250) {
		m.advance(i<<20, 1<<30)
		now = now.Add(time.Second / 10)
	}
	m.done()
	want := "100.0 MiB of 1.0 GiB, 9%, 10.49MB/s, ETA 1m32s\n200.0 MiB of 1.0 GiB, 19%, 10.49MB/s, ETA 1m22s\n"
	if d := cmp.Diff(want, b.String()); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

func TestMeterOnATerminal(t *testing.T) {
	var b bytes.Buffer
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	m := &meter{w: &b, screen: &screen{-1}, now: func() time.Time { return now }, start: now}
	for i := range int64(30) {
		m.advance(i, 100)
		now = now.Add(time.Second / 100)
	}
	m.done()
	if n := strings.Count(b.String(), "\r\x1b[K"); n != 4 || strings.Contains(b.String(), "\n") || !strings.HasSuffix(b.String(), "\r\x1b[K") {
		t.Errorf("drawn %d times: %q", n, b.String())
	}
}

// However small the window and however odd the names, what is drawn can be erased.
func TestFit(t *testing.T) {
	lines := []string{"Transferred: 3.5 GiB", "two", "a\nb\x1b[2J", "four", "fünf"}
	for _, c := range []struct {
		width, height int
		want          []string
	}{
		{80, 24, []string{"Transferred: 3.5 GiB", "two", "a?b?[2J", "four", "fünf"}},
		{80, 6, []string{"Transferred: 3.5 GiB", "two", "a?b?[2J", "four", "fünf"}},
		{80, 5, []string{"Transferred: 3.5 GiB", "two", "a?b?[2J", " and 2 more"}},
		{4, 24, []string{"Tra", "two", "a?b", "fou", "fün"}},
		{1, 1, []string{" "}},
	} {
		if d := cmp.Diff(c.want, fit(slices.Clone(lines), c.width, c.height)); d != "" {
			t.Errorf("%d by %d (-want +got):\n%s", c.width, c.height, d)
		}
	}
}

func TestCommandLine(t *testing.T) {
	got := commandLine([]string{"cp", "a b", "it's", "--via=gpu:0", "", "x$y"})
	if want := `culvert cp 'a b' 'it'\''s' --via=gpu:0 '' 'x$y'`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
