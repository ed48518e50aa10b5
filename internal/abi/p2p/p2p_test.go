package p2p

import (
	"syscall"
	"testing"

	"github.com/culvert-io/culvert/internal/abi/nvrm"
	"github.com/culvert-io/culvert/internal/abi/p2p/cproof"
)

// header declares the structs once more, in C.
const header = `
struct page {
	uint64_t physical_address;
	union registers { struct { uint32_t wreqmb_h, rreqmb_h, rreqmb_0, reserved[3]; } fermi; } registers;
};
struct page_table {
	uint32_t version, page_size;
	struct page **pages;
	uint32_t entries;
	uint8_t *gpu_uuid;
	uint8_t flags;
};
struct dma_mapping {
	uint32_t version;
	enum { P4, P64, P128, COUNT } page_size_type;
	uint32_t entries;
	uint64_t *dma_addresses;
	void *private, *pci_dev;
};`

func TestLayoutsAgainstC(t *testing.T) {
	cproof.Check(t, header, []cproof.Layout{
		{C: "struct page", Members: "physical_address registers.fermi.wreqmb_h registers.fermi.rreqmb_h registers.fermi.rreqmb_0 registers.fermi.reserved", Go: Page{}},
		{C: "struct page_table", Members: "version page_size pages entries gpu_uuid flags", Go: PageTable{}},
		{C: "struct dma_mapping", Members: "version page_size_type entries dma_addresses private pci_dev", Go: DMAMapping{}},
	})
}

func TestCompatible(t *testing.T) {
	for _, tc := range []struct {
		have, want uint32
		ok         bool
	}{
		{0x20000, 0x20000, true},
		{0x20003, 0x20001, true},
		{0x20000, 0x20001, false},
		{0x10003, 0x20000, false},
		{0x30000, 0x20000, false},
	} {
		if got := Compatible(tc.have, tc.want); got != tc.ok {
			t.Errorf("Compatible(%#x, %#x) = %v", tc.have, tc.want, got)
		}
	}
}

func TestErrno(t *testing.T) {
	for s, want := range map[nvrm.Status]syscall.Errno{
		nvrm.NV_OK:                         0,
		nvrm.NV_ERR_INSUFFICIENT_RESOURCES: syscall.ENOMEM,
		nvrm.NV_ERR_NO_MEMORY:              syscall.ENOMEM,
		nvrm.NV_ERR_INVALID_ARGUMENT:       syscall.EINVAL,
		nvrm.NV_ERR_INVALID_OBJECT_HANDLE:  syscall.EINVAL,
		nvrm.NV_ERR_OBJECT_NOT_FOUND:       syscall.EINVAL,
		nvrm.NV_ERR_NOT_SUPPORTED:          524,
		nvrm.NV_ERR_STATE_IN_USE:           syscall.EBUSY,
		NV_ERR_GPU_UUID_NOT_FOUND:          syscall.ENODEV,
		nvrm.NV_ERR_GENERIC:                syscall.EIO,
		nvrm.NV_ERR_INVALID_STATE:          syscall.EIO,
		0x12345:                            syscall.EIO,
	} {
		if got := Errno(s); got != want {
			t.Errorf("Errno(%v) = %d, want %d", s, got, want)
		}
	}
}

func TestPageSizes(t *testing.T) {
	for s, want := range map[PageSize]uint64{0: 4096, 1: 65536, 2: 131072, 3: 0, 1 << 31: 0} {
		if got := s.Bytes(); got != want {
			t.Errorf("page size %d is %d bytes, want %d", s, got, want)
		}
	}
}
