package check

import (
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
)

// machineTree reads one of the machines that package route keeps. Symbolic links
// are left out: nothing here follows any.
func machineTree(t *testing.T, name string) fstest.MapFS {
	t.Helper()
	a, err := txtar.ParseFile(filepath.Join("../../route/testdata/machines", name+".txtar"))
	if err != nil {
		t.Fatal(err)
	}
	root := fstest.MapFS{}
	for _, f := range a.Files {
		if strings.Contains(f.Name, "/") && !strings.Contains(f.Name, " -> ") {
			root[f.Name] = &fstest.MapFile{Data: f.Data}
		}
	}
	return root
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
			"64.0 KiB (ulimit -l unlimited), 32.0 GiB, 4",
		},
		"vm": {
			"6.18.2",
			"nvidia NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build",
			"8.0 MiB (ulimit -l unlimited), none, none",
		},
		"wsl": {"6.6.87.2-microsoft-standard-WSL2", "", "64.0 MiB (ulimit -l unlimited), none, none"},
	} {
		root := machineTree(t, name)
		got := look{Kernel: kernelVersion(root)}
		var loaded, limits []string
		for _, m := range lookModules(root) {
			if m.Loaded {
				loaded = append(loaded, m.Name+" "+m.Detail)
			}
		}
		for _, l := range lookLimits(root) {
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
