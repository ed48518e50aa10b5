package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
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
	if env[1] != "LD_PRELOAD=/own.so" {
		t.Error("the caller's environment was changed")
	}
}

// A command that was killed leaves its records to the next, which takes none of those
// that a living one uses.
func TestRecordsOfKilledCommands(t *testing.T) {
	parent := t.TempDir()
	killed, err := os.MkdirTemp(parent, recordsName)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(killed, "1.0.record"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(t.TempDir(), filepath.Join(parent, recordsName+"link")); err != nil {
		t.Fatal(err)
	}
	first, removeFirst, err := newRecords(parent)
	if err != nil {
		t.Fatal(err)
	}
	second, removeSecond, err := newRecords(parent)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(killed); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the records of the killed command: %v", err)
	}
	for _, dir := range []string{first, second, filepath.Join(parent, recordsName+"link")} {
		if _, err := os.Stat(dir); err != nil {
			t.Error(err)
		}
	}
	if err := errors.Join(removeFirst(), removeSecond()); err != nil {
		t.Error(err)
	}
	if left, _ := filepath.Glob(filepath.Join(parent, recordsName+"[0-9]*")); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}
