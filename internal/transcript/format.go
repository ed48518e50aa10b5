package transcript

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
)

// A Conversation has open files and state of its own.
type Conversation struct {
	Module       string            // "gdrdrv"
	Name         string            // "callback"
	Mode         string            // how the module was loaded
	Placeholders map[string]string // what they stand for
	Steps        []*Step
}

// A Step is one system call, or something done between two.
type Step struct {
	Line int
	Name string // unique in its conversation
	Call string // "ioctl", "mmap", ...
	FD   string // symbolic name of the descriptor
	Req  uint64 // of an ioctl
	In   *Template
	Out  *Template // nil where the recording has none
	Ret  string    // a number, a placeholder, "fault"
	Err  int       // errno
	Args Args
	Note string
}

// Args is everything else.
type Args struct {
	Path, Flags        string
	At, Op, With       string
	Offset, Prot       string
	Length             uint64
	Knob, Value        string
	Pointer, Placement string
	Text               *string // what a file held
}

// line is a line of a file, as it is written.
type line struct {
	Header       *string           `json:"header"`
	Conversation string            `json:"conversation"`
	Mode         string            `json:"mode"`
	Placeholders map[string]string `json:"placeholders"`

	Step  string          `json:"step"`
	Call  string          `json:"call"`
	FD    string          `json:"fd"`
	Req   string          `json:"req"`
	In    *string         `json:"in"`
	Out   *string         `json:"out"`
	Ret   json.RawMessage `json:"ret"`
	Errno int             `json:"errno"`
	Note  string          `json:"note"`
	Args  struct {
		Path      string  `json:"path"`
		Flags     string  `json:"flags"`
		Text      *string `json:"text"`
		At        string  `json:"at"`
		Op        string  `json:"op"`
		With      string  `json:"with"`
		Offset    string  `json:"offset"`
		Prot      string  `json:"prot"`
		Length    uint64  `json:"length"`
		Knob      string  `json:"knob"`
		Value     string  `json:"value"`
		Pointer   string  `json:"pointer"`
		Placement string  `json:"placement"`
	} `json:"args"`
}

// maxLine bounds a line: an argument of some megabytes, in hexadecimal.
const maxLine = 16 << 20

// Parse reads a file of conversations.
func Parse(r io.Reader) ([]*Conversation, error) {
	var list []*Conversation
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLine)
	for n := 1; lines.Scan(); n++ {
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		var l line
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			return nil, fmt.Errorf("transcript line %d: %w", n, err)
		}
		if l.Header != nil {
			list = append(list, &Conversation{Module: *l.Header, Name: l.Conversation, Mode: l.Mode, Placeholders: l.Placeholders})
			continue
		}
		if len(list) == 0 {
			return nil, fmt.Errorf("transcript line %d: a step before any header", n)
		}
		s, err := l.step(n)
		if err != nil {
			return nil, fmt.Errorf("transcript line %d, step %q: %w", n, l.Step, err)
		}
		c := list[len(list)-1]
		c.Steps = append(c.Steps, s)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("transcript: %w", err)
	}
	return list, nil
}

func (l *line) step(n int) (*Step, error) {
	if l.Step == "" || l.Call == "" {
		return nil, fmt.Errorf("a step needs a name and a call")
	}
	s := &Step{Line: n, Name: l.Step, Call: l.Call, FD: l.FD, Err: l.Errno, Note: l.Note, Ret: string(l.Ret)}
	a := &l.Args
	s.Args = Args{
		Path: a.Path, Flags: a.Flags, At: a.At, Op: a.Op, With: a.With, Offset: a.Offset, Prot: a.Prot,
		Length: a.Length, Knob: a.Knob, Value: a.Value, Pointer: a.Pointer, Placement: a.Placement, Text: a.Text,
	}
	if text, err := strconv.Unquote(s.Ret); err == nil {
		s.Ret = text
	}
	var err error
	if l.Req != "" {
		if s.Req, err = strconv.ParseUint(l.Req, 0, 64); err != nil {
			return nil, fmt.Errorf("request: %w", err)
		}
	}
	if s.In, err = template(l.In); err != nil {
		return nil, fmt.Errorf("in: %w", err)
	}
	if s.Out, err = template(l.Out); err != nil {
		return nil, fmt.Errorf("out: %w", err)
	}
	return s, nil
}

func template(s *string) (*Template, error) {
	if s == nil {
		return nil, nil
	}
	t, err := ParseTemplate(*s)
	return &t, err
}
