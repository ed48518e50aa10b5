package transfer

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestJournalFormats reads the journal of each released version and refuses that of
// a later one.
func TestJournalFormats(t *testing.T) {
	text, err := os.ReadFile("testdata/formats/v1/culvert-cp.journal")
	if err != nil {
		t.Fatal(err)
	}
	dst := t.TempDir()
	dir := openDir(t, dst)
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dst, JournalName), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(string(text))
	j, err := readJournal(dir, "/srv/models")
	if err != nil {
		t.Fatal(err)
	}
	weights := j.done["llama/model-00001-of-00002.safetensors"]
	if len(j.done) != 2 || weights.Size != 4154 || !weights.ModTime.Equal(time.Date(2026, 11, 2, 3, 4, 6, 0, time.UTC)) || !j.made["llama"] || j.id != "sz6tqyjh" {
		t.Errorf("version 1: %+v, made %v, id %q", j.done, j.made, j.id)
	}
	write(strings.Replace(string(text), `"culvert_cp":1`, `"culvert_cp":2`, 1))
	if _, err := readJournal(dir, "/srv/models"); err == nil || !strings.Contains(err.Error(), "journal version 2 is not supported (want 1)") {
		t.Errorf("a later version: %v", err)
	}
}
