package lab

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/culvert-io/culvert/lab/internal/job"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// The command line of each guest is reviewed as text: one argument per line,
// an option and its value together.
func TestArgs(t *testing.T) {
	tests := []struct {
		name  string
		guest Guest
		term  bool
	}{
		{"empty", Guest{}, false},
		{"terminal", Guest{CPUs: 1, Memory: 256}, true},
		{"drive", Guest{Drives: []Drive{{ID: "nv0", Sector: 4096, FS: "xfs"}}}, false},
		{"faults", Guest{Drives: []Drive{{ID: "nv0", Faults: []Fault{{Read, 2048}, {Write, 4096}}}}}, false},
		{"throttled", Guest{Drives: []Drive{{ID: "nv0", FS: "ext4", Rate: 16 << 20}}}, false},
		{"switches", Guest{Drives: []Drive{
			{ID: "cmb", CMB: 64, Behind: "sw"},
			{ID: "sibling", Behind: "sw"},
			{ID: "cousin", Behind: "other"},
			{ID: "hot", Behind: RootPort},
			{ID: "onroot"},
		}}, false},
		{"iommu", Guest{IOMMU: true, Drives: []Drive{{ID: "nv0"}}}, false},
		{"recorded", Guest{Drives: []Drive{{ID: "nv0", FS: "xfs", Sector: 4096, LogTo: "log"}, {ID: "log"}}}, false},
		{"network", Guest{NICs: 2}, false},
		{"nodes", Guest{CPUs: 4, Nodes: 2, Drives: []Drive{{ID: "near", Behind: RootPort, Node: 1}, {ID: "far", Behind: RootPort}}}, false},
	}
	wire := &cable{"/c/1", "/c/2", "52:54:00:00:00:01"}
	golden(t, "cable", lines(Guest{NICs: 2}.args(launch{cable: wire})))
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := tt.guest.withDefaults()
			if err := g.Validate(); err != nil {
				t.Fatal(err)
			}
			l := launch{accel: "tcg", kernel: "/k/vmlinux", initrd: "/k/initramfs", images: map[string]string{}, terminal: tt.term}
			l.shares = []job.Share{{Tag: "share0", Path: "/src"}}
			for _, d := range g.Drives {
				l.images[d.ID] = "/i/" + d.ID + ".img"
			}
			golden(t, tt.name, lines(g.args(l)))
		})
	}
}

func lines(args []string) string {
	var b strings.Builder
	for i, a := range args {
		switch {
		case i == 0:
		case strings.HasPrefix(a, "-"):
			b.WriteByte('\n')
		default:
			b.WriteByte(' ')
		}
		b.WriteString(a)
	}
	return b.String() + "\n"
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", "args", name+".txt")
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("command line (-want +got):\n%s", diff)
	}
}

func TestValidate(t *testing.T) {
	tests := []struct {
		name string
		g    Guest
		want string
	}{
		{"id", Guest{Drives: []Drive{{ID: "a,b"}}}, "id must be"},
		{"twice", Guest{Drives: []Drive{{ID: "a"}, {ID: "a"}}}, "duplicate id"},
		{"sector", Guest{Drives: []Drive{{ID: "a", Sector: 1024}}}, "sector size 1024"},
		{"size", Guest{Drives: []Drive{{ID: "a", Size: 1000}}}, "multiple of"},
		{"fs", Guest{Drives: []Drive{{ID: "a", FS: "btrfs"}}}, `file system "btrfs"`},
		{"cmb", Guest{Drives: []Drive{{ID: "a", CMB: -1}}}, "controller memory buffer"},
		{"behind", Guest{Drives: []Drive{{ID: "a", Behind: "no such"}}}, `behind "no such"`},
		{"fault op", Guest{Drives: []Drive{{ID: "a", Faults: []Fault{{"erase", 0}}}}}, `direction "erase"`},
		{"fault sector", Guest{Drives: []Drive{{ID: "a", Size: 1 << 20, Faults: []Fault{{Read, 2048}}}}}, "sector 2048"},
		{"log", Guest{Drives: []Drive{{ID: "a", LogTo: "b"}}}, `LogTo "b" must be`},
		{"nodes", Guest{CPUs: 3, Nodes: 2}, "multiples of 2 memory nodes"},
		{"node", Guest{Nodes: 2, Drives: []Drive{{ID: "a", Behind: RootPort, Node: 2}}}, "memory node 2 must be"},
		{"node of no port", Guest{Nodes: 2, Drives: []Drive{{ID: "a"}}}, "behind a port"},
		{"own log", Guest{Drives: []Drive{{ID: "a", LogTo: "a"}}}, `LogTo "a" must be`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.g.Validate()
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Validate = %v, want %q", err, tt.want)
			}
		})
	}
}

func TestDefaultsLeaveTheDescriptionAlone(t *testing.T) {
	g := Guest{Drives: []Drive{{ID: "nv0"}}}
	g.withDefaults()
	if diff := cmp.Diff(Guest{Drives: []Drive{{ID: "nv0"}}}, g); diff != "" {
		t.Errorf("withDefaults changed its receiver:\n%s", diff)
	}
}
