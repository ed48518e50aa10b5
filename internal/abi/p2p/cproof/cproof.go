// Package cproof proves layouts of Go structs against a C compiler. Client and
// twin share a struct, so a wrong offset in it would pass all their tests.
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
// fields, in order; fields called Pad have none.
type Layout struct {
	C       string // "struct pin_params"
	Members string
	Go      any
}

// Check compiles a program that prints sizes and offsets of the C structs in
// header and compares them with Go's.
func Check(t *testing.T, header string, layouts []Layout) {
	t.Helper()
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("needs gcc, to compare the layouts with a C compiler's")
	}
	var src, want strings.Builder
	src.WriteString("#include <stddef.h>\n#include <stdint.h>\n#include <stdio.h>\n" + header + "\nint main(void) {\n")
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
	src.WriteString("return 0; }\n")
	if diff := cmp.Diff(want.String(), run(t, gcc, src.String())); diff != "" {
		t.Errorf("Go and C disagree (-Go +C):\n%s", diff)
	}
}

// Numbers compares constants: each C expression must have the Go value.
func Numbers(t *testing.T, header string, want map[string]uint64) {
	t.Helper()
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("needs gcc, to compare the numbers with a C compiler's")
	}
	exprs := slices.Sorted(maps.Keys(want))
	var src, numbers strings.Builder
	fmt.Fprintf(&src, "#include <stdint.h>\n#include <stdio.h>\n#include <sys/ioctl.h>\n%s\nint main(void) {\n", header)
	for _, e := range exprs {
		fmt.Fprintf(&src, "printf(\"%%#lx\\n\", (unsigned long)(%s));\n", e)
		fmt.Fprintf(&numbers, "%#x\n", want[e])
	}
	src.WriteString("return 0; }\n")
	if diff := cmp.Diff(numbers.String(), run(t, gcc, src.String())); diff != "" {
		t.Errorf("Go and C disagree on %q (-Go +C):\n%s", exprs, diff)
	}
}

func run(t *testing.T, gcc, src string) string {
	t.Helper()
	dir := t.TempDir()
	file, bin := filepath.Join(dir, "proof.c"), filepath.Join(dir, "proof")
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
