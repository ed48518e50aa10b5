package human

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
	"unicode"

	"golang.org/x/term"

	"github.com/culvert-io/culvert/internal/env"
)

// A Display redraws lines on a terminal. The zero value is no terminal, and draws
// nothing.
type Display struct {
	w     io.Writer
	size  func() (width, height int) // nil if w is not a terminal
	now   func() time.Time
	drawn time.Time
	lines int    // on the screen
	shown string // these lines
	paint bool
}

// NewDisplay returns a Display on f.
func NewDisplay(f *os.File) Display {
	d := Display{w: f, now: time.Now, paint: Coloured(f)}
	if fd := int(f.Fd()); term.IsTerminal(fd) && env.Get("TERM") != "dumb" {
		d.size = func() (int, int) {
			width, height, err := term.GetSize(fd)
			if err != nil || width <= 0 || height <= 0 {
				return 80, 24
			}
			return width, height
		}
	}
	return d
}

const (
	clearRight = "\x1b[K"
	clearBelow = "\x1b[J"
)

// Terminal reports whether Draw draws.
func (d *Display) Terminal() bool { return d.size != nil }

// Draw replaces the lines on the screen, at most ten times a second.
func (d *Display) Draw(render func(now time.Time, width int) []string) {
	if d.size == nil || d.now().Sub(d.drawn) < time.Second/10 {
		return
	}
	d.drawn = d.now()
	width, height := d.size()
	lines := fit(render(d.drawn, width), width, height)
	// Lines are written over the old ones: a screen that is cleared first flickers, and a
	// terminal with a history may keep what is cleared.
	text := strings.Join(lines, clearRight+"\n") + clearRight + "\n"
	if d.paint {
		text = Paint(text)
	}
	if ASCII() {
		text = Plain(text)
	}
	above := d.above()
	d.shown = text
	if len(lines) < d.lines {
		text += clearBelow
	}
	fmt.Fprint(d.w, above+text)
	d.lines = len(lines)
}

// above moves the cursor to the first of the lines on the screen.
func (d *Display) above() string {
	if d.lines == 0 {
		return ""
	}
	return fmt.Sprintf("\x1b[%dA\r", d.lines)
}

// refresh is the time between two drawings while nothing happens.
const refresh = time.Second / 2

// Live calls redraw from time to time until stop is called, if Draw draws: times go on, and
// what Draw left out is shown, also while nothing happens. It has ended when stop returns.
func (d *Display) Live(redraw func()) (stop func()) {
	if !d.Terminal() {
		return func() {}
	}
	quit, ended := make(chan struct{}), make(chan struct{})
	ticks := time.NewTicker(refresh)
	go func() {
		defer close(ended)
		defer ticks.Stop()
		for {
			select {
			case <-ticks.C:
				redraw()
			case <-quit:
				return
			}
		}
	}()
	return func() { close(quit); <-ended }
}

// Say prints a line that stays, above those on the screen.
func (d *Display) Say(line string) {
	if ASCII() {
		line = Plain(line)
	}
	if d.lines > 0 {
		line = d.above() + line + clearRight
	}
	fmt.Fprint(d.w, line+"\n"+d.shown)
}

// Erase leaves the screen as it was.
func (d *Display) Erase() {
	if d.lines > 0 {
		fmt.Fprint(d.w, d.above()+clearBelow)
	}
	d.lines, d.shown = 0, ""
}

// fit makes lines fit a screen with the cursor below them: none wraps, and none
// scrolls off the top, so that Erase finds them all.
func fit(lines []string, width, height int) []string {
	width, height = max(width-1, 1), max(height-1, 1)
	if more := len(lines) - height; more > 0 {
		lines = append(lines[:height-1:height-1], fmt.Sprintf(" and %d more", more+1))
	}
	for i, l := range lines {
		lines[i] = Cut(strings.Map(printable, l), width)
	}
	return lines
}

// printable keeps names from moving the cursor, also to the other direction of writing.
func printable(r rune) rune {
	if r != '\u200d' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r)) { // a joiner is part of many emoji
		return '?'
	}
	return r
}

// A Meter shows the progress of one transfer: a line that is redrawn on a
// terminal, otherwise a line every ten seconds.
type Meter struct {
	mu      sync.Mutex
	what    string // is done, before the numbers
	display Display
	start   time.Time
	before  int64 // done when it started
	logged  time.Time
	done    int64
	total   int64  // -1: unknown
	stop    func() // Live; nil before the first Advance
	ended   bool
}

// NewMeter returns a Meter that starts now.
func NewMeter(f *os.File) *Meter { return newMeter(NewDisplay(f)) }

// NewMeterOf returns a Meter that says what is done, such as "comparing".
func NewMeterOf(what string, f *os.File) *Meter {
	m := NewMeter(f)
	m.what = what + " "
	return m
}

func newMeter(d Display) *Meter {
	now := d.now()
	return &Meter{display: d, start: now, logged: now}
}

// Resumed starts again with bytes that are done already: they count neither in the rate nor
// in the time left.
func (m *Meter) Resumed(done int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.start, m.before = m.display.now(), done
}

// Advance shows that done of total bytes have been moved; a total of -1 is unknown.
func (m *Meter) Advance(done, total int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ended {
		return
	}
	m.done, m.total = done, total
	if m.stop == nil {
		m.stop = m.display.Live(func() {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.display.Draw(m.render)
		})
	}
	if m.display.Terminal() {
		m.display.Draw(m.render)
	} else if now := m.display.now(); now.Sub(m.logged) >= 10*time.Second {
		m.logged = now
		fmt.Fprintln(m.display.w, m.render(now, 0)[0])
	}
}

// render is the line to show.
func (m *Meter) render(now time.Time, width int) []string {
	if m.total < 0 {
		return []string{fmt.Sprintf("%s%s, %s", m.what, Size(m.done), Speed(float64(m.done)/max(now.Sub(m.start).Seconds(), 1e-9)))}
	}
	line := m.what + Pace(m.done, m.total, m.done-m.before, now.Sub(m.start), width-1-len(m.what))
	if room := min(width-len(line)-2, barWidth); room >= 8 {
		line = Bar(m.done, m.total, room) + " " + line
	}
	return []string{line}
}

// Done removes the line from a terminal. Nothing is shown after it.
func (m *Meter) Done() {
	m.mu.Lock()
	stop := m.stop
	m.stop, m.ended = nil, true
	m.mu.Unlock()
	if stop != nil {
		stop()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.display.Erase()
}

// Pace prints how much of a transfer is done, its rate and the time left, as far as a
// width has room for it: the time left is the last to go, and a width below 0 has room for
// everything. Of done bytes, moved were moved in the time took.
func Pace(done, total, moved int64, took time.Duration, width int) string {
	left := "-"
	if moved > 0 {
		left = time.Duration(float64(took) / float64(moved) * float64(total-done)).Round(time.Second).String()
	}
	rate := 0.0
	if took > 0 {
		rate = float64(moved) / took.Seconds()
	}
	percent, speed := Percent(done, total), Speed(rate)
	long := fmt.Sprintf("%d%%, %s of %s, %s, ETA %s", percent, Size(done), Size(total), speed, left)
	for _, shorter := range []string{
		fmt.Sprintf("%d%% of %s, %s, ETA %s", percent, Size(total), speed, left),
		fmt.Sprintf("%d%%, %s, ETA %s", percent, speed, left),
		fmt.Sprintf("%d%%, ETA %s", percent, left),
	} {
		if width < 0 || len(long) <= width {
			break
		}
		long = shorter
	}
	return long
}

const barWidth = 30

// Bar draws how much of a transfer is done, in that many columns.
func Bar(done, total int64, width int) string {
	full := int(int64(width) * Percent(done, total) / 100)
	full = min(max(full, 0), width)
	return strings.Repeat("█", full) + strings.Repeat("░", width-full)
}

// Percent is n of total; all of nothing is 100.
func Percent(n, total int64) int64 {
	if total == 0 {
		return 100
	}
	return 100 * n / total
}
