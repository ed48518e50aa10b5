package nvrm

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// header declares the driver's types once more, in C, as its public headers
// describe them: natural alignment, with 8-byte alignment of 64-bit members
// and addresses.
const header = `
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
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
struct export1 { struct object object; int32_t fd; uint32_t flags; };
struct import1 { int32_t fd; struct object object; };
struct exportn { int32_t fd; handle device; uint16_t max; uint8_t meta[64]; handle objects[512]; uint16_t num, index; };
struct importn { int32_t fd; handle parent; handle objects[128]; uint8_t types[128]; uint16_t num, index; };
#define S(t) printf("%s %zu\n", #t, sizeof(struct t))
#define O(t, f) printf("%s.%s %zu\n", #t, #f, offsetof(struct t, f))
`

// layouts pairs each Go type with its C twin, member by member. Padding has no
// twin.
var layouts = []struct {
	c       string
	members string
	value   any
}{
	{"nvos00", "root parent old status", NVOS00Parameters{}},
	{"nvos33", "client device memory offset length linear status flags", NVOS33Parameters{}},
	{"nvos33fd", "params fd", NVOS33ParametersWithFD{}},
	{"nvos34", "client device memory linear status flags", NVOS34Parameters{}},
	{"nvos54", "client object cmd flags params size status", NVOS54Parameters{}},
	{"nvos55", "client parent object clientSrc objectSrc flags status", NVOS55Parameters{}},
	{"nvos64", "root parent new class params rights size flags status", NVOS64Parameters{}},
	{"pci", "domain bus slot function vendor device", PCIInfo{}},
	{"card", "valid pci gpuid irq reg regsize fb fbsize minor name", CardInfo{}},
	{"version", "cmd reply str", RMAPIVersion{}},
	{"regfd", "ctl", RegisterFD{}},
	{"nv0080", "id share tclient tdevice flags size start limit mode", NV0080AllocParameters{}},
	{"idinfo", "id flags dev sub sli board inst numa", GPUGetIDInfoV2Params{}},
	{"object", "type data.rm.device data.rm.parent data.rm.object", ExportObject{}},
	{"export1", "object fd flags", ExportObjectToFDParams{}},
	{"import1", "fd object", ImportObjectFromFDParams{}},
	{"exportn", "fd device max meta objects num index", ExportObjectsToFDParams{}},
	{"importn", "fd parent objects types num index", ImportObjectsFromFDParams{}},
}

func TestLayoutsAgainstC(t *testing.T) {
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("needs gcc, to compare the layouts with a C compiler's")
	}
	var src, want strings.Builder
	src.WriteString(header + "int main(void) {\n")
	for _, l := range layouts {
		typ := reflect.TypeOf(l.value)
		fmt.Fprintf(&src, "S(%s);\n", l.c)
		fmt.Fprintf(&want, "%s %d\n", l.c, typ.Size())
		fields := members(typ)
		names := strings.Fields(l.members)
		if len(names) != len(fields) {
			t.Fatalf("%v has %d fields, the table names %d", typ, len(fields), len(names))
		}
		for i, name := range names {
			fmt.Fprintf(&src, "O(%s, %s);\n", l.c, name)
			fmt.Fprintf(&want, "%s.%s %d\n", l.c, name, fields[i].Offset)
		}
	}
	src.WriteString("return 0; }\n")
	if diff := cmp.Diff(want.String(), compileAndRun(t, gcc, src.String())); diff != "" {
		t.Errorf("Go and C disagree (-Go +C):\n%s", diff)
	}
}

func members(typ reflect.Type) []reflect.StructField {
	var fields []reflect.StructField
	for f := range typ.Fields() {
		if f.Name != "_" && !strings.HasPrefix(f.Name, "Pad") {
			fields = append(fields, f)
		}
	}
	return fields
}

func compileAndRun(t *testing.T, gcc, src string) string {
	t.Helper()
	dir := t.TempDir()
	file, bin := filepath.Join(dir, "layout.c"), filepath.Join(dir, "layout")
	if err := os.WriteFile(file, []byte(src), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(gcc, "-o", bin, file).CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	var out bytes.Buffer
	cmd := exec.Command(bin)
	cmd.Stdout = &out
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	return out.String()
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
