package clib_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestClientsTable checks the table that make clients-hardware leads to: medians,
// spreads, the reference of each row, and which goals are met.
func TestClientsTable(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("needs python3")
	}
	kit := filepath.Join(root(t), "clib", "clients", "hardware")
	data := filepath.Join("testdata", "clients-hardware")
	want, err := os.ReadFile(filepath.Join(data, "table.md"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(python, "-B", filepath.Join(kit, "table.py"), filepath.Join(data, "results.jsonl"))
	r := finish(t, cmd)
	diff(t, "table.md", r.stdout, string(want))
	if r.status != 0 {
		t.Errorf("status %d\n%s", r.status, r.stderr)
	}
}

// TestBlocks runs the kit's own program on the software machine: a line for every
// pass, and a file that is different after it was written.
func TestBlocks(t *testing.T) {
	lib := libraries(t)
	source, err := filepath.Abs("clients/hardware/blocks.c")
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "blocks")
	include := filepath.Join(root(t), "clib", "include")
	build := exec.Command("gcc", "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread", "-I"+include, "-o", program, source,
		"-L"+lib, "-L"+filepath.Join(lib, "soft"), "-lcufile", "-lcudart", "-lcuda")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	file := filepath.Join(t.TempDir(), "data")
	text := strings.Repeat("culvert ", 1<<17)
	for _, engine := range []string{"cufile", "host"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, operation := range []string{"read plain", "read each", "write plain"} {
			what, how, _ := strings.Cut(operation, " ")
			r := run(t, lib, program, engine, what, how, file, "65536", "3", "2")
			if lines := strings.Count(r.stdout, "\n"); r.status != 0 || lines != 2 {
				t.Errorf("%s %s: status %d, %d lines instead of 2\n%s%s", engine, operation, r.status, lines, r.stdout, r.stderr)
			}
		}
		got, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) == text {
			t.Errorf("%s: nothing was written", engine)
		}
	}
	if r := run(t, lib, program, "cufile", "read", "plain", file+".absent", "65536", "1", "1"); r.status != 1 {
		t.Errorf("a file that is absent: status %d instead of 1", r.status)
	}
}
