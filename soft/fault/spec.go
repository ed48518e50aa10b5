// Package fault breaks a software machine on schedule: the nth read of a file fails, a
// drive is unplugged, a DMA is lost, a GPU dies. Each kind fails in the layer in which
// hardware fails, so that everything above it shows what it does then.
//
// A specification is a kind with its value and conditions, separated by commas; several
// are separated by semicolons or lines. "@FILE" reads them from a file. A # at the
// beginning of a line or behind a space begins a comment.
//
//	errno=EIO,call=read,file=*.safetensors,nth=3
//	slow=20ms,every=10; unplug,nth=100
package fault

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/internal/human"
	"github.com/culvert-io/culvert/soft/nvme"
)

// The kinds of faults.
const (
	Errno    = "errno"    // the call fails with an errno of the system
	Code     = "code"     // the call fails with a code of cuFile
	Short    = "short"    // the call moves no more than so many bytes
	Slow     = "slow"     // the storage takes so much longer
	Media    = "media"    // the drive under nvidia-fs reports an unrecovered error
	Unplug   = "unplug"   // the drive under nvidia-fs disappears
	DMA      = "dma"      // the drive loses, misdirects or changes what it transfers, and reports success
	Revoke   = "revoke"   // GPU memory that kernel modules pinned with a callback is revoked
	Truncate = "truncate" // another program truncates the file
	Sticky   = "sticky"   // a kernel fails: the GPU's contexts are lost with a CUDA error
)

// The calls that faults happen at.
var calls = []string{"read", "write", "register", "buffer"}

// A Spec is one fault with its conditions.
type Spec struct {
	Kind string
	// Text is the specification as it was written.
	Text string

	Call  string  // "read", "write", "register" (a file), "buffer" (registering one); "" means read and write
	File  string  // pattern of the file's path or its last element; "" means any
	Nth   uint64  // only the nth call that matches, from 1
	Every uint64  // each so manieth call
	P     float64 // a call with this probability
	Seed  uint64  // of P
	Times uint64  // at most so often; 0 means no limit

	errno unix.Errno
	code  int32
	bytes uint64
	delay time.Duration
	lie   nvme.Lie
}

// A comment begins with a sign that names of files may contain.
var comment = regexp.MustCompile(`(?s)(^|\s)#.*`)

// maxFile is more than anybody writes, and less than a device delivers.
const maxFile = 1 << 20

func readFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = fmt.Errorf("%s: longer than 1 MiB: these are no fault specifications", name)
	}
	return data, err
}

// Parse parses specifications. An error names the line, if there are several.
func Parse(text string) ([]Spec, error) {
	where := "line "
	if name, ok := strings.CutPrefix(strings.TrimSpace(text), "@"); ok {
		data, err := readFile(name)
		if err != nil {
			return nil, err
		}
		text, where = string(data), name+":"
	} else if !strings.Contains(text, "\n") {
		where = ""
	}
	var list []Spec
	number := 0
	for line := range strings.Lines(text) {
		number++
		for item := range strings.SplitSeq(comment.ReplaceAllString(line, ""), ";") {
			if item = strings.TrimSpace(item); item == "" {
				continue
			}
			s, err := parseOne(item)
			if err != nil && where != "" {
				return nil, fmt.Errorf("%s%d: fault %q: %w", where, number, item, err)
			} else if err != nil {
				return nil, fmt.Errorf("fault %q: %w", item, err)
			}
			list = append(list, s)
		}
	}
	return list, nil
}

func parseOne(text string) (Spec, error) {
	s := Spec{Text: text, Seed: 1}
	kind, conditions, more := strings.Cut(text, ",")
	key, value, _ := strings.Cut(strings.TrimSpace(kind), "=")
	if err := s.kind(key, value); err != nil {
		return s, err
	}
	seen := map[string]bool{}
	for more {
		var part string
		part, conditions, more = strings.Cut(conditions, ",")
		key, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		err := s.condition(key, value)
		if err == nil && seen[key] {
			err = errors.New("given twice")
		}
		if err != nil && key == "" && value == "" {
			return s, err
		} else if err != nil {
			return s, fmt.Errorf("%s: %w", strings.TrimSpace(part), err)
		}
		seen[key] = true
	}
	if s.Nth == 0 && s.Every == 0 && s.P == 0 && s.Times == 0 && s.once() {
		s.Nth = 1
	}
	return s, s.possible()
}

// possible refuses what would be ignored.
func (s *Spec) possible() error {
	switch {
	case s.Nth > 0 && s.Every > 0, s.Nth > 0 && s.P > 0, s.Every > 0 && s.P > 0:
		return errors.New("one of nth, every and p chooses the calls")
	case s.Kind == Short && (s.Call == "register" || s.Call == "buffer"):
		return fmt.Errorf("call=%s moves nothing that could be short", s.Call)
	case s.Kind == Truncate && s.Call == "buffer":
		return errors.New("call=buffer has no file")
	}
	return nil
}

// once reports whether a fault makes sense only once.
func (s *Spec) once() bool {
	return slices.Contains([]string{Unplug, Revoke, Truncate, Sticky}, s.Kind)
}

func (s *Spec) kind(key, value string) (err error) {
	s.Kind = key
	switch key {
	case Errno:
		if s.errno = errnoOf(value); s.errno == 0 {
			err = errors.New("must be a name such as EIO, or a number from 1 to 4095")
		}
	case Code:
		var n int64
		if n, err = strconv.ParseInt(value, 10, 32); err != nil || n < 5001 || n > 5999 {
			err = errors.New("must be a code of cuFile, 5001 to 5999")
		}
		s.code = int32(n)
	case Short, Truncate:
		var n int64
		if n, err = human.ParseSize(value); err == nil && n < 0 {
			err = errors.New("must not be negative")
		}
		s.bytes = uint64(n)
	case Slow:
		if s.delay, err = time.ParseDuration(value); err != nil || s.delay <= 0 {
			err = errors.New("must be a duration such as 20ms")
		}
	case DMA:
		var l *nvme.Liar
		if l, err = nvme.ParseLiar(value, 0); err != nil || len(l.Lies) != 1 {
			err = errors.New("must be one of drop, misdirect, delay, duplicate, transform")
		} else {
			s.lie = l.Lies[0]
		}
	case Sticky:
		var n int64
		if n, err = strconv.ParseInt(value, 10, 32); err != nil || n < 700 || n > 720 {
			err = errors.New("must be an error of a kernel, 700 to 720: 700 is an illegal address")
		}
		s.code = int32(n)
	case Media, Unplug, Revoke:
		if value != "" {
			err = errors.New("has no value")
		}
	case "call", "file", "nth", "every", "p", "seed", "times":
		return fmt.Errorf("the kind comes first, then conditions such as %s (%s)", key, kinds)
	default:
		return fmt.Errorf("unknown kind (%s)", kinds)
	}
	if err != nil {
		err = fmt.Errorf("%s=%s: %w", key, value, err)
	}
	return err
}

const kinds = "kinds: errno, code, short, slow, media, unplug, dma, revoke, truncate, sticky"

func (s *Spec) condition(key, value string) (err error) {
	number := func(to *uint64) error {
		n, err := strconv.ParseUint(value, 10, 63)
		if err != nil || n == 0 {
			return errors.New("must be a number from 1")
		}
		*to = n
		return nil
	}
	switch key {
	case "call":
		s.Call = value
		if !slices.Contains(calls, value) {
			err = fmt.Errorf("must be one of %s", strings.Join(calls, ", "))
		}
	case "file":
		s.File = value
		if _, err = path.Match(value, ""); err != nil || value == "" {
			err = errors.New("must be a pattern of a path, such as *.bin")
		}
	case "nth":
		err = number(&s.Nth)
	case "every":
		err = number(&s.Every)
	case "times":
		err = number(&s.Times)
	case "seed":
		if s.Seed, err = strconv.ParseUint(value, 10, 64); err != nil {
			err = errors.New("must be a number")
		}
	case "p":
		if s.P, err = strconv.ParseFloat(value, 64); err != nil || !(s.P > 0 && s.P <= 1) {
			err = errors.New("must be a probability above 0, up to 1")
		}
	case "":
		err = errors.New("empty condition (conditions: call, file, nth, every, p, seed, times)")
	default:
		err = errors.New("unknown condition (conditions: call, file, nth, every, p, seed, times)")
	}
	return err
}

// errnoOf is the errno of a name or a number; 0 if there is none.
func errnoOf(text string) unix.Errno {
	if n, err := strconv.ParseUint(text, 10, 12); err == nil {
		return unix.Errno(n)
	}
	for e := unix.Errno(1); text != "" && e < 200; e++ { // numbers without a name have ""
		if unix.ErrnoName(e) == text {
			return e
		}
	}
	return 0
}

// matches reports whether a call is one that the fault is about.
func (s *Spec) matches(call, object string) bool {
	if s.Call != call && !(s.Call == "" && (call == "read" || call == "write")) {
		return false
	}
	if s.File == "" {
		return true
	}
	whole, _ := path.Match(s.File, object)
	last, _ := path.Match(s.File, path.Base(object))
	return whole || last
}
