package check

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/blockstack"
	"github.com/culvert-io/culvert/internal/human"
)

// TestTopology compares the drawings of captured machines, whose GPU is at 3e:00.0, on a
// wide screen and in 40 columns.
func TestTopology(t *testing.T) {
	files, err := filepath.Glob("testdata/topology/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal(err, "no machines")
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			machine, g := parseTree(t, file), GPU{Info: gpu.Info{PCI: "0000:3E:00.0"}}
			top := lookTopology(machine.FS(), drives(t, file), lookNICs(machine, []GPU{g}), g)
			for section, width := range map[string]int{"want": 80, "want 40": 40} {
				var got text
				if top != nil {
					got.topology(top, width)
				}
				compareSection(t, file, section, human.Fold(got.String(), width))
				for line := range strings.Lines(got.String()) {
					if strings.Contains(line, "GB/s") && len([]rune(line)) > width+1 {
						t.Errorf("%d columns: %s", width, line)
					}
				}
			}
		})
	}
}

// drives is the stack with the drives of section "drives".
func drives(t *testing.T, file string) *blockstack.Stack {
	t.Helper()
	a, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	s := &blockstack.Stack{}
	i := slices.IndexFunc(a.Files, func(f txtar.File) bool { return f.Name == "drives" })
	for line := range strings.Lines(string(a.Files[i].Data)) {
		name, pci, _ := strings.Cut(strings.TrimSpace(line), " ")
		s.Layers = append(s.Layers, blockstack.Layer{Kind: blockstack.Drive, Name: name, PCI: pci})
	}
	return s
}
