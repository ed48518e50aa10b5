package tensor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestManifestFormats verifies a file with the manifest of each released version and
// refuses that of a later one, which may have fields that are unknown here.
func TestManifestFormats(t *testing.T) {
	const model = "testdata/formats/v1/model.safetensors"
	m, err := Verify(t.Context(), model)
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Tensors) != 2 || m.Tensors[1].Name != "norm.weight" || m.Tensors[1].Sum != 0x7a1b3a27 {
		t.Errorf("version 1: %+v", m)
	}
	path := filepath.Join(t.TempDir(), filepath.Base(model))
	for from, to := range map[string]string{model: path, ManifestPath(model): ManifestPath(path)} {
		text, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		text = []byte(strings.Replace(string(text), `"version": 1`, `"version": 2, "hash": "sha256"`, 1))
		if err := os.WriteFile(to, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Verify(t.Context(), path); err == nil || !strings.Contains(err.Error(), "manifest version 2 is not supported (want 1)") {
		t.Errorf("a later version: %v", err)
	}
}
