package main

import (
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/culvert-io/culvert/route"
)

// A meter shows progress on a terminal: one line, redrawn ten times a second.
// Where there is no terminal it shows nothing: the receipt says it all.
type meter struct {
	mu    sync.Mutex
	w     *os.File
	tty   bool
	start time.Time
	drawn time.Time
}

func newMeter(w *os.File) *meter {
	return &meter{w: w, tty: term.IsTerminal(int(w.Fd())), start: time.Now()}
}

func (m *meter) advance(done, total int64) {
	if !m.tty {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	if now.Sub(m.drawn) < time.Second/10 {
		return
	}
	m.drawn = now
	elapsed := now.Sub(m.start)
	left := time.Duration(float64(elapsed) / float64(done) * float64(total-done))
	fmt.Fprintf(m.w, "\r\x1b[K%3d%%  %s of %s  %s  %s left", 100*done/total, route.Size(done), route.Size(total),
		route.Rate(float64(done)/elapsed.Seconds()), left.Round(time.Second))
}

func (m *meter) done() {
	if m.tty && !m.drawn.IsZero() {
		fmt.Fprint(m.w, "\r\x1b[K")
	}
}
