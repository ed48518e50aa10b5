package transcript

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
)

// A Conversation is a list of steps with its own open files and module state.
type Conversation struct {
	Module       string            // "gdrdrv"
	Name         string            // "callback"
	Mode         string            // how the module was loaded
	Placeholders map[string]string // what they stand for
	Steps        []*Step
}

// A Step is one system call, or something done between two.
type Step struct {
	Line int       `json:"-"`
	Name string    `json:"step"` // unique in its conversation
	Call string    // "ioctl", "mmap", ...
	FD   string    // symbolic name of the descriptor
	Req  Number    // of an ioctl
	In   *Template // argument of an ioctl, bytes to store
	Out  *Template // nil if none was recorded
	Ret  Return
	Err  int `json:"errno"`
	Args Args
	Note string
}

// Args are the arguments of calls other than ioctl.
type Args struct {
	Path, Flags        string
	At, Op, With       string
	Offset, Prot       string
	Length             uint64
	Knob, Value        string
	Pointer, Placement string
	Text               *string // contents of a file
}

// A Number is written as text, "0x670a".
type Number uint64

// UnmarshalText reads a number in any base of Go.
func (n *Number) UnmarshalText(text []byte) error {
	v, err := strconv.ParseUint(string(text), 0, 64)
	*n = Number(v)
	return err
}

// A Return is a number, a placeholder or "fault".
type Return string

// UnmarshalJSON accepts numbers and text.
func (r *Return) UnmarshalJSON(b []byte) error {
	if b[0] == '"' {
		return json.Unmarshal(b, (*string)(r))
	}
	*r = Return(b)
	return nil
}

// UnmarshalText parses a template.
func (t *Template) UnmarshalText(text []byte) (err error) {
	*t, err = ParseTemplate(string(text))
	return err
}

// maxLine is the longest line: an argument of some megabytes, in hexadecimal.
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
		var l struct {
			Header             *string
			Conversation, Mode string
			Placeholders       map[string]string
			Step
		}
		err := json.Unmarshal(lines.Bytes(), &l)
		switch {
		case err != nil:
		case l.Header != nil:
			list = append(list, &Conversation{Module: *l.Header, Name: l.Conversation, Mode: l.Mode, Placeholders: l.Placeholders})
			continue
		case len(list) == 0:
			err = fmt.Errorf("step before the first header")
		case l.Name == "" || l.Call == "":
			err = fmt.Errorf("a step needs a name and a call")
		}
		if err != nil {
			return nil, fmt.Errorf("transcript line %d, step %q: %w", n, l.Name, err)
		}
		l.Line = n
		c := list[len(list)-1]
		c.Steps = append(c.Steps, &l.Step)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("transcript: %w", err)
	}
	return list, nil
}
