package main

import (
	"context"
	"strings"
	"testing"

	"github.com/culvert-io/culvert/machine"
	"github.com/culvert-io/culvert/soft"
)

func TestRun(t *testing.T) {
	m, err := machine.FromSoft(soft.Config{Memory: 64 << 20}, "test")
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	var out strings.Builder
	if err := run(context.Background(), &out, m, "", 2<<20); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"4096 blocks of 512 bytes", "GPU -> drive  2097152 bytes", "drive -> GPU  2097152 bytes",
		"the GPU compared them: equal", "host bytes 0 (counted by the fabric)",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the output lacks %q:\n%s", want, out.String())
		}
	}
	if err := run(context.Background(), &out, m, "libnvm:/dev/libnvm0", 1<<20); err != nil {
		t.Errorf("the same drive through libnvm: %v", err)
	}
	for _, name := range []string{"elsewhere", "libnvm:/dev/libnvm1", "vfio:0000:ff:1f.7"} {
		if err := run(context.Background(), &out, m, name, 1<<20); err == nil {
			t.Errorf("drive %q was found", name)
		}
	}
}
