package cufileapi

import (
	"errors"
	"runtime/debug"
	"testing"

	"github.com/culvert-io/culvert/clib/internal/cmem"
	"github.com/culvert-io/culvert/clib/internal/handle"
	"github.com/culvert-io/culvert/gpu"
)

// TestCheckStream: a stream on which libcuda would crash is a code.
func TestCheckStream(t *testing.T) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true)) // as package dispatch does
	stream := new([8]uint64)
	for _, good := range []handle.ID{0, 1, 2, handle.ID(cmem.PtrTo(stream))} {
		if err := CheckStream(good); err != nil {
			t.Errorf("stream %#x: %v", uint64(good), err)
		}
	}
	for _, bad := range []handle.ID{3, 0x10000, 1<<63 + 8} {
		if err := CheckStream(bad); !errors.Is(err, gpu.ErrInvalidHandle) {
			t.Errorf("stream %#x: %v", uint64(bad), err)
		}
	}
}
