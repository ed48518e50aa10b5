package object_test

import (
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/object"
)

var soakGiB = flag.Int64("object.soak", 0, "GiB that TestMemoryOfALongRead reads")

// Memory does not grow with what is read. An object of any size goes through a window
// of GPU memory; the server and the client are this process.
func TestMemoryOfALongRead(t *testing.T) {
	if *soakGiB == 0 {
		t.Skip("no -object.soak")
	}
	size := *soakGiB << 30
	srv := httptest.NewServer(zeros(size))
	defer srv.Close()
	drv := newDriver(t)
	src, err := object.Open(t.Context(), srv.URL+"/zeros")
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	from, err := drv.RegisterSource(src)
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	dev, err := drv.Device(0)
	if err != nil {
		t.Fatal(err)
	}
	const window = 32 << 20
	mem, err := dev.Alloc(gpu.KindDevice, window, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Free(mem)
	var warm int64
	for off := int64(0); off < size; off += window {
		if _, err := from.ReadAt(t.Context(), gpu.Span{Base: mem, Len: window}, off); err != nil {
			t.Fatal(err)
		}
		switch {
		case off == size/10/window*window:
			warm = resident(t)
		case off%(10<<30) == 0:
			t.Logf("%d GiB: %d MiB", off>>30, resident(t)>>20)
		}
	}
	end := resident(t)
	t.Logf("resident after a tenth: %d MiB, at the end: %d MiB", warm>>20, end>>20)
	if end > warm+64<<20 {
		t.Errorf("memory grew by %d MiB", (end-warm)>>20)
	}
}

// zeros serves an object of zeros by ranges.
func zeros(size int64) http.Handler {
	block := make([]byte, 1<<20)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var first, last int64
		if _, err := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &first, &last); err != nil || last >= size {
			http.Error(w, "no range", http.StatusRequestedRangeNotSatisfiable)
			return
		}
		n := last - first + 1
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", first, last, size))
		w.Header().Set("Content-Length", fmt.Sprint(n))
		w.Header().Set("ETag", `"zeros"`)
		w.WriteHeader(http.StatusPartialContent)
		for ; n > 0; n -= int64(len(block)) {
			if _, err := w.Write(block[:min(n, int64(len(block)))]); err != nil {
				return
			}
		}
	})
}

// resident is the memory of this process, in bytes.
func resident(t *testing.T) int64 {
	t.Helper()
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "VmRSS:")
	var kib int64
	if _, err := fmt.Sscan(rest, &kib); err != nil {
		t.Fatal(err)
	}
	return kib << 10
}
