package libnvm

import (
	"testing"

	"github.com/culvert-io/culvert/internal/abi/cproof"
)

// header declares the struct once more, in C.
const header = `
struct map { uint64_t vaddr_start; size_t n_pages; uint64_t *ioaddrs; };
`

func TestLayoutsAgainstC(t *testing.T) {
	cproof.Check(t, header, []cproof.Layout{
		{C: "struct map", Members: "vaddr_start n_pages ioaddrs", Go: Map{}},
	})
}

func TestNumbersAgainstC(t *testing.T) {
	cproof.Numbers(t, header, map[string]uint64{
		"_IOW(0x80, 1, struct map)": NVM_MAP_HOST_MEMORY,
		"_IOW(0x80, 2, struct map)": NVM_MAP_DEVICE_MEMORY,
		"_IOW(0x80, 3, uint64_t)":   NVM_UNMAP_MEMORY,
	})
}
