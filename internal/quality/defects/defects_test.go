package defects

import (
	"strings"
	"testing"
)

const script = `# what must hold
exec true

# defect: it is wrong
# and that matters
stdout right
stdout also
# more
exec false
`

func TestJudge(t *testing.T) {
	for _, tt := range []struct {
		script, log string
		want        []string // parts of the problems
	}{
		{script, "FAIL: x.txtar:6: no match", nil},
		{script, "FAIL: x.txtar:6: no match\nFAIL: x.txtar:7: no match\n", nil},
		{script, "PASS\n", []string{`x.txtar:6: defect "it is wrong" is fixed`}},
		{script, "FAIL: x.txtar:7: no match", []string{"x.txtar:6: defect"}},
		{script, "FAIL: x.txtar:2: status 1", []string{"x.txtar:6: defect", "x.txtar:2: this fails"}},
		{script, "FAIL: x.txtar:6: no match\nFAIL: x.txtar:9: status 1\n", []string{"x.txtar:9: this fails"}},
		{script, "FAIL: x.txtar:0: cannot set up", []string{"x.txtar:6: defect", "x.txtar:0: this fails"}},
		{"exec true\n", "PASS\n", []string{"no section begins with"}},
	} {
		got := judge("x.txtar", tt.script, tt.log)
		if len(got) != len(tt.want) {
			t.Errorf("%q: %q, want %q", tt.log, got, tt.want)
			continue
		}
		for i := range got {
			if !strings.HasPrefix(got[i], tt.want[i]) && !strings.Contains(got[i], tt.want[i]) {
				t.Errorf("%q: %q, want %q", tt.log, got, tt.want)
			}
		}
	}
}
