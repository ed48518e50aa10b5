package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/culvert-io/culvert/tensor"
)

type zeros struct{}

func (zeros) ReadAt(p []byte, _ int64) (int, error) {
	clear(p)
	return len(p), nil
}

func TestLoad(t *testing.T) {
	t.Setenv("CULVERT_MACHINE", "soft")
	path := filepath.Join(t.TempDir(), "model.safetensors")
	var sources []tensor.Source
	for _, name := range []string{"lm_head.weight", "model.layers.1.w", "model.layers.0.w", "model.embed_tokens.weight"} {
		sources = append(sources, tensor.Source{Name: name, Dtype: "BF16", Shape: []int64{64, 32}, Data: zeros{}})
	}
	if _, err := tensor.Save(t.Context(), path, sources, nil); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := load(t.Context(), &out, path); err != nil {
		t.Fatal(err)
	}
	// By layer: what a forward pass needs first comes first.
	line := func(name string) string { return regexp.QuoteMeta(name) + ` +BF16 +\[64 32\] at 0x[0-9a-f]+\n` }
	want := regexp.MustCompile("^" + line("model.embed_tokens.weight") + line("model.layers.0.w") + line("model.layers.1.w") + line("lm_head.weight") +
		fmt.Sprintf(`%s read route=\w+ bytes=16384 .*\n$`, regexp.QuoteMeta(path)))
	if !want.Match(out.Bytes()) {
		t.Errorf("got\n%s", out.Bytes())
	}
	if err := load(t.Context(), &out, path+".none"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}
