package transfer

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/route"
)

// needsRoute skips where files here cannot take a route at all. That one does not
// take a request is no reason.
func needsRoute(t *testing.T, err error) {
	t.Helper()
	if re, ok := errors.AsType[*route.RequireError](err); ok && re.Got != route.None {
		t.Skipf("needs a machine and a file system with the route: %v", err)
	}
}

// A file of any length can be copied by routes that move whole blocks: its last one
// goes by them too, and the copy has the file's length.
func TestCopyByWholeBlocks(t *testing.T) {
	for _, id := range []route.ID{route.NVFS, route.P2PDMA} {
		for name, o := range map[string]Options{
			"route " + id.String():   {Route: id},
			"require " + id.String(): {Require: id},
		} {
			t.Run(name, func(t *testing.T) {
				drv := newDriver(t)
				for _, n := range []int{0, 1, 4095, 4096, 4097, 1<<20 - 5, 1<<20 + 3, 5<<20 + 17} {
					dir := t.TempDir()
					src, data := writeFile(t, dir, n)
					dst := filepath.Join(dir, "dest")
					o.Buffer, o.Verify = 1<<20, true
					res, err := Copy(context.Background(), drv, src, dst, o)
					needsRoute(t, err)
					if err != nil || res.Bytes != int64(n) || !res.Verified {
						t.Fatalf("%d bytes: %+v, %v", n, res, err)
					}
					if got, err := os.ReadFile(dst); err != nil || !bytes.Equal(got, data) {
						t.Fatalf("%d bytes: the copy differs, %v", n, err)
					}
					for _, r := range []*route.Receipt{res.Read, res.Write} {
						sum := int64(0)
						for _, by := range r.By {
							sum += by
						}
						if r.Bytes != int64(n) || sum != r.Bytes {
							t.Errorf("%d bytes: the receipt has %d, by route %d: %v", n, r.Bytes, sum, r)
						}
						if id == route.NVFS && (r.Host.Bytes != 0 || r.By[id] != r.Bytes) {
							t.Errorf("%d bytes: %v", n, r)
						}
					}
				}
			})
		}
	}
}

// What the disk gets behind the end of the file, until it is cut off, is nobody's.
func TestLastBlockHoldsNothingElse(t *testing.T) {
	drv := newDriver(t)
	dir := t.TempDir()
	const n = 3<<19 + 100 // the last piece takes a half of the buffer that was full
	src, data := writeFile(t, dir, n)
	longest := 0
	o := Options{Route: route.NVFS, Buffer: 1 << 20, temp: "temp", named: true}
	o.step = func() {
		got, err := os.ReadFile(filepath.Join(dir, o.temp))
		if err != nil || len(got) <= n {
			return
		}
		longest = len(got)
		if !bytes.Equal(got, append(bytes.Clone(data), make([]byte, len(got)-n)...)) {
			t.Error("the file holds something else than the source and zeros")
		}
	}
	_, err := Copy(context.Background(), drv, src, filepath.Join(dir, "dest"), o)
	needsRoute(t, err)
	if err != nil || longest != 3<<19+4096 {
		t.Errorf("the file was never a whole number of blocks (%d bytes), %v", longest, err)
	}
}

// Bytes that a source gained meanwhile are neither read nor counted, and the copy fails.
func TestSourceThatGrows(t *testing.T) {
	drv := newDriver(t)
	dir := t.TempDir()
	src, data := writeFile(t, dir, 1<<20+100)
	dst := filepath.Join(dir, "dest")
	o := Options{Route: route.NVFS, Buffer: 1 << 20}
	o.step = func() {
		f, err := os.OpenFile(src, os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			t.Error(err)
			return
		}
		_, err = f.Write([]byte{1, 2, 3})
		if err = errors.Join(err, f.Close()); err != nil {
			t.Error(err)
		}
	}
	res, err := Copy(context.Background(), drv, src, dst, o)
	needsRoute(t, err)
	if err == nil || !strings.Contains(err.Error(), "changed during the copy") || res.Read.Bytes != int64(len(data)) {
		t.Errorf("%v, %v", res.Read, err)
	}
	if _, err := os.Lstat(dst); err == nil {
		t.Error("the copy of a file that changed is published")
	}
}

// A GPU whose memory others use has a smaller buffer for a copy, and a full one says so.
func TestLittleMemory(t *testing.T) {
	drv, dir := newDriver(t), t.TempDir()
	src, data := writeFile(t, dir, 20<<20+5)
	dst := filepath.Join(dir, "dest")
	dev, err := drv.Device(0)
	if err != nil {
		t.Fatal(err)
	}
	take := func(n uint64) {
		t.Helper()
		if _, err := dev.Alloc(gpu.KindDevice, n, 0); err != nil {
			t.Fatal(err)
		}
	}
	take(54 << 20)
	if _, err := Copy(context.Background(), drv, src, dst, Options{Verify: true}); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(dst); err != nil || !bytes.Equal(got, data) {
		t.Errorf("the copy differs, %v", err)
	}
	for n := uint64(8 << 20); n >= halves*gpuPage; {
		if _, err := dev.Alloc(gpu.KindDevice, n, 0); err != nil {
			n /= 2
		}
	}
	_, err = Copy(context.Background(), drv, src, dst, Options{})
	if !errors.Is(err, gpu.ErrOutOfMemory) || !strings.Contains(err.Error(), "gpu:0 has no room for a buffer of 128.0 KiB (fix: free GPU memory, or copy through another GPU, --via gpu:N)") {
		t.Errorf("a full GPU: %v", err)
	}
}
