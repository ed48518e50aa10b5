package tune

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestFormats reads the cache file of each released version and refuses that of a
// later one.
func TestFormats(t *testing.T) {
	text, err := os.ReadFile("testdata/formats/v1/tune.json")
	if err != nil {
		t.Fatal(err)
	}
	entries, err := decode(text)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 2 || entries[0].What != "bar-crossover" || entries[1].What != WhatPinned {
		t.Fatalf("version 1: %+v", entries)
	}
	want := Subject{
		GPU:    "GPU-374708ff-f771-9dd5-979e-c875d56cd228",
		Driver: "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04",
		Kernel: "6.12.48+deb13-amd64", FS: "ext4", Dev: "259:1", Callers: 1,
	}
	if entries[0].Subject != want || entries[0].Measured.IsZero() {
		t.Errorf("version 1: %+v", entries[0])
	}
	var rate pinnedResult
	if err := json.Unmarshal(entries[1].Result, &rate); err != nil || rate != (pinnedResult{55.4e9, 54.9e9}) {
		t.Errorf("version 1: %+v, %v", rate, err)
	}
	later := strings.Replace(string(text), `"version": 1`, `"version": 2`, 1)
	path := filepath.Join(t.TempDir(), "tune.json")
	if err := os.WriteFile(path, []byte(later), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := NewCache(path).Entries(); err == nil || !strings.Contains(err.Error(), "tune cache version 2 is not supported (want 1)") {
		t.Errorf("a later version: %v", err)
	}
}
