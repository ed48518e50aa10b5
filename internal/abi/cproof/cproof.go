// Package cproof compares the layouts of Go structs with those of a C compiler.
// Client and emulated module share a struct, so their tests cannot find a wrong
// offset.
package cproof

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A Layout pairs a Go struct with a C one. Members are the C names of the Go
// fields, in order, without fields called Pad.
type Layout struct {
	C       string // "struct pin_params"
	Members string
	Go      any
}

// Check compiles a program that prints sizes and offsets of the C structs in
// header and compares them with Go's.
func Check(t *testing.T, header string, layouts []Layout) {
	t.Helper()
	var src, want strings.Builder
	for _, l := range layouts {
		typ := reflect.TypeOf(l.Go)
		fmt.Fprintf(&src, "printf(\"%s %%zu\\n\", sizeof(%s));\n", l.C, l.C)
		fmt.Fprintf(&want, "%s %d\n", l.C, typ.Size())
		names := strings.Fields(l.Members)
		for f := range typ.Fields() {
			if f.Name == "_" || strings.HasPrefix(f.Name, "Pad") {
				continue
			}
			if len(names) == 0 {
				t.Fatalf("%v: field %s has no C name in the table", typ, f.Name)
			}
			fmt.Fprintf(&src, "printf(\"%s.%s %%zu\\n\", offsetof(%s, %s));\n", l.C, names[0], l.C, names[0])
			fmt.Fprintf(&want, "%s.%s %d\n", l.C, names[0], f.Offset)
			names = names[1:]
		}
		if len(names) > 0 {
			t.Fatalf("%v has no field for %v", typ, names)
		}
	}
	if diff := cmp.Diff(want.String(), run(t, header, src.String())); diff != "" {
		t.Errorf("Go and C disagree (-Go +C):\n%s", diff)
	}
}

// Numbers compares constants: each C expression must have the Go value.
func Numbers(t *testing.T, header string, want map[string]uint64) {
	t.Helper()
	exprs := slices.Sorted(maps.Keys(want))
	var src, numbers strings.Builder
	for _, e := range exprs {
		fmt.Fprintf(&src, "printf(\"%%#lx\\n\", (unsigned long)(%s));\n", e)
		fmt.Fprintf(&numbers, "%#x\n", want[e])
	}
	if diff := cmp.Diff(numbers.String(), run(t, header, src.String())); diff != "" {
		t.Errorf("Go and C disagree on %q (-Go +C):\n%s", exprs, diff)
	}
}

// run compiles and runs statements, and returns what they print.
func run(t *testing.T, header, statements string) string {
	t.Helper()
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("needs gcc, to compare with a C compiler")
	}
	const includes = "#include <stddef.h>\n#include <stdint.h>\n#include <stdio.h>\n#include <sys/ioctl.h>\n"
	file, bin := filepath.Join(t.TempDir(), "proof.c"), filepath.Join(t.TempDir(), "proof")
	src := includes + header + "\nint main(void) {\n" + statements + "return 0; }\n"
	if err := os.WriteFile(file, []byte(src), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(gcc, "-o", bin, file).CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	out, err := exec.Command(bin).Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}
