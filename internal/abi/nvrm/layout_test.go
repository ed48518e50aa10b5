package nvrm

import (
	"testing"

	"github.com/culvert-io/culvert/internal/abi/cproof"
)

// header declares the driver's types once more, in C, as its public headers
// describe them: natural alignment, with 8-byte alignment of 64-bit members
// and addresses.
const header = `
typedef uint32_t handle;
typedef uint64_t u64 __attribute__((aligned(8)));

struct nvos00 { handle root, parent, old; uint32_t status; };
struct nvos33 { handle client, device, memory; u64 offset, length, linear; uint32_t status, flags; };
struct nvos33fd { struct nvos33 params; int fd; };
struct nvos34 { handle client, device, memory; u64 linear; uint32_t status, flags; };
struct nvos54 { handle client, object; uint32_t cmd, flags; u64 params; uint32_t size, status; };
struct nvos55 { handle client, parent, object, clientSrc, objectSrc; uint32_t flags, status; };
struct nvos64 { handle root, parent, new; uint32_t class; u64 params, rights; uint32_t size, flags, status; };
struct pci { uint32_t domain; uint8_t bus, slot, function; uint16_t vendor, device; };
struct card { uint8_t valid; struct pci pci; uint32_t gpuid; uint16_t irq; u64 reg, regsize, fb, fbsize; uint32_t minor; uint8_t name[10]; };
struct version { uint32_t cmd, reply; char str[64]; };
struct regfd { int ctl; };
struct nv0080 { uint32_t id; handle share, tclient, tdevice; uint32_t flags; u64 size, start, limit; uint32_t mode; };
struct idinfo { uint32_t id, flags, dev, sub, sli, board, inst; int32_t numa; };
struct object { int type; union { struct { handle device, parent, object; } rm; } data; };
struct import1 { int32_t fd; struct object object; };
`

func TestLayoutsAgainstC(t *testing.T) {
	cproof.Check(t, header, []cproof.Layout{
		{C: "struct nvos00", Members: "root parent old status", Go: NVOS00Parameters{}},
		{C: "struct nvos33", Members: "client device memory offset length linear status flags", Go: NVOS33Parameters{}},
		{C: "struct nvos33fd", Members: "params fd", Go: NVOS33ParametersWithFD{}},
		{C: "struct nvos34", Members: "client device memory linear status flags", Go: NVOS34Parameters{}},
		{C: "struct nvos54", Members: "client object cmd flags params size status", Go: NVOS54Parameters{}},
		{C: "struct nvos55", Members: "client parent object clientSrc objectSrc flags status", Go: NVOS55Parameters{}},
		{C: "struct nvos64", Members: "root parent new class params rights size flags status", Go: NVOS64Parameters{}},
		{C: "struct pci", Members: "domain bus slot function vendor device", Go: PCIInfo{}},
		{C: "struct card", Members: "valid pci gpuid irq reg regsize fb fbsize minor name", Go: CardInfo{}},
		{C: "struct version", Members: "cmd reply str", Go: RMAPIVersion{}},
		{C: "struct regfd", Members: "ctl", Go: RegisterFD{}},
		{C: "struct nv0080", Members: "id share tclient tdevice flags size start limit mode", Go: NV0080AllocParameters{}},
		{C: "struct idinfo", Members: "id flags dev sub sli board inst numa", Go: GPUGetIDInfoV2Params{}},
		{C: "struct object", Members: "type data.rm.device data.rm.parent data.rm.object", Go: ExportObject{}},
		{C: "struct import1", Members: "fd object", Go: ImportObjectFromFDParams{}},
	})
}

// The numbers below were seen on the wire of driver 580.159.04.
func TestRequestNumbers(t *testing.T) {
	for _, c := range []struct {
		name      string
		got, want uintptr
		nr, size  int
	}{
		{"RM_FREE", IoctlFree, 0xC0104629, 0x29, 16},
		{"RM_CONTROL", IoctlControl, 0xC020462A, 0x2a, 32},
		{"RM_ALLOC", IoctlAlloc, 0xC030462B, 0x2b, 48},
		{"RM_DUP_OBJECT", IoctlDupObject, 0xC01C4634, 0x34, 28},
		{"RM_MAP_MEMORY", IoctlMapMemory, 0xC038464E, 0x4e, 56},
		{"RM_UNMAP_MEMORY", IoctlUnmapMemory, 0xC020464F, 0x4f, 32},
		{"CARD_INFO", IoctlCardInfo, 0xC90046C8, 200, 72 * 32},
		{"REGISTER_FD", IoctlRegisterFD, 0xC00446C9, 201, 4},
		{"CHECK_VERSION_STR", IoctlCheckVersion, 0xC04846D2, 210, 72},
	} {
		if c.got != c.want {
			t.Errorf("%s is %#x, want %#x", c.name, c.got, c.want)
		}
		if nr, size := IoctlNumber(c.got), IoctlSize(c.got); nr != c.nr || size != c.size {
			t.Errorf("%s has number %#x and size %d, want %#x and %d", c.name, nr, size, c.nr, c.size)
		}
	}
}
