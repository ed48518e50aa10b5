package vfio

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"pgregory.net/rapid"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/abi/p2p/cproof"
)

// header is the kernel's own.
const header = `
#include <linux/vfio.h>
`

func TestLayoutsAgainstTheKernelsHeader(t *testing.T) {
	if _, err := os.Stat("/usr/include/linux/vfio.h"); err != nil {
		t.Skip("needs the kernel's headers (package linux-libc-dev)")
	}
	cproof.Check(t, header, []cproof.Layout{
		{C: "struct vfio_group_status", Members: "argsz flags", Go: groupStatus{}},
		{C: "struct vfio_region_info", Members: "argsz flags index cap_offset size offset", Go: regionInfo{}},
		{C: "struct vfio_irq_info", Members: "argsz flags index count", Go: irqInfo{}},
		{C: "struct vfio_irq_set", Members: "argsz flags index start count", Go: irqSet{}},
		{C: "struct vfio_iommu_type1_dma_map", Members: "argsz flags vaddr iova size", Go: dmaMap{}},
		{C: "struct vfio_iommu_type1_dma_unmap", Members: "argsz flags iova size", Go: dmaUnmap{}},
		{C: "struct vfio_iommu_type1_info", Members: "argsz flags iova_pgsizes cap_offset", Go: iommuInfo{}},
		{C: "struct vfio_info_cap_header", Members: "id version next", Go: capHeader{}},
		{C: "struct vfio_iommu_type1_info_cap_iova_range", Members: "header nr_iovas reserved", Go: iovaCap{}},
		{C: "struct vfio_iova_range", Members: "start end", Go: iovaRange{}},
	})
	cproof.Numbers(t, header, map[string]uint64{
		"VFIO_GET_API_VERSION":                 VFIO_GET_API_VERSION,
		"VFIO_CHECK_EXTENSION":                 VFIO_CHECK_EXTENSION,
		"VFIO_SET_IOMMU":                       VFIO_SET_IOMMU,
		"VFIO_GROUP_GET_STATUS":                VFIO_GROUP_GET_STATUS,
		"VFIO_GROUP_SET_CONTAINER":             VFIO_GROUP_SET_CONTAINER,
		"VFIO_GROUP_GET_DEVICE_FD":             VFIO_GROUP_GET_DEVICE_FD,
		"VFIO_DEVICE_GET_INFO":                 VFIO_DEVICE_GET_INFO,
		"VFIO_DEVICE_GET_REGION_INFO":          VFIO_DEVICE_GET_REGION_INFO,
		"VFIO_DEVICE_GET_IRQ_INFO":             VFIO_DEVICE_GET_IRQ_INFO,
		"VFIO_DEVICE_SET_IRQS":                 VFIO_DEVICE_SET_IRQS,
		"VFIO_DEVICE_RESET":                    VFIO_DEVICE_RESET,
		"VFIO_IOMMU_GET_INFO":                  VFIO_IOMMU_GET_INFO,
		"VFIO_IOMMU_MAP_DMA":                   VFIO_IOMMU_MAP_DMA,
		"VFIO_IOMMU_UNMAP_DMA":                 VFIO_IOMMU_UNMAP_DMA,
		"VFIO_TYPE1v2_IOMMU":                   VFIO_TYPE1v2_IOMMU,
		"VFIO_GROUP_FLAGS_VIABLE":              VFIO_GROUP_FLAGS_VIABLE,
		"VFIO_DEVICE_FLAGS_RESET":              VFIO_DEVICE_FLAGS_RESET,
		"VFIO_DEVICE_FLAGS_PCI":                VFIO_DEVICE_FLAGS_PCI,
		"VFIO_REGION_INFO_FLAG_MMAP":           VFIO_REGION_INFO_FLAG_MMAP,
		"VFIO_PCI_CONFIG_REGION_INDEX":         VFIO_PCI_CONFIG_REGION_INDEX,
		"VFIO_PCI_MSIX_IRQ_INDEX":              VFIO_PCI_MSIX_IRQ_INDEX,
		"VFIO_IRQ_SET_DATA_NONE":               VFIO_IRQ_SET_DATA_NONE,
		"VFIO_IRQ_SET_DATA_EVENTFD":            VFIO_IRQ_SET_DATA_EVENTFD,
		"VFIO_IRQ_SET_ACTION_TRIGGER":          VFIO_IRQ_SET_ACTION_TRIGGER,
		"VFIO_DMA_MAP_FLAG_READ":               VFIO_DMA_MAP_FLAG_READ,
		"VFIO_DMA_MAP_FLAG_WRITE":              VFIO_DMA_MAP_FLAG_WRITE,
		"VFIO_IOMMU_INFO_CAPS":                 VFIO_IOMMU_INFO_CAPS,
		"VFIO_IOMMU_TYPE1_INFO_CAP_IOVA_RANGE": VFIO_IOMMU_TYPE1_INFO_CAP_IOVA_RANGE,
	})
}

// TestAddressesDoNotOverlap takes and gives addresses at random.
func TestAddressesDoNotOverlap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ranges := [][]iovaRange{
			nil,
			{{Start: 0, End: 0xfedfffff}, {Start: 0xfef00000, End: 1<<39 - 1}},
			{{Start: 0, End: 1<<20 - 1}},
			{{Start: firstIOVA + 100, End: firstIOVA + 1<<16}, {Start: 1<<64 - 1<<16, End: 1<<64 - 1}},
		}
		s := newIOVAs(ranges[rapid.IntRange(0, len(ranges)-1).Draw(t, "ranges")])
		var mine []iovaRange
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			if len(mine) > 0 && rapid.Bool().Draw(t, "give") {
				i := rapid.IntRange(0, len(mine)-1).Draw(t, "which")
				s.give(mine[i].Start)
				mine = slices.Delete(mine, i, i+1)
				continue
			}
			n := pageSize * rapid.Uint64Range(1, 20).Draw(t, "pages")
			a, ok := s.take(n)
			if !ok {
				continue
			}
			got := iovaRange{Start: a, End: a + n - 1}
			if a%pageSize != 0 || !slices.ContainsFunc(s.ranges, func(r iovaRange) bool { return r.Start <= a && got.End <= r.End && got.End > a }) {
				t.Fatalf("%#x to %#x is not within %#x", a, got.End, s.ranges)
			}
			for _, m := range mine {
				if got.Start <= m.End && m.Start <= got.End {
					t.Fatalf("%#x to %#x is taken", a, got.End)
				}
			}
			mine = append(mine, got)
		}
		for _, m := range mine {
			s.give(m.Start)
		}
		if len(s.taken) != 0 {
			t.Fatalf("%#x are left", s.taken)
		}
	})
}

// TestAddressesReturn uses more addresses than there are, one after the other.
func TestAddressesReturn(t *testing.T) {
	s := newIOVAs([]iovaRange{{Start: 0, End: 1<<20 - 1}})
	for range 1000 {
		a, ok := s.take(1 << 19)
		if !ok {
			t.Fatal("no addresses left")
		}
		s.give(a)
	}
	if _, ok := s.take(2 << 20); ok {
		t.Error("more addresses than there are")
	}
}

func FuzzParseRanges(f *testing.F) {
	good := make([]byte, 80)
	*(*iommuInfo)(unsafe.Pointer(&good[0])) = iommuInfo{Argsz: 80, Flags: 3, CapOffset: 24}
	*(*iovaCap)(unsafe.Pointer(&good[24])) = iovaCap{Header: capHeader{ID: 1}, NrIovas: 2}
	*(*iovaRange)(unsafe.Pointer(&good[40])) = iovaRange{Start: 0, End: 0xfedfffff}
	*(*iovaRange)(unsafe.Pointer(&good[56])) = iovaRange{Start: 0xfef00000, End: 1<<39 - 1}
	if got := parseRanges(good); !slices.Equal(got, []iovaRange{{Start: 0, End: 0xfedfffff}, {Start: 0xfef00000, End: 1<<39 - 1}}) {
		f.Errorf("%#x", got)
	}
	loop := slices.Clone(good)
	*(*iovaCap)(unsafe.Pointer(&loop[24])) = iovaCap{Header: capHeader{ID: 3, Next: 24}}
	many := slices.Clone(good)
	*(*iovaCap)(unsafe.Pointer(&many[24])) = iovaCap{Header: capHeader{ID: 1}, NrIovas: 1000}
	f.Add(good)
	f.Add(loop)
	f.Add(many)
	f.Fuzz(func(t *testing.T, b []byte) {
		if n := len(parseRanges(b)); n*16 > len(b) {
			t.Errorf("%d ranges in %d bytes", n, len(b))
		}
	})
}

func TestOpenSaysWhatIsMissing(t *testing.T) {
	for pci, want := range map[string]string{
		"nonsense":              "no PCI address",
		"../../../etc":          "no PCI address",
		"ffff:ff:1f.7":          "no such file",
		"0000:00:00.0/../other": "no PCI address",
	} {
		if _, err := Open(pci, Config{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", pci, err, want)
		}
	}
	if err := Bind("nonsense"); err == nil {
		t.Error("nonsense was bound")
	}
	if d := Driver("nonsense"); d != "" {
		t.Errorf("nonsense has the driver %q", d)
	}
}

func TestGPUNeedsAView(t *testing.T) {
	tr := &Transport{pci: "0000:01:00.0"}
	if _, _, _, err := tr.MapGPU(gpu.Span{Len: 64 << 10}); !errors.Is(err, errors.ErrUnsupported) {
		t.Error(err)
	}
	released := false
	tr.cfg.View = func(gpu.Span) ([]byte, func() error, error) {
		return make([]byte, 100), func() error { released = true; return nil }, nil
	}
	if _, _, _, err := tr.MapGPU(gpu.Span{Len: 64 << 10}); err == nil || !released {
		t.Errorf("a view that is no memory for DMA: %v, released: %v", err, released)
	}
}
