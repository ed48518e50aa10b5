package main

import (
	"bytes"
	"fmt"

	abi "github.com/culvert-io/culvert/internal/abi/cuda"
)

// errorsHeader gives C the names and messages of CUDA's codes. They are C's own
// strings because callers keep the pointers, also in a forked child.
func errorsHeader() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "/* %s */\n\n/* X(code, driver's name, message) */\n#define CULVERT_DRIVER_ERRORS(X) \\\n", notice)
	for _, r := range abi.Results {
		if r.Driver != "" {
			fmt.Fprintf(&b, "\tX(%d, %q, %q) \\\n", r.Code, r.Driver, r.Message)
		}
	}
	fmt.Fprintf(&b, "\n\n/* X(code, runtime's name, message) */\n#define CULVERT_RUNTIME_ERRORS(X) \\\n")
	for _, r := range abi.Results {
		if r.Runtime != "" {
			fmt.Fprintf(&b, "\tX(%d, %q, %q) \\\n", r.Code, r.Runtime, r.Message)
		}
	}
	b.WriteString("\n")
	return b.Bytes()
}
