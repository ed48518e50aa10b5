package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/culvert-io/culvert/internal/atomicfile"
)

func TestPreload(t *testing.T) {
	const asan = "ASAN_OPTIONS=verify_asan_link_order=0"
	env := []string{"HOME=/root", "LD_PRELOAD=/own.so", "LD_LIBRARY_PATH="}
	for _, tt := range []struct {
		soft bool
		want []string
	}{
		{false, []string{"HOME=/root", "LD_PRELOAD=/l/libcufile.so.0:/own.so", "LD_LIBRARY_PATH=/l", asan}},
		{true, []string{
			"HOME=/root",
			"LD_PRELOAD=/l/libcufile.so.0:/l/soft/libcuda.so.1:/l/soft/libcudart.so.13:/l/soft/libcudart.so.12:/l/soft/libculvert-dev.so:/own.so",
			"LD_LIBRARY_PATH=/l:/l/soft", asan,
		}},
	} {
		if got := preload(env, libraries("/l", tt.soft, false), "/l", tt.soft); !slices.Equal(got, tt.want) {
			t.Errorf("soft %t: %q, want %q", tt.soft, got, tt.want)
		}
	}
	if got := preload(nil, libraries("/l", false, false), "/l", false); !slices.Equal(got, []string{"LD_PRELOAD=/l/libcufile.so.0", "LD_LIBRARY_PATH=/l", asan}) {
		t.Errorf("an empty environment: %q", got)
	}
	if got := preload(nil, libraries("/l", true, true), "/l", true); !slices.Contains(got, "LD_LIBRARY_PATH=/l/watch:/l:/l/soft") {
		t.Errorf("watched: %q", got)
	}
	if env[1] != "LD_PRELOAD=/own.so" {
		t.Error("the caller's environment was changed")
	}
}

// A command that was killed leaves its records to the next, which takes none of those
// that a living one uses.
func TestRecordsOfKilledCommands(t *testing.T) {
	parent := t.TempDir()
	killed := atomicfile.TempName(filepath.Join(parent, "culvert-run"))
	if err := os.Mkdir(killed, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(killed, "1.0.record"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	first, err := newRecords(parent)
	if err != nil {
		t.Fatal(err)
	}
	second, err := newRecords(parent)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(killed); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the records of the killed command: %v", err)
	}
	for _, dir := range []*atomicfile.File{first, second} {
		if st, err := os.Stat(dir.Name()); err != nil || st.Mode() != fs.ModeDir|0o700 {
			t.Errorf("%v, %v", st, err)
		}
		if err := os.WriteFile(filepath.Join(dir.Name(), "2.0.record"), nil, 0o600); err != nil {
			t.Error(err)
		}
	}
	if err := errors.Join(first.Discard(), second.Discard()); err != nil {
		t.Error(err)
	}
	if left, _ := os.ReadDir(parent); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}
