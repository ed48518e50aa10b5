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
	"github.com/culvert-io/culvert/route"
)

// A verbosity is how much a copy prints.
type verbosity int

const (
	quiet   verbosity = iota // errors only
	normal                   // progress and result
	verbose                  // also each file, and every field of the receipts
)

// progressEvery is the time between two lines of progress off a terminal.
const progressEvery = 10 * time.Second

// smallFile is the size up to which files have no line of their own: they are copied by
// the hundred.
const smallFile = 64 << 10

// A progress shows the progress of a directory copy: a few lines that are redrawn
// on a terminal, otherwise a line every ten seconds. It may print a line for each complete
// file.
type progress struct {
	mu      sync.Mutex
	display human.Display
	w       io.Writer
	stop    func()
	each    bool // print a line for each file
	logged  time.Time
	state   copyState
}

// A copyState is what a progress shows.
type copyState struct {
	start        time.Time
	files, of    int
	bytes, total int64    // complete; all
	before       int64    // complete at the start
	routes       []string // that files took
	active       []*activeFile
	waiting      map[string]*activeFile // by path: written, and not complete yet
	waitingBytes int64
}

type activeFile struct {
	path       string
	begun      time.Time
	done, size int64
	before     int64 // of done, what an earlier copy left
}

// A plan knows how much there is to copy.
type plan interface {
	Totals() (files, doneFiles int, bytes, doneBytes int64)
}

func newProgress(f *os.File, t plan, each bool) *progress {
	of, files, total, bytes := t.Totals()
	now := time.Now()
	state := copyState{start: now, files: files, of: of, bytes: bytes, total: total, before: bytes, waiting: map[string]*activeFile{}}
	p := &progress{display: human.NewDisplay(f), w: f, each: each, logged: now, state: state}
	p.stop = p.display.Live(func() { p.update(func(*copyState) {}) })
	return p
}

// Began is called when the copy of a file begins.
func (p *progress) Began(f *transfer.TreeFile) {
	p.update(func(s *copyState) {
		s.active = append(s.active, &activeFile{path: f.Path, begun: time.Now(), size: f.Size})
	})
}

// Resumed is called when a file has bytes of an earlier copy, which are done and were not
// moved.
func (p *progress) Resumed(f *transfer.TreeFile, bytes int64) {
	p.update(func(s *copyState) {
		if i := s.find(f.Path); i >= 0 {
			s.active[i].done, s.active[i].before, s.active[i].begun = bytes, bytes, time.Now()
			s.before += bytes
		}
	})
}

// Advanced is called when bytes of a file have been copied.
func (p *progress) Advanced(f *transfer.TreeFile, done int64) {
	p.update(func(s *copyState) {
		if i := s.find(f.Path); i >= 0 {
			s.active[i].done = done
		}
	})
}

// Filled is called when all bytes of a file are written, and it waits for its name.
func (p *progress) Filled(f *transfer.TreeFile) {
	p.update(func(s *copyState) {
		if a := s.take(f.Path); a != nil {
			s.waiting[f.Path] = a
			s.waitingBytes += f.Size
		}
	})
}

// Ended is called when a file is complete or its copy failed.
func (p *progress) Ended(f *transfer.TreeFile, res *transfer.Result, err error) {
	p.update(func(s *copyState) {
		var took time.Duration
		if a := s.take(f.Path); a != nil {
			took = time.Since(a.begun)
		}
		if err != nil {
			return
		}
		s.files++
		for _, r := range []*route.Receipt{res.Read, res.Write} {
			if r != nil && r.Bytes > 0 && !slices.Contains(s.routes, r.Route.String()) {
				s.routes = append(s.routes, r.Route.String())
			}
		}
		s.bytes += f.Size
		if p.each {
			p.display.Say(fmt.Sprintf("copied %s %s in %s (%d of %d)", human.Name(f.Path), human.Size(res.Bytes), human.Duration(took), s.files, s.of))
		}
	})
}

func (p *progress) update(change func(*copyState)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(&p.state)
	p.display.Draw(p.state.render)
	if !p.each && !p.display.Terminal() {
		p.log(time.Now())
	}
}

// log prints a line of progress, if the last one is old enough.
func (p *progress) log(now time.Time) {
	if now.Sub(p.logged) < progressEvery {
		return
	}
	p.logged = now
	s := &p.state
	bytes := s.moved()
	fmt.Fprintf(p.w, "%d of %d files, %s\n", s.files, s.of, human.Pace(bytes, s.total, bytes-s.before, now.Sub(s.start), -1))
}

// done leaves the screen as it was.
func (p *progress) done() {
	p.stop()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.display.Erase()
}

func (s *copyState) find(path string) int {
	return slices.IndexFunc(s.active, func(a *activeFile) bool { return a.path == path })
}

// take removes a file from those that are being copied or wait; nil if it is none of them.
func (s *copyState) take(path string) *activeFile {
	if a := s.waiting[path]; a != nil {
		delete(s.waiting, path)
		s.waitingBytes -= a.size
		return a
	}
	i := s.find(path)
	if i < 0 {
		return nil
	}
	a := s.active[i]
	s.active = slices.Delete(s.active, i, i+1)
	return a
}

// moved is the bytes of complete files, and of those that are being copied.
func (s *copyState) moved() int64 {
	bytes := s.bytes + s.waitingBytes
	for _, a := range s.active {
		bytes += a.done
	}
	return bytes
}

// render returns the lines to show at a time.
func (s *copyState) render(now time.Time, width int) []string {
	elapsed := now.Sub(s.start)
	bytes := s.moved()
	count := fmt.Sprintf("%d of %d files after %s", s.files, s.of, elapsed.Round(time.Second/10))
	if len(s.routes) > 0 {
		count += ", by " + strings.Join(s.routes, ", ")
	}
	lines := []string{
		human.Bar(bytes, s.total, min(width-1, 60)),
		human.Pace(bytes, s.total, bytes-s.before, elapsed, width-1),
		count,
	}
	small := 0
	for _, a := range s.active {
		if a.size <= smallFile {
			small++
			continue
		}
		lines = append(lines, a.render(now, width-1))
	}
	if small > 0 {
		lines = append(lines, fmt.Sprintf(" * small files: %d", small))
	}
	return lines
}

// render is a line that has room for the end of the name.
func (a *activeFile) render(now time.Time, width int) string {
	const name = 24
	pace := human.Pace(a.done, a.size, a.done-a.before, now.Sub(a.begun), max(width-name, 0))
	return fmt.Sprintf(" * %s: %s", human.Shorten(a.path, max(width-len(pace)-5, 8)), pace)
}
