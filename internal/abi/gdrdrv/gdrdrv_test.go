package gdrdrv

import (
	"testing"

	"github.com/culvert-io/culvert/internal/abi/cproof"
)

// header declares the structs once more, in C.
const header = `
typedef uint64_t handle_t;
struct pin { uint64_t addr, size, p2p_token; uint32_t va_space; handle_t handle; };
struct pin2 { uint64_t addr, size; uint32_t flags; handle_t handle; };
struct unpin { handle_t handle; };
struct cb { handle_t handle; uint32_t flag; };
struct info { handle_t handle; uint64_t va, mapped_size; uint32_t page_size, tsc_khz; uint64_t tm_cycles; uint32_t mapped, wc_mapping; };
struct info2 { handle_t handle; uint64_t va, mapped_size; uint32_t page_size, tsc_khz; uint64_t tm_cycles; uint32_t mapping_type; };
struct attr { uint32_t attr, val; };
struct req { handle_t handle; uint32_t mapping_type; };
struct version { uint32_t gdrdrv_version, minimum_gdr_api_version; };
`

func TestLayoutsAgainstC(t *testing.T) {
	cproof.Check(t, header, []cproof.Layout{
		{C: "struct pin", Members: "addr size p2p_token va_space handle", Go: PinBufferParams{}},
		{C: "struct pin2", Members: "addr size flags handle", Go: PinBufferParamsV2{}},
		{C: "struct unpin", Members: "handle", Go: UnpinBufferParams{}},
		{C: "struct cb", Members: "handle flag", Go: GetCBFlagParams{}},
		{C: "struct info", Members: "handle va mapped_size page_size tsc_khz tm_cycles mapped wc_mapping", Go: GetInfoParams{}},
		{C: "struct info2", Members: "handle va mapped_size page_size tsc_khz tm_cycles mapping_type", Go: GetInfoParamsV2{}},
		{C: "struct attr", Members: "attr val", Go: GetAttrParams{}},
		{C: "struct req", Members: "handle mapping_type", Go: ReqMappingTypeParams{}},
		{C: "struct version", Members: "gdrdrv_version minimum_gdr_api_version", Go: GetVersionParams{}},
	})
}

func TestNumbersAgainstC(t *testing.T) {
	cproof.Numbers(t, header, map[string]uint64{
		"_IOWR(0xDA, 1, struct pin)":     GDRDRV_IOC_PIN_BUFFER,
		"_IOWR(0xDA, 2, struct unpin *)": GDRDRV_IOC_UNPIN_BUFFER,
		"_IOWR(0xDA, 3, void *)":         GDRDRV_IOC_GET_CB_FLAG,
		"_IOWR(0xDA, 4, void *)":         GDRDRV_IOC_GET_INFO,
		"_IOWR(0xDA, 5, void *)":         GDRDRV_IOC_GET_INFO_V2,
		"_IOWR(0xDA, 6, void *)":         GDRDRV_IOC_GET_ATTR,
		"_IOWR(0xDA, 7, struct pin2)":    GDRDRV_IOC_PIN_BUFFER_V2,
		"_IOWR(0xDA, 8, void *)":         GDRDRV_IOC_REQ_MAPPING_TYPE,
		"_IOWR(0xDA, 255, void *)":       GDRDRV_IOC_GET_VERSION,
	})
}

func TestArgSize(t *testing.T) {
	for req, want := range map[uintptr]int{GDRDRV_IOC_PIN_BUFFER: 40, GDRDRV_IOC_GET_INFO_V2: 48, 0xC008DA09: 0, 0xC020DA01: 0, 0xC028DB01: 0} {
		if got := ArgSize(req); got != want {
			t.Errorf("ArgSize(%#x) = %d, want %d", req, got, want)
		}
	}
}
