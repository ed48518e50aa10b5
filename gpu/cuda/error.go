package cuda

import (
	"fmt"
	"strings"

	"github.com/culvert-io/culvert/gpu"
	abi "github.com/culvert-io/culvert/internal/abi/cuda"
)

// fail makes the error for a call of s with args that ended with code c.
func (d *Driver) fail(s *symbol, c gpu.Code, detail string, args ...any) error {
	var op strings.Builder
	op.WriteString(s.name + "(")
	for i, a := range args {
		if i > 0 {
			op.WriteString(", ")
		}
		fmt.Fprint(&op, a)
	}
	op.WriteString(")")
	switch {
	case s.fn == 0:
		detail = fmt.Sprintf("%s is of CUDA %s and lacks the function, which came with %s: install a newer driver",
			d.path, versionText(d.Version()), s.since)
	case detail == "" && !known(c):
		detail = strings.Trim(text(&d.symbols.cuGetErrorName, uintptr(c))+": "+text(&d.symbols.cuGetErrorString, uintptr(c)), ": ")
	}
	return gpu.Fail(op.String(), c, detail)
}

// versionText prints 12080 as 12.8.
func versionText(v int) string { return fmt.Sprintf("%d.%d", v/1000, v%1000/10) }

// known reports whether package gpu has a name and a message for the code.
func known(c gpu.Code) bool { _, ok := abi.DriverResult(int32(c)); return ok }
