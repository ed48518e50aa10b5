package bench

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/machine"
	"github.com/culvert-io/culvert/route"
	"github.com/culvert-io/culvert/soft"
)

// openBench measures a file of blocks of 4 KiB, each filled with its number.
func openBench(t *testing.T, blocks int) *Bench {
	t.Helper()
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	m, err := machine.FromSoft(soft.Config{Memory: 64 << 20}, "test")
	if err != nil {
		t.Fatal(err)
	}
	drv, err := cufile.Open(m)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "data")
	var data []byte
	for i := range blocks {
		data = append(data, bytes.Repeat([]byte{byte(i + 1)}, 4096)...)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	b, err := Open(drv, 0, []string{path}, os.O_RDONLY, true)
	if err != nil {
		t.Fatal(err)
	}
	b.NoCeiling = true
	t.Cleanup(func() {
		b.Close()
		drv.Close()
		m.Close()
	})
	return b
}

// A call in a stream has moved all of its blocks, each to its place, and counts them.
func TestAsyncCaller(t *testing.T) {
	b := openBench(t, 8)
	e, err := b.culvertEngine(Method{Async: true}, true)
	if err != nil {
		t.Fatal(err)
	}
	defer e.close()
	const n = 3 * 4096
	a, err := b.dev.Alloc(gpu.KindDevice, n, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer b.dev.Free(a)
	c, err := e.caller(gpu.Span{Base: a, Len: n})
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	for _, offs := range [][]int64{{5, 0, 7}, {1, 2, 3}} {
		var want []byte
		at := make([]int64, len(offs))
		for i, block := range offs {
			at[i] = block * 4096
			want = append(want, bytes.Repeat([]byte{byte(block + 1)}, 4096)...)
		}
		var sum route.Receipt
		if err := c.do(t.Context(), route.Read, at, 4096, &sum); err != nil || sum.Bytes != n {
			t.Fatalf("%d bytes, %v", sum.Bytes, err)
		}
		got := make([]byte, n)
		if err := b.dev.CopyOut(got, a); err != nil || !bytes.Equal(got, want) {
			t.Errorf("blocks %v: wrong bytes, %v", offs, err)
		}
	}
	// A block that fails is the error of the call; its neighbours have moved.
	var sum route.Receipt
	if err := c.do(t.Context(), route.Read, []int64{0, -1, 4096}, 4096, &sum); !errors.Is(err, cufile.InvalidValue) || sum.Bytes != 2*4096 {
		t.Errorf("with a bad offset: %d bytes, %v", sum.Bytes, err)
	}
}
