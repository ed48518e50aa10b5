// Package fiojob reads job files in fio's syntax. It knows the options by which fio and
// culvert bench mean the same; any other is an error, so that no line is ignored.
package fiojob

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"time"
)

// A Job is one section, with what the sections "global" before it have set.
type Job struct {
	Name        string
	Line        int // of the section
	Pattern     string
	Block       int64
	Size        int64 // of the part of the files that is used, together, and bytes to move per caller; 0: the files'
	Callers     int
	Depth       int
	Runtime     time.Duration // 0: until Size is moved
	TimeBased   bool          // not before Runtime, however much is moved
	Files       []string
	Direct      bool
	ReadPercent int
	Rate        int64 // bytes per second of each caller; 0: no limit
	stonewall   bool
}

// defaults are fio's.
var defaults = Job{Pattern: "read", Block: 4096, Callers: 1, Depth: 1, ReadPercent: 50}

// Parse reads the job file with this name. Errors say where they are: "name:line: ...".
func Parse(r io.Reader, name string) ([]Job, error) {
	p := parser{global: defaults}
	lines := bufio.NewScanner(r)
	for p.line = 1; lines.Scan(); p.line++ {
		if err := p.read(strings.TrimSpace(lines.Text())); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", name, p.line, err)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%s:%d: %w", name, p.line, err)
	}
	if len(p.jobs) == 0 {
		return nil, fmt.Errorf("%s: no job (fix: begin one by its name in brackets, such as [reads])", name)
	}
	for i := range p.jobs {
		if err := p.jobs[i].check(i); err != nil {
			return nil, fmt.Errorf("%s:%d: job %s: %w", name, p.jobs[i].Line, p.jobs[i].Name, err)
		}
	}
	return p.jobs, nil
}

type parser struct {
	line   int
	global Job
	jobs   []Job
	now    *Job // the section that lines belong to
}

func (p *parser) read(line string) error {
	switch {
	case line == "" || line[0] == '#' || line[0] == ';':
		return nil
	case line[0] == '[':
		return p.section(line)
	case p.now == nil:
		return fmt.Errorf("%q is in no section (fix: begin with [global] or the name of a job in brackets)", line)
	}
	key, value, given := strings.Cut(line, "=")
	key, value = strings.TrimSpace(key), strings.TrimSpace(value)
	set := options[key]
	if set == nil {
		return fmt.Errorf("unknown option %q (known: %s)", key, strings.Join(Known(), ", "))
	}
	if !given && flags[key] {
		value = "1"
	}
	if err := set(p.now, value); err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	return nil
}

func (p *parser) section(line string) error {
	name := strings.TrimSuffix(line[1:], "]")
	if len(name) == 0 || len(name) != len(line)-2 {
		return fmt.Errorf("section %q has no name or no closing bracket", line)
	}
	if name == "global" {
		p.now = &p.global
		return nil
	}
	job := p.global
	job.Name, job.Line = name, p.line
	p.jobs = append(p.jobs, job)
	p.now = &p.jobs[len(p.jobs)-1]
	return nil
}

// check reports what the whole of a job lacks. i is its place in the file.
func (j *Job) check(i int) error {
	switch {
	case len(j.Files) == 0:
		return fmt.Errorf("no file (fix: filename=PATH)")
	case j.TimeBased && j.Runtime == 0:
		return fmt.Errorf("time_based needs runtime")
	case i > 0 && !j.stonewall:
		return fmt.Errorf("fio runs jobs at the same time, culvert bench one after the other (fix: add stonewall, by which fio does, too)")
	case j.Size > 0 && j.Size < j.Block*int64(len(j.Files)):
		return fmt.Errorf("size %d must be at least a block of each of %d files", j.Size, len(j.Files))
	case j.Size > 0 && j.Size < j.Block*int64(j.Depth):
		return fmt.Errorf("size %d must be at least iodepth blocks, %d bytes", j.Size, j.Block*int64(j.Depth))
	}
	return nil
}
