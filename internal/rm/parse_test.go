package rm

import (
	"os"
	"testing"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/abi/nvrm"
)

func TestNormalPCI(t *testing.T) {
	for in, want := range map[string]string{
		"0000:65:00.0":     "0000:65:00.0",
		"0000:C1:00.0":     "0000:c1:00.0",
		"00000000:0F:1f.7": "0000:0f:1f.7",
		"10000:01:00.0":    "10000:01:00.0",
		"":                 "",
		"65:00.0":          "65:00.0",
		"0000:zz:00.0":     "0000:zz:00.0",
		"0:1:2:3:4":        "0:1:2:3:4",
	} {
		if got := normalPCI(in); got != want {
			t.Errorf("normalPCI(%q) = %q, want %q", in, got, want)
		}
	}
}

// FuzzPlausible: whatever 64 bytes a driver hands out, what is accepted lies in
// the object that the handle describes, and is of this process.
func FuzzPlausible(f *testing.F) {
	good := nvrm.IPCMemHandle{PID: uint32(os.Getpid()), Size: 8192, Pages: 512, Offset: 4096, HClient: 1, HMemory: 2}.Bytes()
	f.Add(good[:], uint64(8192), uint64(0), uint64(8192))
	f.Add(make([]byte, 64), uint64(1), uint64(0), uint64(1))
	f.Fuzz(func(t *testing.T, b []byte, size, off, n uint64) {
		var raw [64]byte
		copy(raw[:], b)
		h := nvrm.ParseIPC(raw)
		r := request{addr: gpu.Addr(off), n: n, alloc: gpu.Pointer{Kind: gpu.KindDevice, Size: size}}
		if !r.alloc.Contains(r.addr, n) || plausible(h, os.Getpid(), r) != nil {
			return
		}
		e := r.pages(uint64(h.Offset) + off)
		if end, object := e.off+e.skip+n, uint64(h.Pages)*nvrm.IPCPageSize; end < n || end > object {
			t.Errorf("%d bytes at %d of %+v end at %d of %d", n, off, h, end, object)
		}
		if int(h.PID) != os.Getpid() {
			t.Errorf("%+v is another process's", h)
		}
	})
}
