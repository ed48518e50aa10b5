package check

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/soft/kernel"
)

var update = flag.Bool("update", false, "write what the tests print into their files")

// TestNICs compares what is printed about the NICs of captured machines, whose GPU is
// at 3e:00.0. Each file has the machine and, in "want", the text.
func TestNICs(t *testing.T) {
	files, err := filepath.Glob("testdata/nics/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal(err, "no machines")
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			machine := parseTree(t, file)
			exports := 0
			if strings.Contains(firstLine(machine.MapFS, "proc/driver/nvidia/version"), "Open") {
				exports = 1
			}
			gpus := []GPU{{
				Info:       gpu.Info{Index: 0, PCI: "0000:3e:00.0"},
				Attributes: []Attribute{{"DMA_BUF_SUPPORTED", exports, true}},
			}}
			var got text
			got.nics(&Devices{NICs: lookNICs(machine, gpus)})
			compare(t, file, got.String())
		})
	}
}

// compare compares a text with section "want" of a file.
func compare(t *testing.T, file, got string) {
	t.Helper()
	compareSection(t, file, "want", got)
}

func compareSection(t *testing.T, file, section, got string) {
	t.Helper()
	a, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(a.Files, func(f txtar.File) bool { return f.Name == section })
	if i < 0 {
		t.Fatalf("%s has no section %s", file, section)
	}
	if *update {
		a.Files[i].Data = []byte(got)
		if err := os.WriteFile(file, txtar.Format(a), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(string(a.Files[i].Data), got); diff != "" {
		t.Errorf("%s: %s (-want +got):\n%s", file, section, diff)
	}
}

// TestEmulatedNIC looks at an adapter of the software machine, which has DMA although it
// is no PCI device in sysfs.
func TestEmulatedNIC(t *testing.T) {
	nics := lookNICs(dev.Of(kernel.New(parseTree(t, "testdata/nics/rxe.txtar").MapFS)), []GPU{{}})
	if len(nics) != 1 || nics[0].Peers[0].Distance != "emulated" {
		t.Fatalf("%+v", nics)
	}
	for _, r := range nics[0].Register {
		if strings.Contains(r.Why, "no DMA engine") {
			t.Errorf("%+v", r)
		}
	}
}

func TestNoNIC(t *testing.T) {
	var got text
	got.nics(&Devices{NICs: lookNICs(machineTree(t, "vm"), nil)})
	if !strings.Contains(got.String(), "modprobe rdma_rxe") {
		t.Errorf("without a NIC the report says:\n%s", &got)
	}
}

func TestDistance(t *testing.T) {
	root := parseTree(t, "testdata/nics/switch.txtar").MapFS
	for _, c := range []struct{ a, b, want string }{
		{"0000:3d:00.0", "0000:3e:00.0", "PIX"},
		{"0000:3d:00.0", "0000:3d:00.0", "PIX"},
		{"0000:9d:00.0", "0000:3e:00.0", "SYS"},
		{"0000:ff:00.0", "0000:3e:00.0", "unknown"},
		{"", "0000:3e:00.0", "unknown"},
	} {
		if got, _ := distance(root, c.a, c.b); got != c.want {
			t.Errorf("%q to %q is %s, want %s", c.a, c.b, got, c.want)
		}
	}
}
