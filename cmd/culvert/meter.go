package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/culvert-io/culvert/internal/human"
)

// A meter shows progress: on a terminal one line, redrawn ten times a second,
// elsewhere a line now and then.
type meter struct {
	mu     sync.Mutex
	w      io.Writer
	screen *screen // nil where there is none
	now    func() time.Time
	start  time.Time
	drawn  time.Time
}

// plainEvery is how often a log is told.
const plainEvery = 10 * time.Second

func newMeter(w *os.File) *meter {
	m := &meter{w: w, screen: newScreen(w), now: time.Now}
	m.start = m.now()
	if m.screen == nil {
		m.drawn = m.start // what is soon over needs no line
	}
	return m
}

func (m *meter) advance(done, total int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now, every := m.now(), plainEvery
	if m.screen != nil {
		every = time.Second / 10
	}
	if now.Sub(m.drawn) < every {
		return
	}
	m.drawn = now
	line := fmt.Sprintf("%s of %s, %s", human.Size(done), human.Size(total), pace(done, total, done, now.Sub(m.start)))
	if m.screen != nil {
		width, _ := m.screen.size()
		fmt.Fprint(m.w, "\r\x1b[K"+fit([]string{line}, width, 2)[0])
	} else {
		fmt.Fprintln(m.w, line)
	}
}

func (m *meter) done() {
	if m.screen != nil && !m.drawn.IsZero() {
		fmt.Fprint(m.w, "\r\x1b[K")
	}
}
