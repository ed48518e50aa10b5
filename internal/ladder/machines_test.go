package ladder

import (
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/blockstack"
	"github.com/culvert-io/culvert/internal/storage"
	"github.com/culvert-io/culvert/route"
)

var update = flag.Bool("update", false, "write what the probes find into testdata/machines")

// A captured machine is what /proc, /sys and /dev of one show, as far as the probes
// look there, with the place of a file. The trees follow what is
// published of such machines; that of the VM was seen. An entry "name -> target" is
// a symbolic link.
type captured struct {
	tree
	file storage.Facts
	want string
}

// plainGPU is a GPU of which nothing is known but that it is there.
type plainGPU struct{ gpu.Device }

func (plainGPU) Attribute(gpu.Attribute) (int, error) { return 0, nil }
func (plainGPU) Info() gpu.Info                       { return gpu.Info{} }

func readMachine(t *testing.T, a *txtar.Archive) captured {
	t.Helper()
	c := captured{tree: tree{fstest.MapFS{}}}
	for _, f := range a.Files {
		text := string(f.Data)
		var err error
		switch name, target, link := strings.Cut(f.Name, " -> "); {
		case f.Name == "file":
			_, err = fmt.Sscan(text, &c.file.Dev, &c.file.FS)
		case f.Name == "want":
			c.want = text
		case link:
			c.MapFS[name] = &fstest.MapFile{Mode: fs.ModeSymlink, Data: []byte(target)}
		default:
			c.MapFS[name] = &fstest.MapFile{Data: f.Data}
		}
		if err != nil {
			t.Fatalf("%s: %v", f.Name, err)
		}
	}
	return c
}

// found is what the probes of the direct routes find, and what lies below a file.
func (c captured) found() string {
	var b strings.Builder
	say := func(id route.ID, d *route.Decline) {
		if d == nil {
			fmt.Fprintf(&b, "%v: nothing is missing\n", id)
			return
		}
		fmt.Fprintln(&b, d)
	}
	say(route.Vendor, notDirect(c))
	say(route.NVFS, lookNVFS(c))
	say(route.P2PDMA, noP2PDMA(c))
	if _, err := fs.Stat(c.FS(), "dev/nvidiactl"); err != nil { // else the driver is asked
		_, d := findBar(plainGPU{}, c, 0, nil)
		say(route.Bar, d)
	}
	mount, err := storage.FindMount(c.FS(), c.file.Dev)
	fmt.Fprintf(&b, "mount %+v, error %v\n", mount, err)
	stack, err := blockstack.Look(c, c.file)
	if err != nil {
		fmt.Fprintln(&b, err)
	} else if d := stack.Disk(); d != nil {
		fmt.Fprintf(&b, "drive %v, PCI %q\n", d, d.PCI)
	}
	return b.String()
}

// On machines of the kinds that people have, the probes say what is missing for
// each direct route, and what would mend it.
func TestCapturedMachines(t *testing.T) {
	names, err := filepath.Glob("testdata/machines/*.txtar")
	if err != nil || len(names) < 5 {
		t.Fatalf("machines %v, %v", names, err)
	}
	for _, name := range names {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txtar"), func(t *testing.T) {
			t.Setenv(nvfsSwitch, "")
			a, err := txtar.ParseFile(name)
			if err != nil {
				t.Fatal(err)
			}
			c := readMachine(t, a)
			got := c.found()
			if *update {
				c.write(t, name, a, got)
				return
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got, go test ./internal/ladder -run CapturedMachines -update):\n%s", diff)
			}
		})
	}
}

func (c captured) write(t *testing.T, name string, a *txtar.Archive, got string) {
	t.Helper()
	if last := len(a.Files) - 1; a.Files[last].Name == "want" {
		a.Files = a.Files[:last]
	}
	a.Files = append(a.Files, txtar.File{Name: "want", Data: []byte(got)})
	if err := os.WriteFile(name, txtar.Format(a), 0o644); err != nil {
		t.Fatal(err)
	}
}
