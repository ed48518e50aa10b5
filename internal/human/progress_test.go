package human

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
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

// While nothing happens, what is shown goes on; after Done nothing is.
func TestLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, out, _ := testDisplay(true)
		d.now = time.Now
		m := newMeter(d)
		m.Advance(10<<20, 100<<20)
		time.Sleep(5*refresh + 1)
		m.Done()
		m.Advance(20<<20, 100<<20)
		time.Sleep(5 * refresh)
		if n := strings.Count(out.String(), "\x1b[K\n"); n != 6 || !strings.Contains(out.String(), "4.19 MB/s, ETA 23s") || !strings.HasSuffix(out.String(), "\x1b[J") {
			t.Errorf("drawn %d times: %q", n, out)
		}
	})
	d, out, _ := testDisplay(false)
	d.Live(func() { t.Error("a log is no screen") })()
	if out.Len() > 0 {
		t.Errorf("%q", out)
	}
}

// A meter may say what it is that advances, in as many columns as there are.
func TestMeterOf(t *testing.T) {
	d, out, now := testDisplay(true)
	d.size = func() (int, int) { return 40, 24 }
	m := newMeter(d)
	m.what = "comparing "
	*now = now.Add(20 * time.Second)
	m.Advance(200<<20, 1<<30)
	if want := "comparing 19%, 10.5 MB/s, ETA 1m22s\x1b[K\n"; out.String() != want {
		t.Errorf("got %q, want %q", out, want)
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
	if n := strings.Count(out.String(), "\x1b[1A\r"); n != 3 || strings.Count(out.String(), "\x1b[K\n") != 3 || strings.Count(out.String(), "\x1b[J") != 1 || !strings.HasSuffix(out.String(), "\x1b[J") {
		t.Errorf("drawn over %d times: %q", n, out)
	}
}

// Lines are drawn over those before, and what is left of those is cleared.
func TestDrawFewerLines(t *testing.T) {
	d, out, now := testDisplay(true)
	for _, lines := range [][]string{{"a", "b"}, {"c", "d"}, {"e"}} {
		d.Draw(func(time.Time, int) []string { return lines })
		*now = now.Add(time.Second)
	}
	if want := "a\x1b[K\nb\x1b[K\n" + "\x1b[2A\rc\x1b[K\nd\x1b[K\n" + "\x1b[2A\re\x1b[K\n\x1b[J"; out.String() != want {
		t.Errorf("%q, want %q", out, want)
	}
}

// A line that stays stands above those that are redrawn, which are on the screen again at
// once.
func TestSay(t *testing.T) {
	d, out, now := testDisplay(true)
	d.Say("first")
	d.Draw(func(time.Time, int) []string { return []string{"a", "b"} })
	d.Say("second")
	*now = now.Add(time.Second)
	d.Draw(func(time.Time, int) []string { return []string{"c"} })
	d.Say("third")
	d.Erase()
	d.Say("fourth")
	want := "first\n" + "a\x1b[K\nb\x1b[K\n" + "\x1b[2A\rsecond\x1b[K\na\x1b[K\nb\x1b[K\n" +
		"\x1b[2A\rc\x1b[K\n\x1b[J" + "\x1b[1A\rthird\x1b[K\nc\x1b[K\n" + "\x1b[1A\r\x1b[J" + "fourth\n"
	if out.String() != want {
		t.Errorf("%q, want %q", out, want)
	}
	t.Setenv("LC_ALL", "C")
	out.Reset()
	if d.Say("in 12 µs"); out.String() != "in 12 us\n" {
		t.Errorf("%q under LC_ALL=C", out)
	}
}

// What an earlier copy left is done, and was not moved: it makes the rate no higher and the
// time left no shorter.
func TestMeterResumes(t *testing.T) {
	d, out, now := testDisplay(false)
	m := newMeter(d)
	m.Advance(500<<20, 1<<30) // while it is compared
	*now = now.Add(5 * time.Second)
	m.Resumed(500 << 20)
	*now = now.Add(10 * time.Second)
	m.Advance(600<<20, 1<<30)
	if want := "58%, 600.0 MiB of 1.0 GiB, 10.5 MB/s, ETA 42s\n"; out.String() != want {
		t.Errorf("got %q, want %q", out, want)
	}
}

// However small the window and however odd the names, Erase finds what was drawn.
func TestFit(t *testing.T) {
	lines := []string{"Transferred: 3.5 GiB", "two", "a\nb\x1b[2J", "four", "fünf", "模型模型", "e\u0301e\u0301e\u0301e\u0301", "a\u202eb"}
	for _, c := range []struct {
		width, height int
		want          []string
	}{
		{80, 24, []string{"Transferred: 3.5 GiB", "two", "a?b?[2J", "four", "fünf", "模型模型", "e\u0301e\u0301e\u0301e\u0301", "a?b"}},
		{80, 9, []string{"Transferred: 3.5 GiB", "two", "a?b?[2J", "four", "fünf", "模型模型", "e\u0301e\u0301e\u0301e\u0301", "a?b"}},
		{80, 5, []string{"Transferred: 3.5 GiB", "two", "a?b?[2J", " and 5 more"}},
		{4, 24, []string{"Tra", "two", "a?b", "fou", "fün", "模", "e\u0301e\u0301e\u0301", "a?b"}},
		{1, 1, []string{" "}},
	} {
		if got := fit(slices.Clone(lines), c.width, c.height); !slices.Equal(got, c.want) {
			t.Errorf("%d by %d: %q, want %q", c.width, c.height, got, c.want)
		}
	}
}
