package human

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func testDisplay(terminal bool) (Display, *strings.Builder, *time.Time) {
	out, now := new(strings.Builder), time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	d := Display{w: out, now: func() time.Time { return now }}
	if terminal {
		d.size = func() (int, int) { return 80, 24 }
	}
	return d, out, &now
}

// Without a terminal a long transfer gets a line every ten seconds, without
// control characters, and a short one gets none.
func TestMeterInALog(t *testing.T) {
	d, out, now := testDisplay(false)
	m := newMeter(d)
	for i := range int64(250) {
		m.Advance(i<<20, 1<<30)
		*now = now.Add(time.Second / 10)
	}
	m.Done()
	want := "9%, 100.0 MiB of 1.0 GiB, 10.5 MB/s, ETA 1m32s\n19%, 200.0 MiB of 1.0 GiB, 10.5 MB/s, ETA 1m22s\n"
	if out.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", out, want)
	}
}

// A stream has no end that is known.
func TestMeterOfAStream(t *testing.T) {
	d, out, now := testDisplay(false)
	m := newMeter(d)
	*now = now.Add(20 * time.Second)
	m.Advance(200<<20, -1)
	if want := "200.0 MiB, 10.5 MB/s\n"; out.String() != want {
		t.Errorf("got %q, want %q", out, want)
	}
}

// On a terminal the line is redrawn ten times a second, and removed at the end.
func TestMeterOnATerminal(t *testing.T) {
	d, out, now := testDisplay(true)
	m := newMeter(d)
	for i := range int64(30) {
		m.Advance(i, 100)
		*now = now.Add(time.Second / 100)
	}
	m.Done()
	if n := strings.Count(out.String(), "\x1b[1A\r\x1b[J"); n != 3 || strings.Count(out.String(), "\n") != 3 || !strings.HasSuffix(out.String(), "\x1b[J") {
		t.Errorf("erased %d times: %q", n, out)
	}
}

// However small the window and however odd the names, Erase finds what was drawn.
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
		if got := fit(slices.Clone(lines), c.width, c.height); !slices.Equal(got, c.want) {
			t.Errorf("%d by %d: %q, want %q", c.width, c.height, got, c.want)
		}
	}
}
