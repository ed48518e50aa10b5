package tensor

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// put writes files into a new directory.
func put(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// bytesFile is a file of U8 tensors of one byte each.
func bytesFile(names ...string) string {
	var parts []string
	for i, name := range names {
		parts = append(parts, fmt.Sprintf(`%q:{"dtype":"U8","shape":[1],"data_offsets":[%d,%d]}`, name, i, i+1))
	}
	return string(image("{"+strings.Join(parts, ",")+"}", len(names)))
}

func names(m *Model) (names []string) {
	for _, e := range m.Tensors {
		names = append(names, filepath.Base(m.Files[e.File].Path)+":"+e.Name)
	}
	return names
}

func TestOpen(t *testing.T) {
	const index = "model.safetensors.index.json"
	ab, cd := bytesFile("a", "b"), bytesFile("c", "d")
	tests := []struct {
		name     string
		files    map[string]string
		open     string
		want     []string
		unlisted []string
	}{
		{"file", map[string]string{"x.bin": ab}, "x.bin", []string{"x.bin:a", "x.bin:b"}, nil},
		{"directory with one file", map[string]string{"model.safetensors": ab, "config.json": "{}"}, "", []string{"model.safetensors:a", "model.safetensors:b"}, nil},
		{
			"directory with several and no index, hidden ones left out",
			map[string]string{"1.safetensors": ab, "2.safetensors": cd, ".3.safetensors": ab},
			"",
			[]string{"1.safetensors:a", "1.safetensors:b", "2.safetensors:c", "2.safetensors:d"},
			nil,
		},
		{
			"index",
			map[string]string{
				"2.safetensors": ab, "sub/1.safetensors": cd,
				index: `{"metadata":{"total_size":4.0,"deep":[[{}]]},"weight_map":{"d":"sub/1.safetensors","c":"sub/1.safetensors","a":"2.safetensors","b":"2.safetensors"}}`,
			},
			index,
			[]string{"2.safetensors:a", "2.safetensors:b", "1.safetensors:c", "1.safetensors:d"},
			nil,
		},
		{
			"index decides",
			map[string]string{
				"1.safetensors": ab, "2.safetensors": bytesFile("b", "x"), "3.safetensors": "broken and not listed",
				index: `{"weight_map":{"a":"1.safetensors","b":"2.safetensors"}}`,
			},
			"",
			[]string{"1.safetensors:a", "2.safetensors:b"},
			[]string{"b", "x"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m, err := Open(filepath.Join(put(t, tt.files), tt.open))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, names(m)); diff != "" {
				t.Errorf("entries (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.unlisted, m.Unlisted); diff != "" {
				t.Errorf("unlisted (-want +got):\n%s", diff)
			}
			if bytesOf(m) != int64(len(tt.want)) {
				t.Errorf("%d bytes, want %d", bytesOf(m), len(tt.want))
			}
			e, ok := m.Lookup("b")
			if !ok || e.Name != "b" {
				t.Errorf("Lookup(b) = %v, %v", e, ok)
			}
			if _, ok := m.Lookup("nobody"); ok {
				t.Error("Lookup found nobody")
			}
		})
	}
}

func TestOpenErrors(t *testing.T) {
	const index = "model.safetensors.index.json"
	ab := bytesFile("a", "b")
	withIndex := func(text string) map[string]string {
		return map[string]string{"1.safetensors": ab, index: text}
	}
	tests := []struct {
		name  string
		files map[string]string
		want  error
		says  string
	}{
		{"empty directory", nil, fs.ErrNotExist, "no *.safetensors"},
		{"two indexes", map[string]string{"a.safetensors.index.json": "{}", "b.safetensors.index.json": "{}"}, nil, "2 indexes"},
		{"name in two files", map[string]string{"1.safetensors": ab, "2.safetensors": ab}, brokenRule(ruleDuplicate), "is also in"},
		{"two broken files are both named", map[string]string{"1.safetensors": "", "2.safetensors": ""}, brokenRule(ruleLength), "2.safetensors"},
		{"index not JSON", withIndex("{"), nil, "unexpected end of JSON"},
		{"index is an array", withIndex("[]"), nil, "want an object"},
		{"no weight_map", withIndex(`{"metadata":{}}`), nil, "weight_map is missing"},
		{"empty weight_map", withIndex(`{"weight_map":{}}`), nil, "or empty"},
		{"weight_map twice", withIndex(`{"weight_map":{"a":"1.safetensors"},"weight_map":{}}`), nil, "twice"},
		{"tensor twice", withIndex(`{"weight_map":{"a":"1.safetensors","a":"2.safetensors"}}`), brokenRule(ruleDuplicate), `tensor "a"`},
		{"file is a number", withIndex(`{"weight_map":{"a":1}}`), nil, `tensor "a"`},
		{"file above", withIndex(`{"weight_map":{"a":"../1.safetensors"}}`), nil, "is outside the index's directory"},
		{"absolute file", withIndex(`{"weight_map":{"a":"/1.safetensors"}}`), nil, "is outside the index's directory"},
		{"no such file", withIndex(`{"weight_map":{"a":"9.safetensors"}}`), fs.ErrNotExist, "9.safetensors"},
		{"tensor not in its file", withIndex(`{"weight_map":{"a":"1.safetensors","c":"1.safetensors"}}`), nil, `tensor "c": not in`},
		{"deep", withIndex(strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000)), nil, "depth"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Open(put(t, tt.files))
			if err == nil {
				t.Fatal("accepted")
			}
			if tt.want != nil && !isError(err, tt.want) {
				t.Errorf("error %v is not %v", err, tt.want)
			}
			if !strings.Contains(err.Error(), tt.says) {
				t.Errorf("error %q does not say %q", err, tt.says)
			}
		})
	}
}

func FuzzIndex(f *testing.F) {
	f.Add([]byte(`{"metadata":{"total_size":1},"weight_map":{"a":"b"}}`))
	f.Add([]byte(`{"weight_map":{"a":"../b"}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		shards, err := parseIndex(text)
		if err != nil {
			return
		}
		if len(shards) == 0 {
			t.Fatal("an empty index was accepted")
		}
		for name, file := range shards {
			if !filepath.IsLocal(file) {
				t.Fatalf("%q comes from %q", name, file)
			}
		}
	})
}
