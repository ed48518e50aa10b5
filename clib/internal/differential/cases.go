// Package differential compares our libcufile.so.0 with NVIDIA's, call by call.
//
// The cases are those of package cufiletest. A C program (clib/testdata/differential)
// runs them on either library and records the result of each call and the contents of
// memory and file. Compare compares two recordings.
package differential

import (
	"bufio"
	"fmt"
	"io"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/cufile/cufiletest"
)

// WriteCases writes the cases as lines that the C program reads: words, one
// line for the case, its holes and its steps each.
func WriteCases(w io.Writer) error {
	b := bufio.NewWriter(w)
	fmt.Fprintf(b, "suite %s\n", cufiletest.SuiteHash())
	for _, c := range cufiletest.Cases() {
		fmt.Fprintf(b, "case %s %s %d %d %s %d\n", c.Name, c.On, c.File.Size, c.File.Flags, c.Mem.Kind, c.Mem.Size)
		for _, h := range c.File.Holes {
			fmt.Fprintf(b, "hole %d %d\n", h.Off, h.Len)
		}
		for _, s := range c.Steps {
			fmt.Fprintf(b, "step %s %s %s %d %d %d %d %d %d %d\n", s, s.Call, s.FD, s.At, uint64(s.Wild),
				one(s.Null), s.Len, s.Off, s.Buf, one(s.Want == cufile.Success))
		}
	}
	return b.Flush()
}

func one(b bool) int {
	if b {
		return 1
	}
	return 0
}
