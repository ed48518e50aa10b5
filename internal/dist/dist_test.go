package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/culvert-io/culvert"
)

// check finds files that no line lists and lines without a file.
func TestCheck(t *testing.T) {
	dir := t.TempDir()
	list := filepath.Join(dir, "list")
	write(t, list, "# a comment\n\nbin/tool all\nman/tool-*.1 all\nlib/tool.so amd64\n")
	tree := filepath.Join(dir, "tree")
	for _, name := range []string{"bin/tool", "man/tool-a.1", "man/tool-b.1"} {
		write(t, filepath.Join(tree, name), "")
	}
	if err := check(list, "arm64", tree); err != nil {
		t.Error(err)
	}
	if err := check(list, "amd64", tree); err == nil || !strings.Contains(err.Error(), "no file matches lib/tool.so") {
		t.Errorf("library missing: %v", err)
	}
	if err := os.Symlink("tool", filepath.Join(tree, "bin/link")); err != nil {
		t.Fatal(err)
	}
	if err := check(list, "arm64", tree); err == nil || !strings.Contains(err.Error(), "bin/link is not listed") {
		t.Errorf("link not listed: %v", err)
	}
}

func TestBadLists(t *testing.T) {
	for text, want := range map[string]string{
		"":                    "nothing for architecture amd64",
		"bin/tool arm64":      "nothing for architecture amd64",
		"bin/tool":            "line 1",
		"a all\nbin/tool a b": "line 2",
		"[ all":               "syntax error in pattern",
	} {
		if _, err := parseList(text, "amd64"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// The packages for arm64 have the command and no library.
func TestListOfPackages(t *testing.T) {
	text, err := os.ReadFile("files.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, arch := range []string{"amd64", "arm64"} {
		patterns, err := parseList(string(text), arch)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(patterns, "bin/culvert") {
			t.Errorf("%s: no command in %q", arch, patterns)
		}
		if has := slices.Contains(patterns, "lib/culvert/libculvert.so"); has != (arch == "amd64") {
			t.Errorf("%s: library listed: %v", arch, has)
		}
	}
}

func TestBillOfMaterials(t *testing.T) {
	info := &debug.BuildInfo{
		GoVersion: "go1.26.8",
		Main:      debug.Module{Path: "github.com/culvert-io/culvert"},
		Deps: []*debug.Module{
			{Path: "example.com/old", Version: "v1.0.0", Replace: &debug.Module{Path: "example.com/a_b", Version: "v1.2.3"}},
		},
	}
	table := licenses("| module | version | license |\n|---|---|---|\n| example.com/a_b | v1.2.3 | MIT |\n")
	created := time.Unix(1, 0).UTC()
	doc, err := billOf("culvert", info, sha256.Sum256([]byte("x")), table, created)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range doc.Packages {
		got = append(got, strings.Join([]string{p.SPDXID, p.Name, p.VersionInfo, p.LicenseConcluded}, " "))
	}
	want := []string{
		"SPDXRef-github.com-culvert-io-culvert culvert v" + culvert.Version + " Apache-2.0",
		"SPDXRef-stdlib stdlib 1.26.8 BSD-3-Clause",
		"SPDXRef-example.com-a-b example.com/a_b v1.2.3 MIT",
	}
	if !slices.Equal(got, want) {
		t.Errorf("packages %q, want %q", got, want)
	}
	if n := len(doc.Relationships); n != 3 || doc.Relationships[0].RelationshipType != "DESCRIBES" || doc.CreationInfo.Created != "1970-01-01T00:00:01Z" {
		t.Errorf("%+v", doc)
	}
	if _, err := billOf("culvert", info, sha256.Sum256(nil), nil, created); err == nil || !strings.Contains(err.Error(), "example.com/a_b has no license") {
		t.Errorf("module without a license: %v", err)
	}
}

// The bill of a real program is the same each time.
func TestBillIsReproducible(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var first, second bytes.Buffer
	for _, out := range []io.Writer{&first, &second} {
		if err := printSBOM(out, self, "../../THIRD_PARTY_NOTICES.md", "1700000000"); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) || !json.Valid(first.Bytes()) {
		t.Errorf("first %s\nsecond %s", &first, &second)
	}
	if err := printSBOM(io.Discard, self, "../../THIRD_PARTY_NOTICES.md", "now"); err == nil || !strings.Contains(err.Error(), "SOURCE_DATE_EPOCH") {
		t.Errorf("epoch now: %v", err)
	}
	if err := printSBOM(io.Discard, "files.txt", "../../THIRD_PARTY_NOTICES.md", "1"); err == nil {
		t.Error("a text file has a bill of materials")
	}
}

func TestGlibcVersion(t *testing.T) {
	for text, want := range map[string][2]int{"GLIBC_2.34": {2, 34}, "GLIBC_2.2.5": {2, 2}, "GLIBC_PRIVATE": {}, "GCC_3.0": {}, "": {}} {
		v, ok := glibcVersion(text)
		if ok != (want != [2]int{}) || ok && v != want {
			t.Errorf("%q: %v, %v, want %v", text, v, ok, want)
		}
	}
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
