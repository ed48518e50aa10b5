package transcript

import (
	"errors"
	"io/fs"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"unsafe"

	"github.com/culvert-io/culvert/internal/dev"
)

// A fake is an operating system with one node, whose ioctl adds one to the first
// byte of its argument, and to more than that on request.
type fake struct {
	files fstest.MapFS
	mem   []byte
}

func (f *fake) FS() fs.FS { return f.files }

func (f *fake) Open(path string) (dev.Node, error) {
	if path != "/dev/fake" {
		return nil, &fs.PathError{Op: "open", Path: path, Err: syscall.ENOENT}
	}
	return fakeNode{f}, nil
}

type fakeNode struct{ f *fake }

func (fakeNode) Ioctl(req uintptr, arg unsafe.Pointer) error {
	if arg == nil {
		return syscall.EFAULT
	}
	b := unsafe.Slice((*byte)(arg), 64)
	b[0]++
	if req == 2 { // writes past an argument of 8 bytes
		b[8]++
	}
	return nil
}

func (n fakeNode) Mmap(off int64, size, _ int) (dev.Mapping, error) {
	if off != 0 {
		return nil, syscall.EINVAL
	}
	return fakeMapping(n.f.mem[:size]), nil
}
func (fakeNode) Fd() int      { return 3 }
func (fakeNode) Close() error { return nil }

type fakeMapping []byte

func (m fakeMapping) Addr() uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(m))) }
func (m fakeMapping) Len() int      { return len(m) }
func (m fakeMapping) Unmap() error  { return nil }

const opening = `{"header":"fake","conversation":"c"}
{"step":"open","call":"open","fd":"f","args":{"path":"/dev/fake","flags":"02"},"ret":"<fd>","errno":0}
`

func run(t *testing.T, steps string, w *Target) (string, error) {
	t.Helper()
	list, err := Parse(strings.NewReader(opening + steps))
	if err != nil {
		t.Fatal(err)
	}
	if w == nil {
		w = &Target{}
	}
	w.OS = &fake{fstest.MapFS{"proc/x": {Data: []byte("x is 0x10\n")}}, make([]byte, 8192)}
	results, err := Replay(list[0], w)
	out := ""
	for _, r := range results[min(1, len(results)):] {
		out += r.String() + "\n"
	}
	return out, err
}

// The engine finds what differs.
func TestDifferencesAreFound(t *testing.T) {
	for name, tc := range map[string]struct{ step, want string }{
		"same":            {`{"step":"s","call":"ioctl","fd":"f","req":"1","in":"0100000000000000","ret":0,"errno":0,"out":"0200000000000000"}`, "same"},
		"a byte":          {`{"step":"s","call":"ioctl","fd":"f","req":"1","in":"0100000000000000","ret":0,"errno":0,"out":"0100000000000000"}`, "DIFFERS: bytes from 0"},
		"an errno":        {`{"step":"s","call":"ioctl","fd":"f","req":"1","in":"0100000000000000","ret":-1,"errno":22}`, "DIFFERS: errno 0"},
		"another errno":   {`{"step":"s","call":"ioctl","fd":"f","req":"1","args":{"pointer":"0x0"},"ret":-1,"errno":22}`, "DIFFERS: errno 14"},
		"a stray write":   {`{"step":"s","call":"ioctl","fd":"f","req":"2","in":"0100000000000000","ret":0,"errno":0,"out":"0200000000000000"}`, "beside the argument"},
		"a file":          {`{"step":"s","call":"read","args":{"path":"/proc/x","text":"x is <v>\n"},"ret":10,"errno":0}`, "same"},
		"its text":        {`{"step":"s","call":"read","args":{"path":"/proc/x","text":"y is <v>\n"},"ret":10,"errno":0}`, "DIFFERS: text"},
		"no file":         {`{"step":"s","call":"read","args":{"path":"/proc/y"},"ret":-1,"errno":2}`, "same"},
		"no such node":    {`{"step":"s","call":"open","fd":"g","args":{"path":"/dev/x"},"ret":-1,"errno":2}`, "same"},
		"a mapping":       {`{"step":"s","call":"mmap","fd":"f","args":{"flags":"SHARED","length":4096,"offset":"0x0","prot":"READ"},"ret":"<m>","errno":0}`, "same"},
		"refused mapping": {`{"step":"s","call":"mmap","fd":"f","args":{"flags":"SHARED","length":4096,"offset":"0x1000","prot":"READ"},"ret":"<m>","errno":0}`, "DIFFERS: errno 22"},
		"granted mapping": {`{"step":"s","call":"mmap","fd":"f","args":{"flags":"SHARED","length":4096,"offset":"0x0","prot":"READ"},"ret":-1,"errno":22}`, "DIFFERS: errno 0"},
	} {
		out, err := run(t, tc.step, nil)
		if err != nil || !strings.Contains(out, tc.want) {
			t.Errorf("%s: %q, %v, want %q", name, out, err, tc.want)
		}
	}
}

func TestAccess(t *testing.T) {
	const mapped = `{"step":"map","call":"mmap","fd":"f","args":{"flags":"SHARED","length":8192,"offset":"0x0","prot":"READ|WRITE"},"ret":"<m>","errno":0}
{"step":"fill","call":"access","args":{"at":"<m>","length":8192,"op":"fill","with":"pattern 3"},"ret":0,"errno":0}
{"step":"store","call":"access","args":{"at":"<m+0x10>","length":2,"op":"store"},"in":"aabb","ret":0,"errno":0}
{"step":"load","call":"access","args":{"at":"<m+0xf>","length":4,"op":"load"},"ret":0,"errno":0,"out":"12aabb15"}
{"step":"other","call":"access","args":{"at":"<m+0x100>","length":2,"op":"load"},"ret":0,"errno":0,"out":"0a0b"}
{"step":"wrong","call":"access","args":{"at":"<m>","length":1,"op":"load"},"ret":0,"errno":0,"out":"ff"}
{"step":"no fault","call":"access","args":{"at":"<m>","length":1,"op":"load"},"ret":"SIGBUS","errno":0}
`
	out, err := run(t, mapped, nil)
	if err != nil {
		t.Fatal(err)
	}
	for step, want := range map[string]string{"fill": "same", "store": "same", "load ": "same", "other": "same", "wrong": "DIFFERS", "no fault": "DIFFERS"} {
		found := false
		for line := range strings.Lines(out) {
			found = found || strings.HasPrefix(line, step) && strings.Contains(line, want)
		}
		if !found {
			t.Errorf("step %s is not %s in\n%s", step, want, out)
		}
	}
}

// What a conversation asks for and the world has not is an error that names the
// step.
func TestBadConversations(t *testing.T) {
	for name, step := range map[string]string{
		"unknown call":      `{"step":"s","call":"mremap","ret":0,"errno":0}`,
		"not open":          `{"step":"s","call":"ioctl","fd":"g","req":"1","ret":0,"errno":0}`,
		"close not open":    `{"step":"s","call":"close","fd":"g","ret":0,"errno":0}`,
		"no value":          `{"step":"s","call":"ioctl","fd":"f","req":"1","in":"<nobody>","ret":0,"errno":0}`,
		"no knob":           `{"step":"s","call":"stub","args":{"knob":"live"},"ret":0,"errno":0}`,
		"no owner":          `{"step":"s","call":"access","args":{"at":"0x1000","length":1,"op":"load"},"ret":0,"errno":0}`,
		"no child":          `{"step":"child.s","call":"ioctl","fd":"f","req":"1","in":"00","ret":0,"errno":0}`,
		"no private":        `{"step":"s","call":"mmap","fd":"f","args":{"flags":"PRIVATE","length":1,"offset":"0x0"},"ret":"<m>","errno":0}`,
		"bad access":        `{"step":"s","call":"access","args":{"at":"0x1000","length":1,"op":"jump"},"ret":0,"errno":0}`,
		"bad pattern":       `{"step":"s","call":"access","args":{"at":"0x1000","length":1,"op":"fill","with":"sand"},"ret":0,"errno":0}`,
		"long access":       `{"step":"s","call":"access","args":{"at":"0x1000","length":1000000000,"op":"load"},"ret":0,"errno":0}`,
		"bad store":         `{"step":"s","call":"access","args":{"at":"0x1000","length":1,"op":"store"},"in":"0000","ret":0,"errno":0}`,
		"nothing to unmap":  `{"step":"s","call":"munmap","args":{"at":"0x1000","length":1},"ret":0,"errno":0}`,
		"bad offset":        `{"step":"s","call":"mmap","fd":"f","args":{"length":1,"offset":"x"},"ret":0,"errno":0}`,
		"argument too long": `{"step":"s","call":"ioctl","fd":"f","req":"1","in":"` + strings.Repeat("00", argRoom) + `","ret":0,"errno":0}`,
	} {
		if out, err := run(t, step, nil); err == nil || !strings.Contains(err.Error(), "line 3, step") {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}

type judgeFunc func(*Event) Verdict

func (f judgeFunc) Judge(e *Event) Verdict { return f(e) }

// A difference needs a reason, and what depends on a refused mapping has it too.
func TestJudge(t *testing.T) {
	const steps = `{"step":"map","call":"mmap","fd":"f","args":{"flags":"SHARED","length":4096,"offset":"0x1000","prot":"READ"},"ret":"<m>","errno":0}
{"step":"load","call":"access","args":{"at":"<m>","length":1,"op":"load"},"ret":0,"errno":0,"out":"00"}
`
	then := 0
	w := &Target{Judge: judgeFunc(func(e *Event) Verdict {
		if e.Name == "map" && e.Got.Errno == 22 && e.Offset == 0x1000 {
			return Verdict{Reason: "good reason", Then: func() error { then++; return nil }}
		}
		return Verdict{}
	})}
	out, err := run(t, steps, w)
	if err != nil || strings.Contains(out, "DIFFERS") || !strings.Contains(out, "good reason") || !strings.Contains(out, "rejected in step map") || then != 1 {
		t.Errorf("%v, then %d times\n%s", err, then, out)
	}
	if _, err := run(t, steps, nil); err == nil {
		t.Error("without a judge the second step has an address")
	}
	w.Judge = judgeFunc(func(*Event) Verdict {
		return Verdict{Reason: "r", Then: func() error { return errors.New("cannot go on") }}
	})
	if _, err := run(t, steps, w); err == nil || !strings.Contains(err.Error(), "cannot go on") {
		t.Errorf("Then fails: %v", err)
	}
}
