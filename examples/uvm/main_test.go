package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestRun(t *testing.T) {
	const managed = "managed memory\nResults: 512000\n"
	var out bytes.Buffer
	if err := run(&out); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); !strings.HasPrefix(got, managed) {
		t.Errorf("got\n%s", got)
	}
}

// On the software machine both answers of the GPU can be had.
func TestHeapMemory(t *testing.T) {
	for model, want := range map[string]string{
		"pageable": "managed memory\nResults: 512000\nheap memory\nResults: 512000\n",
		"h200":     "managed memory\nResults: 512000\nheap memory: this GPU cannot access it (PAGEABLE_MEMORY_ACCESS is 0)\n",
	} {
		t.Run(model, func(t *testing.T) {
			t.Setenv("CULVERT_MACHINE", "soft")
			t.Setenv("CULVERT_SOFT", "model="+model)
			var out bytes.Buffer
			if err := run(&out); err != nil {
				t.Fatal(err)
			}
			if got := out.String(); got != want {
				t.Errorf("got\n%s, want\n%s", got, want)
			}
		})
	}
}
