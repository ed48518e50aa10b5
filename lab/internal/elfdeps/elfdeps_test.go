package elfdeps

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// image is an ELF file with a dynamic section and nothing to run.
type image struct {
	machine elf.Machine
	interp  string
	needed  []string
	runpath string
}

// bytes lays out: header, one program header (the interpreter), three section
// headers (null, .dynamic, .dynstr), the dynamic entries, the strings.
func (m image) bytes() []byte {
	strs := []byte{0}
	str := func(s string) uint64 {
		off := len(strs)
		strs = append(append(strs, s...), 0)
		return uint64(off)
	}
	var dyn []elf.Dyn64
	for _, n := range m.needed {
		dyn = append(dyn, elf.Dyn64{Tag: int64(elf.DT_NEEDED), Val: str(n)})
	}
	if m.runpath != "" {
		dyn = append(dyn, elf.Dyn64{Tag: int64(elf.DT_RUNPATH), Val: str(m.runpath)})
	}
	dyn = append(dyn, elf.Dyn64{Tag: int64(elf.DT_NULL)})
	interp := str(m.interp)

	const phoff, shoff, dynoff = 64, 64 + 56, 64 + 56 + 3*64
	stroff := uint64(dynoff + 16*len(dyn))
	h := elf.Header64{
		Type: uint16(elf.ET_DYN), Machine: uint16(m.machine), Version: 1, Phoff: phoff, Shoff: shoff,
		Ehsize: 64, Phentsize: 56, Phnum: 1, Shentsize: 64, Shnum: 3, Shstrndx: 2,
	}
	copy(h.Ident[:], "\x7fELF\x02\x01\x01")
	prog := elf.Prog64{Type: uint32(elf.PT_NULL)}
	if m.interp != "" {
		prog = elf.Prog64{Type: uint32(elf.PT_INTERP), Off: stroff + interp, Filesz: uint64(len(m.interp) + 1)}
	}
	sections := [3]elf.Section64{
		1: {Type: uint32(elf.SHT_DYNAMIC), Off: dynoff, Size: uint64(16 * len(dyn)), Link: 2},
		2: {Type: uint32(elf.SHT_STRTAB), Off: stroff, Size: uint64(len(strs))},
	}
	var b bytes.Buffer
	for _, v := range []any{h, prog, sections, dyn, strs} {
		binary.Write(&b, binary.LittleEndian, v)
	}
	return b.Bytes()
}

func tree(t *testing.T, files map[string]image) string {
	t.Helper()
	root := t.TempDir()
	for name, m := range files {
		p := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if m.machine == 0 {
			m.machine = elf.EM_X86_64
		}
		if err := os.WriteFile(p, m.bytes(), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestWalk(t *testing.T) {
	tests := []struct {
		name  string
		files map[string]image
		want  []string
	}{
		{"static", map[string]image{"prog": {}}, nil},
		{"cycle", map[string]image{
			"prog":     {needed: []string{"a.so", "b.so"}},
			"lib/a.so": {needed: []string{"b.so"}},
			"lib/b.so": {needed: []string{"a.so"}},
		}, []string{"lib/a.so", "lib/b.so"}},
		{"own directory first", map[string]image{
			"opt/prog":      {},
			"prog":          {needed: []string{"a.so"}, runpath: "/nowhere:$ORIGIN/private"},
			"private/a.so":  {needed: []string{"b.so"}},
			"lib/a.so":      {},
			"private/b.so":  {},
			"second/b.so":   {},
			"lib/unused.so": {},
		}, []string{"private/a.so", "second/b.so"}},
		{"other architecture", map[string]image{
			"prog":        {needed: []string{"a.so"}},
			"lib/a.so":    {machine: elf.EM_386},
			"second/a.so": {},
		}, []string{"second/a.so"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			root := tree(t, tt.files)
			got, err := Walk([]string{root + "/lib", root + "/second"}, root+"/prog")
			if err != nil {
				t.Fatal(err)
			}
			for i := range got {
				got[i] = strings.TrimPrefix(got[i], root+"/")
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("files (-want +got):\n%s", diff)
			}
		})
	}
}

func TestInterpreterAndMissing(t *testing.T) {
	root := tree(t, map[string]image{"prog": {interp: "/lib64/ld.so"}, "broken": {needed: []string{"gone.so"}}})
	got, err := Walk(nil, root+"/prog")
	if err != nil || !slices.Equal(got, []string{"/lib64/ld.so"}) {
		t.Errorf("Walk = %v, %v", got, err)
	}
	_, err = Walk([]string{root}, root+"/broken")
	if err == nil || !strings.Contains(err.Error(), "broken needs gone.so") {
		t.Errorf("missing library: %v", err)
	}
}

func TestAgainstLoader(t *testing.T) {
	ldd, err := exec.LookPath("ldd")
	if err != nil {
		t.Skip("needs ldd (package libc-bin)")
	}
	prog, err := exec.LookPath("ls")
	if err != nil {
		t.Skip("needs ls")
	}
	out, err := exec.Command(ldd, prog).Output()
	if err != nil {
		t.Skipf("needs a dynamically linked ls: ldd: %v", err)
	}
	names := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^\s+(\S+\.so\S*)`).FindAllStringSubmatch(string(out), -1) {
		if n := filepath.Base(m[1]); n != "linux-vdso.so.1" {
			names[n] = true
		}
	}
	files, err := Walk(SystemDirs, prog)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{}
	for _, f := range files {
		got[filepath.Base(f)] = true
	}
	if diff := cmp.Diff(names, got); diff != "" {
		t.Errorf("libraries of %s (-ldd +ours):\n%s", prog, diff)
	}
}

func FuzzOpen(f *testing.F) {
	f.Add(image{machine: elf.EM_X86_64, interp: "/lib/ld.so", needed: []string{"a.so"}, runpath: "$ORIGIN"}.bytes())
	f.Add([]byte("\x7fELF"))
	f.Fuzz(func(t *testing.T, b []byte) {
		p := filepath.Join(t.TempDir(), "f")
		if err := os.WriteFile(p, b, 0o644); err != nil {
			t.Fatal(err)
		}
		if o, err := open(p); err == nil && len(o.interp) > maxInterp {
			t.Errorf("interpreter of %d bytes", len(o.interp))
		}
	})
}
