package transcript

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"

	"github.com/culvert-io/culvert/internal/dev"
)

// volatile placeholders are clocks and numbers that differ in every run.
var volatile = map[string]bool{"tm_cycles": true, "tsc_khz": true, "fd": true, "n": true}

// A replay is a conversation in progress.
type replay struct {
	*Target
	b       Bindings
	files   map[string]*file
	views   []*view
	missing map[string]string // placeholders that a rejected step should have bound, with its name
	arg     *argMemory
}

// A file is an open node.
type file struct {
	dev.Node
	readOnly bool
}

// A view is a mapping. Parts of it may have been unmapped.
type view struct {
	dev.Mapping
	name string
	gone int // bytes
}

// Replay performs a conversation on a target and judges every step. Its error is
// about the conversation itself.
func Replay(c *Conversation, w *Target) ([]Result, error) {
	arg, err := newArgMemory()
	if err != nil {
		return nil, err
	}
	r := &replay{Target: w, b: Bindings{}, files: map[string]*file{}, missing: map[string]string{}, arg: arg}
	var results []Result
	for _, s := range c.Steps {
		res, err := r.step(s)
		if err != nil {
			err = fmt.Errorf("%s, conversation %s, line %d, step %s: %w", c.Module, c.Name, s.Line, s.Name, err)
			return results, errors.Join(err, r.close())
		}
		results = append(results, res)
	}
	return results, r.close()
}

// close closes everything that the conversation left open.
func (r *replay) close() error {
	var errs []error
	for _, v := range r.views {
		errs = append(errs, v.Unmap())
	}
	for _, name := range slices.Sorted(maps.Keys(r.files)) {
		errs = append(errs, r.files[name].Close())
	}
	return errors.Join(append(errs, r.arg.close())...)
}

// step does one step and judges it.
func (r *replay) step(s *Step) (Result, error) {
	e := &Event{Step: s, Bindings: r.b}
	if f := r.files[s.FD]; f != nil {
		e.Node = f.Node
	}
	diff, err := r.do(e)
	if u, ok := errors.AsType[*Unbound](err); ok && r.missing[u.Name] != "" {
		return Result{Step: s, Diff: err.Error(), Reason: "rejected in step " + r.missing[u.Name]}, nil
	}
	if err != nil {
		return Result{}, err
	}
	res := Result{Step: s, Got: e.Got, Diff: diff}
	if r.Judge == nil {
		return res, nil
	}
	if s.Out != nil {
		known := maps.Clone(r.b)
		for name := range volatile {
			known[name] = 0
		}
		e.Recorded, _ = s.Out.Fill(known) // nil where a value is not known
	}
	v := r.Judge.Judge(e)
	if diff == "" || v.Reason == "" {
		return res, nil
	}
	res.Reason = v.Reason
	if name := nameIn(string(s.Ret)); s.Call == "mmap" && name != "" && e.Got.Errno != 0 {
		r.missing[name] = s.Name
		delete(r.b, name)
	}
	if v.Then != nil {
		err = v.Then()
	}
	return res, err
}

// do performs the call and returns how the answer differs.
func (r *replay) do(e *Event) (diff string, err error) {
	calls := map[string]func(*Event) (string, error){
		"open": r.open, "close": r.closeFile, "ioctl": r.ioctl, "mmap": r.mmap, "munmap": r.munmap,
		"access": r.access, "read": r.read, "stub": r.stub,
	}
	call := calls[e.Call]
	if call == nil {
		return "", fmt.Errorf("cannot replay call %q", e.Call)
	}
	return call(e)
}

// answer notes the outcome of a call and compares its errno.
func (e *Event) answer(err error) string {
	e.Got.Ret = "0"
	if err != nil {
		e.Got.Ret = "-1"
		no, ok := errors.AsType[syscall.Errno](err)
		if !ok {
			return fmt.Sprintf("error without errno: %v", err)
		}
		e.Got.Errno = int(no)
	}
	if e.Got.Errno != e.Err {
		return fmt.Sprintf("errno %d (%v), want %d (%v)", e.Got.Errno, syscall.Errno(e.Got.Errno), e.Err, syscall.Errno(e.Err))
	}
	return ""
}

func (r *replay) open(e *Event) (string, error) {
	n, err := r.OS.Open(e.Args.Path)
	diff := e.answer(err)
	if err == nil {
		// dev.OS opens for reading and writing. mmap rejects what the kernel
		// rejects for a read-only descriptor.
		r.files[e.FD] = &file{n, e.Args.Flags == "0"}
	}
	return diff, nil
}

func (r *replay) closeFile(e *Event) (string, error) {
	f := r.files[e.FD]
	if f == nil {
		return "", fmt.Errorf("%q is not open", e.FD)
	}
	delete(r.files, e.FD)
	return e.answer(f.Close()), nil
}

// node is the step's descriptor, for the process that uses it.
func (r *replay) node(e *Event) (dev.Node, error) {
	f := r.files[e.FD]
	if f == nil {
		return nil, fmt.Errorf("%q is not open", e.FD)
	}
	if strings.HasPrefix(e.Name, "child.") {
		if r.Child == nil {
			return nil, fmt.Errorf("the step needs another process")
		}
		return r.Child(f.Node), nil
	}
	return f.Node, nil
}

func (r *replay) stub(e *Event) (string, error) {
	if r.Knob == nil {
		return "", fmt.Errorf("the step needs a knob")
	}
	v, err := r.Knob(e.Args.Knob, e.Args.Value)
	diff := e.answer(err)
	if e.Got.Ret = fmt.Sprint(v); diff == "" && e.Got.Ret != string(e.Ret) {
		diff = fmt.Sprintf("%s is %d, want %s", e.Args.Knob, v, e.Ret)
	}
	return diff, nil
}
