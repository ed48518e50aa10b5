package tensor

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestSumJoins(t *testing.T) {
	if got := sumOf([]byte("123456789")); got != 0xe3069283 {
		t.Errorf("CRC-32C of 123456789 is %v", got)
	}
	rapid.Check(t, func(t *rapid.T) {
		a := rapid.SliceOf(rapid.Byte()).Draw(t, "a")
		b := rapid.SliceOf(rapid.Byte()).Draw(t, "b")
		want := sumOf(append(bytes.Clone(a), b...))
		if got := sumOf(a).join(sumOf(b), int64(len(b))); got != want {
			t.Fatalf("%v, want %v", got, want)
		}
	})
}

func TestSumText(t *testing.T) {
	b, err := json.Marshal(Sum(0xab))
	if err != nil || string(b) != `"000000ab"` {
		t.Errorf("%s, %v", b, err)
	}
	var s Sum
	if err := json.Unmarshal(b, &s); err != nil || s != 0xab {
		t.Errorf("%v, %v", s, err)
	}
	for _, bad := range []string{"", "ab", "000000abc", "+00000ab", "0x0000ab"} {
		if err := s.UnmarshalText([]byte(bad)); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

// saved is a file of 4 KiB chunks and its manifest.
func saved(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "m.safetensors")
	if _, err := Save(t.Context(), path, sample(), &SaveOptions{Chunk: 4096}); err != nil {
		t.Fatal(err)
	}
	return path
}

// Any single changed byte is found, and blamed on the right tensor.
func TestVerifyFindsDamage(t *testing.T) {
	path := saved(t)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := openFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, info := range f.Tensors {
		if info.Len == 0 {
			continue
		}
		for _, at := range []int64{info.Off, info.Off + info.Len/2, info.Off + info.Len - 1} {
			bad := bytes.Clone(good)
			bad[at] ^= 1
			if err := os.WriteFile(path, bad, 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := Verify(t.Context(), path)
			ce, ok := errors.AsType[*ChecksumError](err)
			if !ok || !errors.Is(err, ErrChecksum) {
				t.Fatalf("byte %d: error %v", at, err)
			}
			if len(ce.Damaged) != 1 || at < ce.Damaged[0].Off || at >= ce.Damaged[0].Off+ce.Damaged[0].Len {
				t.Errorf("byte %d: damage %+v", at, ce.Damaged)
			}
			if !strings.Contains(err.Error(), path) || !strings.Contains(strings.Join(ce.Damaged[0].Tensors, " "), info.Name) {
				t.Errorf("byte %d of %s: %v", at, info.Name, err)
			}
		}
	}
	many := &ChecksumError{File: "m", Damaged: []Damage{{Off: 8, Len: 2, Tensors: []string{"a", "b", "c", "d", "e"}}}}
	if got, want := many.Error(), "m: checksum mismatch; somewhere in bytes [8, 10), which hold a, b, c and 2 more"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	// Spaces behind the JSON are part of the file too.
	bad := bytes.Clone(good)
	bad[f.Data-1] = '\n'
	if err := os.WriteFile(path, bad, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Verify(t.Context(), path); !errors.Is(err, ErrChecksum) || !strings.Contains(err.Error(), "the header") {
		t.Errorf("error %v", err)
	}
}

func TestVerifyManifest(t *testing.T) {
	edit := func(from, to string) func(*testing.T, string) {
		return func(t *testing.T, path string) {
			text, err := os.ReadFile(ManifestPath(path))
			if err != nil {
				t.Fatal(err)
			}
			changed := bytes.Replace(text, []byte(from), []byte(to), 1)
			if bytes.Equal(text, changed) {
				t.Fatalf("no %s in the manifest", from)
			}
			if err := os.WriteFile(ManifestPath(path), changed, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	tests := []struct {
		name string
		edit func(*testing.T, string)
		want error
		says string
	}{
		{"none", func(_ *testing.T, p string) { os.Remove(ManifestPath(p)) }, ErrNoManifest, "culvert verify --create"},
		{"not JSON", edit("{", "["), nil, "culvert.json"},
		{"unknown field", edit(`"version"`, `"vision"`), nil, "vision"},
		{"version", edit(`"version": 1`, `"version": 2`), nil, "version 2"},
		{"another file's", edit(`"m.safetensors"`, `"n.safetensors"`), nil, "n.safetensors"},
		{"size", edit(`"bytes": 4`, `"bytes": 5`), nil, "chunks"},
		{"chunk 0", edit(`"chunk_bytes": 4096`, `"chunk_bytes": 0`), nil, "chunks of 0"},
		{"huge chunk", edit(`"chunk_bytes": 4096`, `"chunk_bytes": 1099511627776`), nil, "chunks of 1099511627776"},
		{"name of a tensor", edit(`"name": "odd"`, `"name": "even"`), ErrChecksum, `"odd"`},
		{"a tensor twice", edit(`"name": "odd"`, `"name": "bias"`), nil, `"bias" occurs twice`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := saved(t)
			tt.edit(t, path)
			_, err := Verify(t.Context(), path)
			if err == nil {
				t.Fatal("accepted")
			}
			if tt.want != nil && !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("error %v, want %v, %q", err, tt.want, tt.says)
			}
		})
	}
}

// A manifest made afterwards is the one that Save makes.
func TestCreateManifest(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.safetensors")
	made, err := Save(t.Context(), path, sample(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(ManifestPath(path)); err != nil {
		t.Fatal(err)
	}
	m, err := CreateManifest(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(made, m); diff != "" {
		t.Errorf("(-saved +created):\n%s", diff)
	}
	if _, err := Verify(t.Context(), path); err != nil {
		t.Error(err)
	}
	if got := listDir(t, filepath.Dir(path)); len(got) != 2 {
		t.Errorf("directory: %v", got)
	}
}

// Beside saves of a healthy file, each verify finds a file and its manifest, and so
// does verify --create.
func TestVerifyBesideSave(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.safetensors")
	save := func(v int64) {
		if _, err := Save(t.Context(), path, versionSources(v), nil); err != nil {
			t.Error(err)
		}
	}
	save(0)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for v := range int64(100) {
			save(v + 1)
		}
	}()
	for i := 0; ; i++ {
		if _, err := Verify(t.Context(), path); err != nil {
			t.Fatal(i, err)
		}
		if i%10 == 0 {
			if _, err := CreateManifest(t.Context(), path); err != nil {
				t.Fatal(i, err)
			}
		}
		select {
		case <-done:
			return
		default:
		}
	}
}
