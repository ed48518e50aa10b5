package stats

import (
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestFormats reads the segment of each released version and refuses that of a
// later one.
func TestFormats(t *testing.T) {
	packed, err := os.ReadFile("testdata/formats/v1/segment.gz")
	if err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	image, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "segment")
	if err := os.WriteFile(path, image, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	const nvfs, bar, ring = 2, 5, 6
	if s.Command != "culvert cp models /mnt/models" || len(s.Files) != 2 || s.Routes[nvfs] != "nvfs" || s.Routes[ring] != "ring" {
		t.Fatalf("version 1: %+v", s)
	}
	a, b := s.Files[0], s.Files[1]
	if a.Name != "/srv/models/a.safetensors" || !a.Open || a.Totals.Ops[0][ring] != 1 || a.Totals.Bytes[0][ring] != 1<<20 ||
		a.Totals.Bytes[0][bar] != 4096 || a.Totals.Host != 1<<20 || a.Totals.Time != time.Millisecond {
		t.Errorf("version 1: first file %+v", a)
	}
	if b.Open || b.Totals.Ops[1][nvfs] != 2 || b.Totals.Bytes[1][nvfs] != 8192 || b.Totals.Errors != 1 || b.Totals.Retries != 1 {
		t.Errorf("version 1: second file %+v", b)
	}
	image[len(magic)] = 2
	if err := os.WriteFile(path, image, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(path); err == nil || !strings.Contains(err.Error(), "statistics version 2 is not supported (want 1)") {
		t.Errorf("a later version: %v", err)
	}
}
