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

// golden returns the segment of a version.
func golden(t *testing.T, version string) []byte {
	t.Helper()
	packed, err := os.ReadFile("testdata/formats/" + version + "/segment.gz")
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
	return image
}

// TestFormats reads the segment of this version and refuses those of others.
func TestFormats(t *testing.T) {
	image := golden(t, "v2")
	s, err := snapshot(image)
	if err != nil {
		t.Fatal(err)
	}
	const nvfs, bar, ring = 2, 5, 6
	if s.Command != "culvert cp models /mnt/models" || len(s.Files) != 2 || s.Routes[nvfs] != "nvfs" || s.Routes[ring] != "ring" {
		t.Fatalf("version 2: %+v", s)
	}
	a, b := s.Files[0], s.Files[1]
	if a.Name != "/srv/models/a.safetensors" || !a.Open || a.Totals.Ops[0][ring] != 1 || a.Totals.Bytes[0][ring] != 1<<20 ||
		a.Totals.Bytes[0][bar] != 4096 || a.Totals.Host != 1<<20 || a.Totals.Time != time.Millisecond {
		t.Errorf("version 2: first file %+v", a)
	}
	if b.Open || b.Totals.Ops[1][nvfs] != 2 || b.Totals.Bytes[1][nvfs] != 8192 || b.Totals.Errors != 1 || b.Totals.Retries != 1 {
		t.Errorf("version 2: second file %+v", b)
	}
	image[len(magic)] = 3
	for version, image := range map[string][]byte{"1": golden(t, "v1"), "3": image, "4": append(bytes.Clone(image[:len(magic)]), append([]byte{4}, make([]byte, headerSize)...)...)} {
		if _, err := snapshot(image); err == nil || !strings.Contains(err.Error(), "statistics version "+version+" is not supported (want 2)") {
			t.Errorf("version %s: %v", version, err)
		}
	}
}

// A process of version 1 has a file, which is refused by its version.
func TestFileOfVersion1(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	path := filepath.Join(os.Getenv("XDG_RUNTIME_DIR"), "culvert-1000-1999999999.stats")
	if err := os.WriteFile(path, golden(t, "v1"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(1999999999); err == nil || !strings.Contains(err.Error(), "statistics version 1 is not supported") {
		t.Error(err)
	}
}
