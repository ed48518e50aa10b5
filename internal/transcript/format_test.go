package transcript

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	const text = `{"header":"gpumem","conversation":"all","mode":"m","placeholders":{"buf0":"memory"}}

{"step":"a","call":"ioctl","fd":"f","req":"0x670a","in":"00<buf0>","ret":0,"errno":0,"out":"01<handle0>","note":"why"}
{"step":"b","call":"mmap","fd":"f","args":{"flags":"SHARED","length":65536,"offset":"<phys0>","prot":"READ"},"ret":"<map0>","errno":0}
{"step":"c","call":"access","args":{"at":"<map0>","length":8,"op":"load"},"ret":"fault","errno":0}
{"header":"gpumem","conversation":"second"}
`
	list, err := Parse(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != 2 || len(list[0].Steps) != 3 || len(list[1].Steps) != 0 {
		t.Fatalf("%d conversations", len(list))
	}
	a := list[0].Steps[0]
	if a.Name != "a" || a.Line != 3 || a.Req != 0x670a || a.In.Len() != 9 || a.Out.Len() != 9 || a.Ret != "0" || a.Note != "why" {
		t.Errorf("step a: %+v", a)
	}
	want := Args{Flags: "SHARED", Length: 65536, Offset: "<phys0>", Prot: "READ"}
	if d := cmp.Diff(want, list[0].Steps[1].Args); d != "" {
		t.Error(d)
	}
	if b, c := list[0].Steps[1], list[0].Steps[2]; b.Ret != "<map0>" || c.Ret != "fault" {
		t.Errorf("returns %q and %q", b.Ret, c.Ret)
	}
}

func TestBadFiles(t *testing.T) {
	const header = `{"header":"gpumem","conversation":"all"}` + "\n"
	for name, tc := range map[string]struct{ text, want string }{
		"no JSON":        {"x", "line 1"},
		"no header":      {`{"step":"a","call":"ioctl"}`, "before the first header"},
		"no name":        {header + `{"call":"ioctl"}`, "needs a name"},
		"bad request":    {header + `{"step":"a","call":"ioctl","req":"x"}`, `line 2, step "a": strconv`},
		"bad bytes":      {header + `{"step":"a","call":"ioctl","in":"0"}`, `step "a": bytes`},
		"bad answer":     {header + `{"step":"a","call":"ioctl","out":"<"}`, `step "a": placeholder`},
		"endless line":   {header + strings.Repeat(" ", maxLine+1), "too long"},
		"wrong type":     {header + `{"step":1}`, "line 2"},
		"bad args":       {header + `{"step":"a","call":"x","args":[]}`, "line 2"},
		"negative count": {header + `{"step":"a","call":"x","args":{"length":-1}}`, "line 2"},
	} {
		if _, err := Parse(strings.NewReader(tc.text)); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(`{"header":"m"}` + "\n" + `{"step":"a","call":"ioctl","fd":"f","req":"0x1","in":"00<b>","out":"<h:4>","ret":0}`)
	f.Add(`{"header":"m"}` + "\n" + `{"step":"a","call":"mmap","args":{"length":1,"offset":"<p>"},"ret":"<m>"}`)
	f.Fuzz(func(t *testing.T, s string) {
		list, err := Parse(strings.NewReader(s))
		if err != nil {
			return
		}
		for _, c := range list {
			for _, st := range c.Steps {
				if st.Name == "" || st.Call == "" {
					t.Errorf("line %d is a step without a name or a call", st.Line)
				}
			}
		}
	})
}
