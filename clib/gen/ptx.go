package main

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/culvert-io/culvert/gpu/kernels"
)

// programKernels are the kernels that C programs have as PTX text. On hardware the
// driver compiles it; the software GPU uses the name of the entry.
var programKernels = map[string]string{
	"strrev":          "Reverse NUL-terminated text in place and store its length: (text, length).",
	"culvert_counter": "Add the number of threads to a 32-bit counter: (counter).",
}

// ptxHeader is one kernel as a C string.
func ptxHeader(name, comment string) ([]byte, error) {
	text := string(kernels.PTX)
	head, err := between(text, ".version", ".address_size")
	if err != nil {
		return nil, err
	}
	body, err := between(text, ".visible .entry "+name+"(", "\n}\n")
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "/* %s */\n\n/* %s */\nstatic const char %s_ptx[] =\n", notice, comment, name)
	for line := range strings.Lines(head + ".address_size 64\n\n" + body + "\n}\n") {
		fmt.Fprintf(&b, "\t%q\n", line)
	}
	b.WriteString("\t;\n")
	return b.Bytes(), nil
}

// between is the text from the first mark up to the second.
func between(text, from, to string) (string, error) {
	_, rest, ok := strings.Cut(text, from)
	part, _, ok2 := strings.Cut(rest, to)
	if !ok || !ok2 {
		return "", fmt.Errorf("the kernels' PTX has no %q followed by %q", from, to)
	}
	return from + part, nil
}
