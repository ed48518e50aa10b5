package gpumem

import (
	"fmt"
	"slices"
	"strings"

	abi "github.com/culvert-io/culvert/internal/abi/gpumem"
)

// list returns /proc/gpumem.
func (m *Module) list() []byte {
	m.mu.Lock()
	entries := slices.Clone(m.entries)
	m.mu.Unlock()
	var s strings.Builder
	s.WriteString("Pinned memory info:\n")
	for i, e := range entries {
		pages := e.table.Pages
		if e.gone() {
			pages = nil
		}
		fmt.Fprintf(&s, "%d: Entry - (____ptrval____)\nVirtual GPU address - %#x\nNumber of pages - %d\nPage size - %#x\n",
			i, e.va, len(pages), abi.GPU_BOUND_SIZE)
		for j, p := range pages {
			fmt.Fprintf(&s, "%02d: - %#x\n", j, p)
		}
		s.WriteString("\n")
	}
	return []byte(s.String())
}
