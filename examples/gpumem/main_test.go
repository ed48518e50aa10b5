package main

import (
	"bytes"
	"errors"
	"io/fs"
	"strings"
	"testing"

	"github.com/culvert-io/culvert/machine"
	"github.com/culvert-io/culvert/soft"
)

func TestSoftware(t *testing.T) {
	m, err := machine.FromSoft(soft.Config{Memory: 64 << 20, Scatter: true}, "a test")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}()
	for _, size := range []uint64{1, 1 << 20, 2<<20 + 5} {
		var out bytes.Buffer
		if err := on(&out, m, size); err != nil {
			t.Fatalf("%v\n%s", err, out.String())
		}
		for _, want := range []string{"pages of 65536 bytes", "through mappings", "at their physical addresses", "the fabric refuses", "0 of them to host memory"} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%d bytes: %q is not in\n%s", size, want, out.String())
			}
		}
	}
}

// Without the module the error says what to do.
func TestNoModule(t *testing.T) {
	m, err := machine.FromSoft(soft.Config{Memory: 64 << 20, Without: []string{"gpumem"}}, "a test")
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	var out bytes.Buffer
	if err := on(&out, m, 1<<20); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "insmod") {
		t.Errorf("got %v", err)
	}
}
