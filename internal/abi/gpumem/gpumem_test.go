package gpumem

import (
	"testing"

	"github.com/culvert-io/culvert/internal/abi/cproof"
)

// header declares the structs once more, in C.
const header = `
struct lock { void *handle; uint64_t addr, size; size_t page_count; };
struct unlock { void *handle; };
struct state { void *handle; size_t page_count, page_size; uint64_t pages[1]; };
`

func TestLayoutsAgainstC(t *testing.T) {
	cproof.Check(t, header, []cproof.Layout{
		{C: "struct lock", Members: "handle addr size page_count", Go: Lock{}},
		{C: "struct unlock", Members: "handle", Go: Unlock{}},
	})
	// The array at the end has no counterpart in Go: its place and the sizes
	// that include it are numbers.
	cproof.Numbers(t, "#include <stddef.h>\n"+header, map[string]uint64{
		"sizeof(struct state)":               StateHeader,
		"offsetof(struct state, page_count)": 8,
		"offsetof(struct state, page_size)":  16,
		"offsetof(struct state, pages)":      StatePages,
		"sizeof(struct state) + 8 * 5":       StateSize(5),
		"_IO('g', 10)":                       IOCTL_GPUMEM_LOCK,
		"_IO('g', 11)":                       IOCTL_GPUMEM_UNLOCK,
		"_IO('g', 12)":                       IOCTL_GPUMEM_STATE,
	})
}
