package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/culvert-io/culvert/machine"
	"github.com/culvert-io/culvert/soft"
)

func TestRun(t *testing.T) {
	m, err := machine.FromSoft(soft.Config{}, "a test")
	if err != nil {
		t.Fatal(err)
	}
	expect(t, m, "backend: gdrdrv 2.6\n")
	if err := m.Close(); err != nil {
		t.Error(err)
	}
}

// A machine without the module works by the driver, and says why.
func TestWithoutModule(t *testing.T) {
	m, err := machine.FromSoft(soft.Config{Without: []string{"gdrdrv"}}, "a test")
	if err != nil {
		t.Fatal(err)
	}
	expect(t, m, "backend: BAR1", "not gdrdrv: open /dev/gdrdrv")
	if err := m.Close(); err != nil {
		t.Error(err)
	}
}

// expect runs the example and looks for words in what it prints.
func expect(t *testing.T, m *machine.Machine, words ...string) {
	t.Helper()
	var out bytes.Buffer
	if err := run(&out, m, 256<<10, 1); err != nil {
		t.Fatal(err)
	}
	for _, want := range append(words, "CopyTo us", "mapped as WC", "\n    4096 ", "\n  262144 ", "equal\n") {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in\n%s", want, &out)
		}
	}
	if err := run(&out, m, 0, 1); err == nil {
		t.Error("a table of nothing was made")
	}
}
