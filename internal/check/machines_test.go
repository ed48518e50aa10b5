package check

import (
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/soft/kernel"
)

// machineTree reads one of the machines that package ladder keeps.
func machineTree(t *testing.T, name string) tree {
	t.Helper()
	return parseTree(t, filepath.Join("../ladder/testdata/machines", name+".txtar"))
}

// parseTree reads files and symbolic links ("NAME -> TARGET") of a captured machine.
func parseTree(t *testing.T, file string) tree {
	t.Helper()
	a, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	root := fstest.MapFS{}
	for _, f := range a.Files {
		name, target, link := strings.Cut(f.Name, " -> ")
		switch {
		case link:
			root[name] = &fstest.MapFile{Data: []byte(target), Mode: fs.ModeSymlink}
		case strings.Contains(name, "/"):
			root[name] = &fstest.MapFile{Data: f.Data}
		}
	}
	return tree{root}
}

// A tree is the operating system of a captured machine.
type tree struct{ fstest.MapFS }

func (t tree) FS() fs.FS { return t.MapFS }

func (t tree) Open(path string) (dev.Node, error) {
	return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
}

// Where nobody can load a module nobody is told to.
func TestNoAdviceWithoutUse(t *testing.T) {
	wsl := machineTree(t, "wsl")
	for name, c := range map[string]struct {
		os   dev.OS
		note string
	}{
		"WSL":              {wsl, "WSL has none"},
		"software machine": {dev.Of(kernel.New(wsl.MapFS)), "the software machine has none"},
	} {
		for _, n := range lookNodes(c.os) {
			if n.Fix != "" || !strings.HasPrefix(n.Note, c.note) {
				t.Errorf("%s: %s: fix %q, note %q", name, n.Path, n.Fix, n.Note)
			}
		}
		for _, m := range lookModules(c.os) {
			if m.Fix != "" || !strings.HasPrefix(m.Note, c.note) {
				t.Errorf("%s: %s: fix %q, note %q", name, m.Name, m.Fix, m.Note)
			}
		}
	}
	for _, n := range lookNodes(machineTree(t, "vm")) {
		if n.Fix == "" || n.Note != "" {
			t.Errorf("VM: %s: fix %q, note %q", n.Path, n.Fix, n.Note)
		}
	}
}

// The limit on locked memory matters where pinning is software, and only root goes
// beyond the hard one.
func TestMemlockAdvice(t *testing.T) {
	limit := func(hard string) fstest.MapFS {
		return fstest.MapFS{"proc/self/limits": {Data: []byte("Max locked memory         8388608              " + hard + "            bytes\n")}}
	}
	for _, c := range []struct {
		os  dev.OS
		fix string
	}{
		{dev.Of(kernel.New(limit("8388608"))), "as root: ulimit -l unlimited; for a container: --ulimit memlock=-1"},
		{dev.Of(kernel.New(limit("unlimited"))), "ulimit -l $(ulimit -Hl)"},
		{dev.Of(kernel.New(limit("1073741824"))), "ulimit -l $(ulimit -Hl)"},
		{tree{limit("8388608")}, ""},
	} {
		if l := memlock(c.os); l.Fix != c.fix || (l.Note == "") != (c.fix == "") || l.Value != "8.0 MiB" {
			t.Errorf("%T: %+v, want %q", c.os, l, c.fix)
		}
	}
}

// What a machine has and what it puts on the process is read off its files.
func TestMachines(t *testing.T) {
	type look struct{ Kernel, Modules, Limits string }
	for name, want := range map[string]look{
		"dgx": {
			"5.15.0-1063-nvidia",
			"nvidia NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.90.07  Release Build  (dvs-builder@U16-I3-B03-02-3)  Fri May 31 09:35:42 UTC 2024; nvidia_fs version: 2.20; nvidia_peermem 550.90.07; nvme 1.0",
			"unlimited, none, none",
		},
		"small-bar": {
			"6.8.0-45-generic",
			"nvidia NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15 UTC 2024; nvme 1.0",
			"3.8 GiB, none, none",
		},
		"container": {
			"5.15.0-1063-nvidia",
			"nvidia NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.90.07  Release Build  (dvs-builder@U16-I3-B03-02-3)  Fri May 31 09:35:42 UTC 2024; nvidia_fs version: 2.20; nvme 1.0",
			"64.0 KiB, 32.0 GiB, 4",
		},
		"vm": {
			"6.18.2",
			"nvidia NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build",
			"8.0 MiB, none, none",
		},
		"wsl": {"6.6.87.2-microsoft-standard-WSL2", "", "64.0 MiB, none, none"},
	} {
		os := machineTree(t, name)
		got := look{Kernel: kernelVersion(os.MapFS)}
		var loaded, limits []string
		for _, m := range lookModules(os) {
			if m.Loaded {
				loaded = append(loaded, m.Name+" "+m.Detail)
			}
		}
		for _, l := range lookLimits(os) {
			if l.Fix != "" {
				l.Value += " (" + l.Fix + ")"
			}
			limits = append(limits, l.Value)
		}
		got.Modules, got.Limits = strings.Join(loaded, "; "), strings.Join(limits, ", ")
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
