package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/culvert-io/culvert/internal/human"
	"github.com/culvert-io/culvert/internal/transfer"
)

// A progress shows how far the copy of a directory is: on a terminal a few lines
// that are redrawn, elsewhere a line for each file that is complete.
type progress struct {
	mu     sync.Mutex
	w      io.Writer
	screen *screen // nil where there is none
	drawn  time.Time
	lines  int // on the screen

	state copyState
}

// A copyState is what there is to show.
type copyState struct {
	start        time.Time
	files, of    int
	bytes, total int64 // of what is complete; of all
	before       int64 // bytes that were complete at the start
	active       []*activeFile
}

type activeFile struct {
	path       string
	begun      time.Time
	done, size int64
}

func newProgress(w *os.File, t *transfer.Tree) *progress {
	of, files, total, bytes := t.Totals()
	p := &progress{w: w, screen: newScreen(w)}
	p.state = copyState{start: time.Now(), files: files, of: of, bytes: bytes, total: total, before: bytes}
	return p
}

// Began is called when a file is begun.
func (p *progress) Began(f *transfer.TreeFile) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state.active = append(p.state.active, &activeFile{path: f.Path, begun: time.Now(), size: f.Size})
	p.draw()
}

// Advanced is called as its bytes arrive.
func (p *progress) Advanced(f *transfer.TreeFile, done int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := p.state.find(f.Path); i >= 0 {
		p.state.active[i].done = done
	}
	p.draw()
}

// Ended is called when it is complete, or will not be.
func (p *progress) Ended(f *transfer.TreeFile, res *transfer.Result, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := &p.state
	var took time.Duration
	if i := s.find(f.Path); i >= 0 {
		took = time.Since(s.active[i].begun)
		s.active = slices.Delete(s.active, i, i+1)
	}
	if err == nil {
		s.files++
		s.bytes += f.Size
		if p.screen == nil {
			fmt.Fprintf(p.w, "copied %s %s in %s (%d of %d)\n", human.Name(f.Path), human.Size(res.Bytes), took.Round(time.Microsecond), s.files, s.of)
		}
	}
	p.draw()
}

func (s *copyState) find(path string) int {
	return slices.IndexFunc(s.active, func(a *activeFile) bool { return a.path == path })
}

// draw replaces what is on the screen, ten times a second at most.
func (p *progress) draw() {
	now := time.Now()
	if p.screen == nil || now.Sub(p.drawn) < time.Second/10 {
		return
	}
	width, height := p.screen.size()
	lines := fit(p.state.render(now), width, height)
	p.erase()
	fmt.Fprint(p.w, strings.Join(lines, "\n")+"\n")
	p.drawn, p.lines = now, len(lines)
}

func (p *progress) erase() {
	if p.lines > 0 {
		fmt.Fprintf(p.w, "\x1b[%dA\r\x1b[J", p.lines)
	}
	p.lines = 0
}

// done leaves the screen as it was.
func (p *progress) done() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.erase()
	p.screen = nil
}

// render is the picture at a time.
func (s *copyState) render(now time.Time) []string {
	elapsed := now.Sub(s.start)
	bytes := s.bytes
	for _, a := range s.active {
		bytes += a.done
	}
	lines := []string{
		fmt.Sprintf("Transferred: %s / %s, %s", human.Size(bytes), human.Size(s.total), pace(bytes, s.total, bytes-s.before, elapsed)),
		fmt.Sprintf("Files:       %d / %d, %d%%", s.files, s.of, percent(int64(s.files), int64(s.of))),
		fmt.Sprintf("Elapsed:     %s", elapsed.Round(time.Second/10)),
	}
	for _, a := range s.active {
		lines = append(lines, fmt.Sprintf(" * %s: %s, %s", a.path, human.Size(a.size), pace(a.done, a.size, a.done, now.Sub(a.begun))))
	}
	return lines
}

// pace says how fast something goes and how long it will take: done of total
// bytes, of which moved took so long.
func pace(done, total, moved int64, took time.Duration) string {
	left := "-"
	if moved > 0 {
		left = time.Duration(float64(took) / float64(moved) * float64(total-done)).Round(time.Second).String()
	}
	rate := 0.0
	if took > 0 {
		rate = float64(moved) / took.Seconds()
	}
	return fmt.Sprintf("%d%%, %s, ETA %s", percent(done, total), human.Rate(rate), left)
}

func percent(n, of int64) int64 {
	if of == 0 {
		return 100
	}
	return 100 * n / of
}
