package kernels_test

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/gpu/kernels"
	softgpu "github.com/culvert-io/culvert/soft/gpu"
)

// Call returns when the kernel has ended, and reports every step that fails.
func TestCall(t *testing.T) {
	drv, err := softgpu.New(softgpu.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer drv.Close()
	dev, err := drv.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	word, err := dev.Alloc(gpu.KindManaged, 4, 0)
	if err != nil {
		t.Fatal(err)
	}
	clear(gpu.HostBytes(word, 4))
	if err := kernels.Call(dev, "culvert_counter", gpu.Dim{X: 3}, gpu.Dim{X: 5}, word); err != nil {
		t.Fatal(err)
	}
	if n := binary.LittleEndian.Uint32(gpu.HostBytes(word, 4)); n != 15 {
		t.Errorf("15 threads counted to %d", n)
	}
	if err := kernels.Call(dev, "culvert_missing", gpu.Dim{}, gpu.Dim{}, word); !errors.Is(err, gpu.ErrNotFound) {
		t.Errorf("a kernel that does not exist: %v", err)
	}
	if err := kernels.Call(dev, "culvert_counter", gpu.Dim{}, gpu.Dim{}); !errors.Is(err, gpu.ErrInvalidValue) {
		t.Errorf("a missing argument: %v", err)
	}
}
